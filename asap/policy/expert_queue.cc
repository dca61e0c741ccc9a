#include "asap/policy/expert_queue.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

ExpertQueue::ExpertQueue(const ExpertQueueLimits& limits)
    : limits_(limits),
      since_(static_cast<size_t>(limits.groups) * static_cast<size_t>(limits.stages),
             Instant::never()),
      layer_(since_.size(), -1),
      cursor_(since_.size() - 1) {
  CHECK(limits.groups > 0 && limits.stages > 0);
}

void ExpertQueue::on_ready(int group, int stage, int layer, Instant now) {
  const auto slot = static_cast<size_t>(group * limits_.stages + stage);
  Instant& since = since_.at(slot);
  CHECK(since == Instant::never() && now < Instant::never(), "g{} stage {} has two items", group,
        stage);
  since = now;
  layer_[slot] = layer;
  ++ready_;
}

size_t ExpertQueue::round_robin() const {
  size_t slot = (cursor_ + 1) % since_.size();
  while (since_[slot] == Instant::never()) slot = (slot + 1) % since_.size();
  return slot;
}

size_t ExpertQueue::oldest() const {
  return static_cast<size_t>(std::min_element(since_.begin(), since_.end()) - since_.begin());
}

ExpertQueue::Item ExpertQueue::take(size_t slot) {
  since_[slot] = Instant::never();
  --ready_;
  if (round_ > 0) --round_;
  return {static_cast<int>(slot) / limits_.stages, static_cast<int>(slot) % limits_.stages};
}

std::optional<ExpertQueue::Item> ExpertQueue::next(Instant /*now*/) {
  if (ready_ == 0) return std::nullopt;
  if (limits_.lockstep && round_ == 0) {
    if (ready_ < static_cast<size_t>(limits_.groups)) return std::nullopt;
    round_ = ready_;
  }
  cursor_ = limits_.order == ExpertOrder::round_robin ? round_robin() : oldest();
  return take(cursor_);
}

std::optional<ExpertQueue::Item> ExpertQueue::next_of(int layer) {
  if (!limits_.merge || ready_ == 0) return std::nullopt;
  for (size_t i = 1; i <= since_.size(); ++i) {
    const size_t slot = (cursor_ + i) % since_.size();
    if (since_[slot] != Instant::never() && layer_[slot] == layer) return take(slot);
  }
  return std::nullopt;
}

void ExpertQueue::check() const {
  const auto idle = std::count(since_.begin(), since_.end(), Instant::never());
  CHECK(ready_ + static_cast<size_t>(idle) == since_.size(), "{} ready, {} idle of {}", ready_,
        idle, since_.size());
}

}  // namespace asap
