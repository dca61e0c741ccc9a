// LockstepPolicy: the SchedulerPolicy of the synchronous engines. All groups start a step together
// and none gets a batch before every group has finished its own. A group without work runs a batch
// without pieces: the experts' exchange needs every rank.
//
// A step:
//   1. sequences that live in a group: the next token of each that generates, then the next part of
//      prompts that were cut;
//   2. waiting sequences in the queue's order, each to the group with the fewest tokens of this
//      step; then, if it gives better batches, the same ones dealt longest first (token balance).
// Prompts share a batch up to `max_shared_tokens`. A longer one has its batch for itself ("default"
// engine, whole) or is cut to what is left ("chunked" engine: cut_to_share).
//
// When it starts: at once if anybody lives in a group; else when there is enough for a full step,
// or the oldest waiting arrival is max_wait ago.
#pragma once

#include <vector>

#include "asap/policy/scheduler_policy.h"

namespace asap {

class LockstepPolicy final : public SchedulerPolicy {
 public:
  explicit LockstepPolicy(const SchedulerLimits& limits);

  Status admit(uint64_t sequence, int prompt, int max_tokens, Instant now, int priority) override {
    return book_.admit(sequence, prompt, max_tokens, now, priority);
  }
  const BatchPlan* next(Instant now) override;
  Instant wake_at() const override;
  void on_batch_done(int group, int stage) override;
  void on_sampled(uint64_t sequence, bool finished) override {
    book_.on_sampled(sequence, finished);
  }
  void on_cancel(uint64_t sequence) override { book_.on_cancel(sequence); }
  std::vector<uint64_t> on_group_lost(int group) override;
  void requeue(uint64_t sequence, int prompt, int max_tokens, Instant arrival,
               int priority) override {
    book_.requeue(sequence, prompt, max_tokens, arrival, priority);
  }
  void on_group_back(int group) override { book_.on_group_back(group); }
  const SequenceBook& book() const override { return book_; }
  void check() const override;

 private:
  enum class Phase : uint8_t { idle, formed, running };
  // A group's batch while sequences are dealt to the groups.
  struct Draft {
    int tokens = 0;
    int prompts = 0;  // pieces of prompts
    int seats = 0;    // sequences that may still enter
    int64_t blocks = 0;
    bool lost = false;
  };
  struct Choice {
    SequenceState* sequence = nullptr;
    int group = 0;
  };

  bool worth_starting(Instant now) const;
  bool form_step(Instant now);
  Draft add_residents(BatchPlan& plan);
  void choose(Instant now);
  void balance();
  int room(const Draft& draft) const;
  int share(const Draft& draft, const SequenceState& sequence) const;
  int lightest(const std::vector<Draft>& drafts, const SequenceState& sequence) const;
  int put(Draft& draft, const SequenceState& sequence) const;

  const SchedulerLimits limits_;
  const int seats_;         // sequences that may live in a group: each has a place in every step
  const int smallest_cut_;  // tokens
  SequenceBook book_;
  std::vector<BatchPlan> plans_;  // [D]
  std::vector<Phase> phases_;     // [D]
  int live_ = 0;                  // groups that are not idle
  Instant last_now_{INT64_MIN};
  // Scratch of form_step.
  std::vector<Draft> residents_, drafts_, balanced_drafts_;  // [D]
  std::vector<Choice> chosen_, balanced_;
};

}  // namespace asap
