// SchedulerPolicy: which sequences form the next batch, and which stage of which group runs it. A
// value: events and `now` go in, batch plans come out; it reads no clock and calls nobody. Nothing
// is allocated per batch; admission and the loss of a group allocate.
//
// Two parts decide: the batcher (batcher.h) what a batch holds, the pairer (pairer.h) where it
// runs. When it starts:
//   - sequences that live in a group go on as soon as a stage is free;
//   - an idle group never waits;
//   - a busy group waits for the knee (below it, experts cost the same for fewer tokens), but no
//     longer than max_wait from the oldest waiting arrival;
//   - Pairing::paper: a group waits likewise for the knee of all its stages together.
//
//   policy.admit(1, prompt, max_tokens, now);
//   while (const BatchPlan* plan = policy.next(now)) run(*plan);
//   ...                                            // per batch that has run:
//   policy.on_sampled(1, finished);                // each sequence whose piece says `sample`
//   policy.on_batch_done(group, stage);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asap/base/result.h"
#include "asap/base/units.h"
#include "asap/policy/batch.h"
#include "asap/policy/batcher.h"
#include "asap/policy/limits.h"
#include "asap/policy/pairer.h"

namespace asap {

class SchedulerPolicy {
 public:
  explicit SchedulerPolicy(const SchedulerLimits& limits);

  // A sequence arrives. Errors: overloaded (the queue is full), invalid (it can never fit a group's
  // KV cache).
  Status admit(uint64_t sequence, int prompt, int max_tokens, Instant now);
  // Starts a batch if one can start now, else null; call until null after every event. The plan
  // stays valid, and its stage taken, until on_batch_done or on_group_lost.
  const BatchPlan* next(Instant now);
  // When a batch that waits for more tokens gives up waiting; never() if none does.
  Instant wake_at() const;

  void on_batch_done(int group, int stage);
  // A sampled token is known: the sequence goes on with it, or is finished and leaves. Call before
  // on_batch_done. Unknown sequences are ignored.
  void on_sampled(uint64_t sequence, bool finished);
  // Leaves as soon as no batch runs it, and keeps its KV blocks until then. Unknown ones are
  // ignored.
  void on_cancel(uint64_t sequence);
  // Sequences that lived in the group leave and are returned, but for finished and cancelled ones;
  // waiting ones go to other groups. The group takes no batch until it is back.
  std::vector<uint64_t> on_group_lost(int group);
  void on_group_back(int group);

  // KV blocks of a sequence that lives in a group.
  std::span<const int32_t> blocks(uint64_t sequence) const { return batcher_.blocks(sequence); }

  int waiting() const { return static_cast<int>(batcher_.queue().size()); }
  int64_t waiting_tokens() const { return batcher_.queue().tokens(); }
  int running() const { return batcher_.resident(); }
  double kv_usage() const;  // used share of all groups' KV blocks, 0..1
  // Aborts if an invariant is broken (tests).
  void check() const;

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
