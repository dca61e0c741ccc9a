// WaitQueue: sequences that wait for a group, in the order in which they should start: by key
// (arrival + kappa·cost: aged shortest first), ties by id. As keys grow with the arrival, only
// finitely many later sequences can be ahead of one that waits: nothing starves.
//
// A sorted array: the queue is bounded and walked from the front far more often than it changes.
#pragma once

#include <cstddef>
#include <vector>

#include "asap/policy/sequence_state.h"

namespace asap {

class WaitQueue {
 public:
  explicit WaitQueue(int capacity);

  // The sequence must outlive its place in the queue.
  void insert(SequenceState* sequence);
  void erase(const SequenceState* sequence);

  size_t size() const { return order_.size(); }
  bool empty() const { return order_.empty(); }
  SequenceState& at(size_t place) const { return *order_[place]; }
  int64_t tokens() const { return tokens_; }  // of all prompts
  double cost() const { return cost_; }       // of all prompts
  double cost_before(int64_t key) const;      // of those that start before one of that key
  Instant oldest() const { return oldest_; }  // arrival; never() if empty
  void check() const;

 private:
  std::vector<SequenceState*> order_;
  int64_t tokens_ = 0;
  double cost_ = 0;
  Instant oldest_ = Instant::never();
};

}  // namespace asap
