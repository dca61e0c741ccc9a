#include "asap/policy/wait_queue.h"

#include <algorithm>
#include <cmath>

#include "asap/base/check.h"

namespace asap {

namespace {

bool starts_before(const SequenceState* a, const SequenceState* b) {
  return a->key != b->key ? a->key < b->key : a->id < b->id;
}

Instant oldest_of(const std::vector<SequenceState*>& order) {
  Instant oldest = Instant::never();
  for (const SequenceState* s : order) oldest = std::min(oldest, s->arrival);
  return oldest;
}

}  // namespace

WaitQueue::WaitQueue(int capacity) {
  order_.reserve(static_cast<size_t>(capacity));
}

void WaitQueue::insert(SequenceState* sequence) {
  order_.insert(std::upper_bound(order_.begin(), order_.end(), sequence, starts_before), sequence);
  tokens_ += sequence->prompt;
  cost_ += sequence->cost;
  oldest_ = std::min(oldest_, sequence->arrival);
}

void WaitQueue::erase(const SequenceState* sequence) {
  const auto found = std::lower_bound(order_.begin(), order_.end(), sequence, starts_before);
  CHECK(found != order_.end() && *found == sequence, "sequence {} does not wait", sequence->id);
  order_.erase(found);
  tokens_ -= sequence->prompt;
  cost_ = order_.empty() ? 0 : cost_ - sequence->cost;  // 0: no rounding error outlives the queue
  if (sequence->arrival == oldest_) oldest_ = oldest_of(order_);
}

double WaitQueue::cost_before(int64_t key) const {
  double cost = 0;
  for (const SequenceState* s : order_) {
    if (s->key > key) break;
    cost += s->cost;
  }
  return cost;
}

void WaitQueue::check() const {
  CHECK(std::is_sorted(order_.begin(), order_.end(), starts_before));
  CHECK(oldest_ == oldest_of(order_));
  int64_t tokens = 0;
  double cost = 0;
  for (const SequenceState* s : order_) {
    CHECK(s->group < 0 && !s->running && !s->leaving && s->computed == 0 && s->blocks.empty(),
          "sequence {} waits and runs", s->id);
    tokens += s->prompt;
    cost += s->cost;
  }
  CHECK(std::abs(cost - cost_) <= 1e-6 * std::max(1.0, cost), "cost {}, counted {}", cost, cost_);
  CHECK(tokens == tokens_, "{} tokens wait, {} counted", tokens, tokens_);
}

}  // namespace asap
