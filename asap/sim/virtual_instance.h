// VirtualInstance: an instance under a virtual clock. The agents, policies, windows and flags are
// the engine's; kernels are priced (runtime/priced.h), and one thread steps whichever agent is next
// in virtual time. So what is simulated is the engine, and there is no second scheduler or protocol
// that could drift from it.
//
// An agent is a stream of its device: while it spends time on a step it can do nothing else, and
// what it sent becomes visible as time reaches it. An expert rank's three agents are three streams,
// or one without overlap.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "asap/base/trace.h"
#include "asap/runtime/attention.h"
#include "asap/runtime/config.h"
#include "asap/runtime/expert.h"
#include "asap/runtime/scheduler.h"
#include "asap/sim/event_queue.h"
#include "asap/sim/virtual_clock.h"
#include "asap/sim/virtual_link.h"

namespace asap {

// Busy time of the streams of one device, in virtual time.
struct DeviceUse {
  Duration receive, compute, send;  // an attention rank only computes
};

class VirtualInstance {
 public:
  // `config.ops` is "priced"; `plan` and `spec` follow from it. `rings`: by device and agent, or
  // empty.
  VirtualInstance(const EngineConfig& config, const EnginePlan& plan, const ModelSpec& spec,
                  std::span<TraceRing* const> rings);

  Scheduler& scheduler() { return *scheduler_; }
  // Moves time on to `until`, doing everything that is due before it; stops early when `done` says
  // so (asked after each step of the scheduler).
  void run(Instant until, const std::function<bool()>& done);
  // The scheduler has got something new to look at.
  void wake_scheduler() { wake(0, now_); }
  Instant now() const { return now_; }
  bool idle() const { return events_.empty(); }
  uint64_t events() const { return events_.added(); }
  uint64_t steps() const { return steps_; }
  // Of what happened, in order: equal for equal inputs.
  uint64_t hash() const { return hash_; }
  std::vector<DeviceUse> use() const;  // by device
  std::string waiting_for() const;

 private:
  struct Stream {
    Instant busy_until{0};
    Duration busy{0};
  };
  struct Stepped {
    Agent* agent = nullptr;
    int device = 0;
    int stream = 0;
    std::vector<int> mates;                // agents of the device to be woken with it
    Instant last_wake = Instant::never();  // added to the queue last, not yet served
  };

  void add(Agent& agent, int device, int stream);
  void add_expert_rank(const EngineConfig& config, const EnginePlan& plan, int e,
                       const Tracer tracers[3]);
  void wake(int agent, Instant when);
  void deliver(const Event& event);
  void step(int agent);

  VirtualClock clock_;
  EventQueue events_;
  VirtualLink link_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::unique_ptr<AttentionAgent>> attention_;
  std::vector<std::unique_ptr<ExpertRank>> experts_;
  std::vector<Stepped> agents_;   // the scheduler first
  std::vector<int> first_agent_;  // by device: the one that reads its window
  std::vector<Stream> streams_;
  Instant now_{0};
  uint64_t steps_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace asap
