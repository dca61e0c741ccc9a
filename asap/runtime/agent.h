// Agent: one object that looks at its inputs once, does what is ready, and never blocks. A real
// process gives each agent a thread (runner.h); in one process a single thread steps them all.
#pragma once

#include <string>

#include "asap/base/trace.h"
#include "asap/base/units.h"

namespace asap {

class Agent {
 public:
  virtual ~Agent() = default;
  // How much was done; 0 means that nothing was ready. `now` is the only time that the agent knows.
  virtual int do_work(Instant now) = 0;
  // When it has work even if nobody rings: never() unless it waits for a time.
  virtual Instant wake_at() const { return Instant::never(); }
  // "attention g0 t1", "moe e0 compute": in traces and in messages about who waits.
  virtual std::string name() const = 0;
  // What it waits for, in words; "" if nothing.
  virtual std::string waiting_for() const { return {}; }
};

// What an agent knows of the clock beside `now`: how long its steps take, for the batch's times and
// the trace. Set by the driver, real or virtual. Without a clock all times are 0; without a ring
// nothing is traced.
struct Tracer {
  TraceRing* ring = nullptr;
  Instant (*clock)() = nullptr;
  bool on() const { return ring != nullptr; }
  Instant now() const { return clock != nullptr ? clock() : Instant{0}; }
  void add(TraceEvent event, Instant begin) const {
    if (ring == nullptr) return;
    event.begin_ns = begin.ns;
    event.end_ns = clock().ns;
    ring->add(event);
  }
};

}  // namespace asap
