#include "asap/policy/expert_queue.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

ExpertQueue::ExpertQueue(int groups, int stages, ExpertOrder order)
    : stages_(stages),
      order_(order),
      since_(static_cast<size_t>(groups) * static_cast<size_t>(stages), Instant::never()),
      cursor_(since_.size() - 1) {
  CHECK(groups > 0 && stages > 0);
}

void ExpertQueue::on_ready(int group, int stage, Instant now) {
  Instant& since = since_.at(static_cast<size_t>(group * stages_ + stage));
  CHECK(since == Instant::never() && now < Instant::never(), "g{} stage {} has two items", group,
        stage);
  since = now;
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

std::optional<ExpertQueue::Item> ExpertQueue::next(Instant /*now*/) {
  if (ready_ == 0) return std::nullopt;
  cursor_ = order_ == ExpertOrder::round_robin ? round_robin() : oldest();
  since_[cursor_] = Instant::never();
  --ready_;
  const int slot = static_cast<int>(cursor_);
  return Item{slot / stages_, slot % stages_};
}

void ExpertQueue::check() const {
  const auto idle = std::count(since_.begin(), since_.end(), Instant::never());
  CHECK(ready_ + static_cast<size_t>(idle) == since_.size(), "{} ready, {} idle of {}", ready_,
        idle, since_.size());
}

}  // namespace asap
