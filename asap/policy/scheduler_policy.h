// SchedulerPolicy: which sequences form the next batch, and which stage of which group runs it. A
// value: events and `now` go in, batch plans come out; it reads no clock and calls nobody. Nothing
// is allocated per batch; admission and the loss of a group allocate.
//
// Two of them: AsynchronousPolicy (asynchronous.h), and LockstepPolicy (lockstep.h) for the
// synchronous engines that it is compared with.
//
//   policy->admit(1, prompt, max_tokens, now);
//   while (const BatchPlan* plan = policy->next(now)) run(*plan);
//   ...                                            // per batch that has run:
//   policy->on_sampled(1, finished);               // each sequence whose piece says `sample`
//   policy->on_batch_done(group, stage);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "asap/base/result.h"
#include "asap/base/units.h"
#include "asap/policy/batch.h"
#include "asap/policy/limits.h"
#include "asap/policy/sequence_book.h"

namespace asap {

class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;

  // A sequence arrives. Errors: overloaded (the queue is full), invalid (it can never fit a group's
  // KV cache).
  // `priority`: lower starts earlier.
  virtual Status admit(uint64_t sequence, int prompt, int max_tokens, Instant now,
                       int priority) = 0;
  // Starts a batch if one can start now, else null; call until null after every event. The plan
  // stays valid, and its stage taken, until on_batch_done or on_group_lost. In lockstep a batch
  // without pieces is run too: its group keeps step with the others.
  virtual const BatchPlan* next(Instant now) = 0;
  // When a batch that waits for more tokens gives up waiting; never() if none does.
  virtual Instant wake_at() const = 0;

  virtual void on_batch_done(int group, int stage) = 0;
  // A sampled token is known: the sequence goes on with it, or is finished and leaves. Call before
  // on_batch_done. Unknown sequences are ignored.
  virtual void on_sampled(uint64_t sequence, bool finished) = 0;
  // Leaves as soon as no batch runs it, and keeps its KV blocks until then. Unknown ones are
  // ignored.
  virtual void on_cancel(uint64_t sequence) = 0;
  // Sequences that lived in the group leave and are returned, but for finished and cancelled ones;
  // waiting ones go to other groups. The group takes no batch until it is back.
  virtual std::vector<uint64_t> on_group_lost(int group) = 0;
  // One of those waits again, with the place that its arrival gives it; `prompt` counts the tokens
  // that it has generated, `max_tokens` only those to come. Never refused: it was admitted.
  virtual void requeue(uint64_t sequence, int prompt, int max_tokens, Instant arrival,
                       int priority) = 0;
  virtual void on_group_back(int group) = 0;

  virtual const SequenceBook& book() const = 0;
  // Aborts if an invariant is broken (tests).
  virtual void check() const = 0;

  // KV blocks of a sequence that lives in a group.
  std::span<const int32_t> blocks(uint64_t sequence) const { return book().blocks(sequence); }
  int waiting() const { return static_cast<int>(book().queue().size()); }
  int64_t waiting_tokens() const { return book().queue().tokens(); }
  int running() const { return book().resident(); }
  double kv_usage() const { return book().kv_usage(); }
};

// The policy that the limits ask for.
std::unique_ptr<SchedulerPolicy> make_scheduler_policy(const SchedulerLimits& limits);

}  // namespace asap
