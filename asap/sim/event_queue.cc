#include "asap/sim/event_queue.h"

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr size_t kChildren = 4;
constexpr uint64_t kWakes = uint64_t{1} << 63;  // order of wakes: after all flags

}  // namespace

bool EventQueue::before(size_t a, size_t b) const {
  const Burst& x = bursts_[a];
  const Burst& y = bursts_[b];
  return x.due != y.due ? x.due < y.due : x.order < y.order;
}

EventQueue::Burst& EventQueue::burst(Instant due, bool wake) {
  ++added_;
  size_t& newest = newest_[wake ? 1 : 0];
  if (newest != kNone && bursts_[newest].due == due) return bursts_[newest];
  if (free_.empty()) {
    free_.push_back(bursts_.size());
    bursts_.emplace_back();
  }
  newest = free_.back();
  free_.pop_back();
  bursts_[newest].due = due;
  bursts_[newest].order = (wake ? kWakes : 0) | added_;
  push(newest);
  return bursts_[newest];
}

void EventQueue::add_flag(Instant due, std::byte* to, uint64_t value, int device) {
  burst(due, false).events.push_back({to, value, device});
}

void EventQueue::add_wake(Instant due, int agent) {
  burst(due, true).events.push_back({nullptr, 0, agent});
}

Instant EventQueue::next_due() const {
  if (served_ != kNone) return bursts_[served_].due;
  return heap_.empty() ? Instant::never() : bursts_[heap_.front()].due;
}

Event EventQueue::pop() {
  if (served_ == kNone) {
    served_ = pop_burst();
    next_ = 0;
    for (size_t& newest : newest_) {
      if (newest == served_) newest = kNone;
    }
  }
  std::vector<Event>& events = bursts_[served_].events;
  const Event event = events[next_++];
  if (next_ == events.size()) {
    events.clear();
    free_.push_back(served_);
    served_ = kNone;
  }
  return event;
}

void EventQueue::push(size_t entry) {
  size_t at = heap_.size();
  heap_.push_back(entry);
  while (at > 0) {
    const size_t parent = (at - 1) / kChildren;
    if (!before(entry, heap_[parent])) break;
    heap_[at] = heap_[parent];
    at = parent;
  }
  heap_[at] = entry;
}

size_t EventQueue::pop_burst() {
  CHECK(!heap_.empty(), "no event");
  const size_t first = heap_.front();
  const size_t last = heap_.back();
  heap_.pop_back();
  const size_t size = heap_.size();
  if (size == 0) return first;
  size_t at = 0;
  while (true) {
    const size_t begin = at * kChildren + 1;
    if (begin >= size) break;
    size_t best = begin;
    for (size_t child = begin + 1; child < begin + kChildren && child < size; ++child) {
      if (before(heap_[child], heap_[best])) best = child;
    }
    if (!before(heap_[best], last)) break;
    heap_[at] = heap_[best];
    at = best;
  }
  heap_[at] = last;
  return first;
}

}  // namespace asap
