#include "asap/policy/scheduler_policy.h"

#include "asap/policy/asynchronous.h"
#include "asap/policy/lockstep.h"

namespace asap {

std::unique_ptr<SchedulerPolicy> make_scheduler_policy(const SchedulerLimits& limits) {
  if (limits.lockstep) return std::make_unique<LockstepPolicy>(limits);
  return std::make_unique<AsynchronousPolicy>(limits);
}

}  // namespace asap
