// SequenceBook: all sequences that a scheduling policy knows: those that wait in the queue, and
// those that live in a group, each with KV blocks for all it can ever need. What enters which batch
// is the policy's business; that nothing is lost, counted twice or left without memory is the
// book's.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "asap/base/result.h"
#include "asap/policy/batch.h"
#include "asap/policy/kv_blocks.h"
#include "asap/policy/limits.h"
#include "asap/policy/wait_queue.h"

namespace asap {

// Where a request stands in the queue: its arrival, later by its weighted cost and its priority.
int64_t queue_key(const SchedulerLimits& limits, double cost, int priority, Instant now);

class SequenceBook {
 public:
  struct Group {
    explicit Group(int blocks) : kv(blocks) {}
    KvBlocks kv;
    std::vector<SequenceState*> singles;  // have one token to compute; first come first served
    std::vector<SequenceState*> parts;    // cut prompts with tokens that no batch has taken, by key
    int residents = 0;
    bool lost = false;
  };

  explicit SequenceBook(const SchedulerLimits& limits);

  // Errors: overloaded (the queue is full), invalid (it can never fit a group's KV cache).
  // Errors: overloaded, if the queue has no room for a prompt of so many tokens.
  Status check_room(int prompt) const;
  // A step of `priority` weighs as a second of waiting; lower starts earlier.
  Status admit(uint64_t id, int prompt, int max_tokens, Instant now, int priority = 0);
  // A sequence that was admitted at `arrival` and lost its group waits again: what it has generated
  // belongs to its prompt now. No limit refuses it.
  void requeue(uint64_t id, int prompt, int max_tokens, Instant arrival, int priority);
  // A waiting sequence moves into a group; false, and it waits on, if the KV blocks do not suffice.
  bool enter(SequenceState& sequence, int group);
  // Its next tokens become part of the batch.
  void add_piece(BatchPlan& plan, SequenceState& sequence, int tokens);
  // A prompt just entered that the batch did not take whole.
  void keep_part(SequenceState& sequence);
  void drop_part(SequenceState& sequence);

  void on_sampled(uint64_t id, bool finished);
  void on_batch_done(const BatchPlan& plan);
  void on_cancel(uint64_t id);
  // Returns the sequences that lived there and still wanted to go on.
  std::vector<uint64_t> on_group_lost(int group);
  void on_group_back(int group) { this->group(group).lost = false; }

  const WaitQueue& queue() const { return queue_; }
  Group& group(int g) { return groups_[static_cast<size_t>(g)]; }
  const Group& group(int g) const { return groups_[static_cast<size_t>(g)]; }
  int resident() const { return static_cast<int>(sequences_.size() - queue_.size()); }
  // It is known, and waits.
  bool waits(uint64_t id) const;
  std::span<const int32_t> blocks(uint64_t id) const { return sequences_.at(id).blocks; }
  double kv_usage() const;  // used share of all groups' KV blocks, 0..1
  void check() const;

 private:
  void insert(uint64_t id, int prompt, int max_tokens, Instant arrival, int priority);
  void leave(SequenceState& sequence);
  void check_group(int g) const;

  const SchedulerLimits limits_;
  std::unordered_map<uint64_t, SequenceState> sequences_;
  WaitQueue queue_;
  std::vector<Group> groups_;  // [D]
};

}  // namespace asap
