#include "asap/policy/asynchronous.h"

#include "asap/base/check.h"

namespace asap {

AsynchronousPolicy::AsynchronousPolicy(const SchedulerLimits& limits)
    : limits_(limits),
      batcher_(limits),
      pairer_(limits),
      plans_(static_cast<size_t>(limits.groups) * static_cast<size_t>(limits.stages)),
      backlog_(static_cast<size_t>(limits.groups), 0) {
  for (int g = 0; g < limits.groups; ++g) {
    for (int r = 0; r < limits.stages; ++r) {
      BatchPlan& plan = plan_at(g, r);
      plan.group = g;
      plan.stage = r;
      plan.pieces.reserve(static_cast<size_t>(limits.max_batch_seqs));
    }
  }
}

Status AsynchronousPolicy::admit(uint64_t sequence, int prompt, int max_tokens, Instant now,
                                 int priority) {
  return batcher_.admit(sequence, prompt, max_tokens, now, priority);
}

bool AsynchronousPolicy::worth_starting(int group, Instant now) const {
  if (batcher_.has_ready(group)) return true;
  const WaitQueue& queue = batcher_.queue();
  if (queue.empty()) return false;
  if (now - queue.oldest() >= patience()) return true;
  if (limits_.pairing == Pairing::paper) {
    const int64_t pair = int64_t{limits_.knee_tokens} * limits_.stages;
    return pairer_.open(group) || queue.tokens() >= pair || batcher_.exclusive(queue.at(0));
  }
  return pairer_.idle(group) || queue.tokens() >= limits_.knee_tokens;
}

// How long the oldest waiting sequence waits for more tokens, and the paper's pairs for a partner.
Duration AsynchronousPolicy::patience() const {
  if (limits_.pairing == Pairing::refill) return limits_.max_wait;
  return batcher_.queue().tokens() >= limits_.knee_tokens ? limits_.partner_wait
                                                          : limits_.max_wait + limits_.partner_wait;
}

const BatchPlan* AsynchronousPolicy::next(Instant now) {
  last_now_ = now;
  if (!pairer_.any_free()) return nullptr;
  for (int g = 0; g < limits_.groups; ++g) backlog_[static_cast<size_t>(g)] = batcher_.backlog(g);
  for (const Pairer::Slot slot : pairer_.slots(backlog_)) {
    BatchPlan& plan = plan_at(slot.group, slot.stage);
    if (worth_starting(slot.group, now)) batcher_.form(plan, pairer_.room(slot.group), now);
    if (plan.pieces.empty()) {
      pairer_.on_no_partner(slot.group);
      continue;
    }
    pairer_.on_start(plan, limits_.cost.of(plan));
    return &plan;
  }
  return nullptr;
}

Instant AsynchronousPolicy::wake_at() const {
  if (batcher_.queue().empty()) return Instant::never();
  const Instant until = batcher_.queue().oldest() + patience();
  return until > last_now_ ? until : Instant::never();
}

void AsynchronousPolicy::on_batch_done(int group, int stage) {
  BatchPlan& plan = plan_at(group, stage);
  pairer_.on_batch_done(group, stage);
  batcher_.on_batch_done(plan);
  plan.clear();
}

void AsynchronousPolicy::on_sampled(uint64_t sequence, bool finished) {
  batcher_.on_sampled(sequence, finished);
}

void AsynchronousPolicy::on_cancel(uint64_t sequence) {
  batcher_.on_cancel(sequence);
}

std::vector<uint64_t> AsynchronousPolicy::on_group_lost(int group) {
  for (int r = 0; r < limits_.stages; ++r) plan_at(group, r).clear();
  pairer_.on_group_lost(group);
  return batcher_.on_group_lost(group);
}

void AsynchronousPolicy::on_group_back(int group) {
  pairer_.on_group_back(group);
  batcher_.on_group_back(group);
}

void AsynchronousPolicy::check() const {
  batcher_.check();
  pairer_.check();
  for (const BatchPlan& plan : plans_) {
    int tokens = 0;
    for (const BatchPiece& piece : plan.pieces) tokens += piece.tokens;
    CHECK(tokens == plan.tokens && tokens <= limits_.max_batch_tokens &&
              plan.pieces.size() <= static_cast<size_t>(limits_.max_batch_seqs),
          "g{} stage {}: {} tokens in {} pieces", plan.group, plan.stage, tokens,
          plan.pieces.size());
  }
}

}  // namespace asap
