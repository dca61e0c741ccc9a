// Admission: whether one more request may wait, judged by time: how long the queue's work will take
// at the speed that the instance has shown. (The limits in requests and tokens are the book's.) A
// refusal says when there is room again. The caller admits in the same step, so that nothing comes
// between check and reservation.
//
// The speed is measured while requests wait, because only then the instance shows all it can do:
// cost of the batches that ended, per second. It is forgotten with a half-life, so that it follows
// a lost group or another mix of lengths. Until it is known nothing is refused by time.
#pragma once

#include "asap/base/result.h"
#include "asap/base/units.h"
#include "asap/policy/wait_queue.h"

namespace asap {

class WorkRate {
 public:
  // A batch of that cost ended; `backlog`: requests wait now.
  void on_done(double cost, bool backlog, Instant now);
  // Cost per second; 0: not known yet.
  double per_second() const;

 private:
  double cost_ = 0, seconds_ = 0;  // both decay alike
  bool backlog_ = false;           // at last_
  Instant last_{0};
};

class Admission {
 public:
  // `limit`: of the queue's work; 0: none.
  explicit Admission(Duration limit) : limit_(limit) {}

  void on_done(double cost, bool backlog, Instant now) { rate_.on_done(cost, backlog, now); }
  // One more of that cost, which would stand in the queue where `key` says. `timeout`: how long it
  // may wait; 0: for ever. Errors: overloaded, with the time until there is room.
  // `entering`: cost of what was admitted and is not in the queue yet.
  Status check(const WaitQueue& queue, double cost, int64_t key, Duration timeout,
               double entering = 0) const;
  // Work that waits, in seconds; 0 if the speed is not known.
  double waiting_seconds(const WaitQueue& queue) const { return seconds(queue.cost()); }

 private:
  double seconds(double cost) const;

  Duration limit_;
  WorkRate rate_;
};

}  // namespace asap
