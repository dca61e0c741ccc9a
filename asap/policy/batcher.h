// Batcher: which sequences share the next batch of a group (length-aware batching). A batch holds,
// in this order and up to S tokens:
//   1. pieces of sequences that already live in the group: the next token of each that generates,
//      first come first served; then the next part of prompts that were cut. Parts of a prompt run
//      one after another, over the KV cache, or (`chain`) on several stages, one layer behind each
//      other. One part always finds a place beside the tokens.
//   2. waiting sequences in the queue's order, each with KV blocks for all it can ever need.
//
// A batch takes at least the knee, and its share of the backlog when other stages are free to take
// the rest at once; with nobody else to take it, all that fits. A prompt is cut if it is longer
// than S, if it is the first to enter this batch and finds less room than it needs, or if nobody
// else waits and stages are free: then it is spread over them, in parts of equal cost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asap/base/result.h"
#include "asap/policy/batch.h"
#include "asap/policy/limits.h"
#include "asap/policy/sequence_book.h"

namespace asap {

// What the instance offers to waiting sequences besides the batch that is being formed.
struct Room {
  int free_stages = 1;      // this one included
  bool other_idle = false;  // another group has nothing to do
  bool whole_group = true;  // no other batch runs in this group
  int own_stages = 1;       // free stages of this group, this one included
};

class Batcher {
 public:
  explicit Batcher(const SchedulerLimits& limits);

  // As the book's.
  Status admit(uint64_t id, int prompt, int max_tokens, Instant now, int priority = 0) {
    return book_.admit(id, prompt, max_tokens, now, priority);
  }
  // Fills `plan`, whose group and stage are set, and marks its sequences as running. No pieces:
  // none can run there now.
  void form(BatchPlan& plan, const Room& room, Instant now);

  void on_sampled(uint64_t id, bool finished) { book_.on_sampled(id, finished); }
  void on_batch_done(const BatchPlan& plan) { book_.on_batch_done(plan); }
  void on_cancel(uint64_t id);
  std::vector<uint64_t> on_group_lost(int group);
  void requeue(uint64_t id, int prompt, int max_tokens, Instant arrival, int priority) {
    book_.requeue(id, prompt, max_tokens, arrival, priority);
  }
  void on_group_back(int group) { book_.on_group_back(group); }

  const SequenceBook& book() const { return book_; }
  const WaitQueue& queue() const { return book_.queue(); }
  // A sequence that lives in the group can go on.
  bool has_ready(int group) const;
  // Cost of the prompt tokens that live in the group and that no batch has taken yet.
  double backlog(int group) const;
  // A prompt that runs alone (Pairing::paper).
  bool exclusive(const SequenceState& sequence) const;
  void check() const;

 private:
  using Group = SequenceBook::Group;
  // The batch being formed.
  struct Draft {
    BatchPlan& plan;
    const Room& room;
    Instant now;
    int64_t target;        // tokens beyond which the backlog is left to other free stages
    int prompts = 0;       // pieces of prompts
    int entered = 0;       // sequences that leave the queue
    bool passing = false;  // a sequence was left behind in the queue
  };

  Group& group_of(const BatchPlan& plan) { return book_.group(plan.group); }
  bool goes_on(const SequenceState& sequence) const;
  int room_tokens(const Draft& draft) const;
  int part_tokens(const Draft& draft, const SequenceState& sequence) const;
  bool full(const Draft& draft) const;
  void add_residents(Draft& draft);
  void add_singles(Draft& draft, Group& group, int places);
  void add_part(Draft& draft, Group& group);
  void add_waiting(Draft& draft);
  bool leave_to_others(const Draft& draft, const SequenceState& sequence) const;
  bool fits(const Draft& draft, const SequenceState& sequence) const;
  bool may_pass(const Draft& draft, SequenceState& sequence);
  void add_piece(Draft& draft, SequenceState& sequence);
  int roomiest_group() const;

  const SchedulerLimits limits_;
  const int smallest_cut_;  // tokens
  SequenceBook book_;
  // A group that takes nobody in who comes after `held_for_`; -1: none.
  int held_group_ = -1;
  uint64_t held_for_ = 0;
};

}  // namespace asap
