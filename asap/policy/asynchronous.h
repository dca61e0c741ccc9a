// AsynchronousPolicy: the SchedulerPolicy of ASAP itself: a batch starts whenever a stage of a
// group is free, whatever the other groups do.
//
// Two parts decide: the batcher (batcher.h) what a batch holds, the pairer (pairer.h) where it
// runs. When it starts:
//   - sequences that live in a group go on as soon as a stage is free;
//   - an idle group never waits;
//   - a busy group waits for the knee (below it, experts cost the same for fewer tokens), but no
//     longer than max_wait from the oldest waiting arrival;
//   - Pairing::paper: a group waits likewise for the knee of all its stages together.
#pragma once

#include <vector>

#include "asap/policy/batcher.h"
#include "asap/policy/pairer.h"
#include "asap/policy/scheduler_policy.h"

namespace asap {

class AsynchronousPolicy final : public SchedulerPolicy {
 public:
  explicit AsynchronousPolicy(const SchedulerLimits& limits);

  Status admit(uint64_t sequence, int prompt, int max_tokens, Instant now, int priority) override;
  const BatchPlan* next(Instant now) override;
  Instant wake_at() const override;
  void on_batch_done(int group, int stage) override;
  void on_sampled(uint64_t sequence, bool finished) override;
  void on_cancel(uint64_t sequence) override;
  std::vector<uint64_t> on_group_lost(int group) override;
  void requeue(uint64_t sequence, int prompt, int max_tokens, Instant arrival,
               int priority) override {
    batcher_.requeue(sequence, prompt, max_tokens, arrival, priority);
  }
  void on_group_back(int group) override;
  const SequenceBook& book() const override { return batcher_.book(); }
  void check() const override;

 private:
  BatchPlan& plan_at(int group, int stage) {
    return plans_[static_cast<size_t>(group * limits_.stages + stage)];
  }
  bool worth_starting(int group, Instant now) const;
  Duration patience() const;

  const SchedulerLimits limits_;
  Batcher batcher_;
  Pairer pairer_;
  std::vector<BatchPlan> plans_;  // [D·R]; no pieces: the stage is free
  std::vector<double> backlog_;   // [D] scratch of next()
  Instant last_now_{INT64_MIN};
};

}  // namespace asap
