// VirtualClock: the time of a simulated instance. While an agent is stepped it stands at that
// agent's own time: the moment it was woken, plus what its priced kernels have spent since.
#pragma once

#include "asap/base/units.h"
#include "asap/runtime/priced.h"

namespace asap {

class VirtualClock final : public Meter {
 public:
  void spend(Duration time) override { now_ = now_ + time; }
  void set(Instant now) { now_ = now; }
  Instant now() const { return now_; }

  // Agents read time through a plain function: that of the clock in use on this thread.
  static Instant current() { return in_use->now_; }
  void use() { in_use = this; }

 private:
  static thread_local VirtualClock* in_use;
  Instant now_{0};
};

}  // namespace asap
