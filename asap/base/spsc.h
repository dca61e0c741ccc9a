// SpscQueue: a bounded queue between two agents, one producer and one consumer, in one process.
// Neither side blocks or allocates; each index has a cache line of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "asap/base/check.h"

namespace asap {

template <typename T>
class SpscQueue {
 public:
  // At most `capacity` elements. The bound is structural (stages, buffers): overflowing it is a
  // bug.
  explicit SpscQueue(size_t capacity) : slots_(capacity + 1) {}

  void push(T value) {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    const size_t next = (tail + 1) % slots_.size();
    CHECK(next != head_.load(std::memory_order_acquire), "queue of {} is full", slots_.size() - 1);
    slots_[tail] = std::move(value);
    tail_.store(next, std::memory_order_release);
  }

  std::optional<T> pop() {
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return std::nullopt;
    std::optional<T> value = std::move(slots_[head]);
    head_.store((head + 1) % slots_.size(), std::memory_order_release);
    return value;
  }

  // The element that pop() would give, or null. Consumer only.
  const T* front() const {
    const size_t head = head_.load(std::memory_order_relaxed);
    return head == tail_.load(std::memory_order_acquire) ? nullptr : &slots_[head];
  }

  bool empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire);
  }

 private:
  std::vector<T> slots_;
  alignas(64) std::atomic<size_t> head_{0};
  alignas(64) std::atomic<size_t> tail_{0};
};

}  // namespace asap
