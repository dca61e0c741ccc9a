// RestartPolicy: whether and when a part of an instance that died, an attention group or an expert
// rank, is started again. A value: deaths and `now` go in, a time comes out.
//
// One that served for a while is started at once. One that dies again soon waits, each time twice
// as long, so that a fault which comes back at every start costs the machine little. More than
// `max_restarts` deaths within `window` are too many: it stays away.
#pragma once

#include <deque>
#include <optional>

#include "asap/base/units.h"

namespace asap {

struct RestartLimits {
  int max_restarts = 5;  // within `window`; 0: none
  Duration window = Duration::seconds(120);
  Duration first_wait = Duration::millis(200);  // of one that dies soon after its start
  Duration longest_wait = Duration::seconds(10);
  Duration soon = Duration::seconds(2);  // of service
};

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartLimits& limits) : limits_(limits) {}

  // When to start it again; nothing: it died too often.
  std::optional<Instant> on_death(Instant now);
  void on_ready(Instant now) { ready_ = now; }
  int deaths() const { return static_cast<int>(deaths_.size()); }  // that still count

 private:
  RestartLimits limits_;
  std::deque<Instant> deaths_;  // within the window, oldest first
  Instant ready_ = Instant::never();
  int in_a_row_ = 0;  // deaths soon after a start
};

}  // namespace asap
