#include "asap/policy/restart.h"

#include <algorithm>

namespace asap {

std::optional<Instant> RestartPolicy::on_death(Instant now) {
  if (ready_ != Instant::never() && now - ready_ >= limits_.soon) in_a_row_ = 0;
  ready_ = Instant::never();
  deaths_.push_back(now);
  while (now - deaths_.front() > limits_.window) deaths_.pop_front();
  if (static_cast<int>(deaths_.size()) > limits_.max_restarts) return std::nullopt;
  Duration wait{0};
  for (int i = 0; i < in_a_row_ && wait < limits_.longest_wait; ++i) {
    wait = i == 0 ? limits_.first_wait : wait + wait;
  }
  ++in_a_row_;
  return now + std::min(wait, limits_.longest_wait);
}

}  // namespace asap
