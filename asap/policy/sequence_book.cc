#include "asap/policy/sequence_book.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

namespace {

// Largest weight of a sequence's cost in the queue's order; keeps keys far from overflow.
constexpr double kLargestPenaltyNs = 1e17;

size_t sz(int n) {
  return static_cast<size_t>(n);
}

void remove(std::vector<SequenceState*>& from, const SequenceState* s) {
  from.erase(std::remove(from.begin(), from.end(), s), from.end());
}

}  // namespace

SequenceBook::SequenceBook(const SchedulerLimits& limits)
    : limits_(limits), queue_(limits.max_queued) {
  CHECK(limits.groups > 0 && limits.max_batch_tokens > 0 && limits.max_batch_seqs > 0);
  CHECK(limits.kv_blocks >= 0 && limits.max_queued >= 0 && limits.kappa_ns >= 0);
  for (int g = 0; g < limits.groups; ++g) {
    groups_.emplace_back(limits.kv_blocks);
    groups_.back().singles.reserve(sz(limits.kv_blocks));  // a resident owns at least one block
    groups_.back().parts.reserve(sz(limits.kv_blocks));
  }
  sequences_.reserve(sz(limits.max_queued) + sz(limits.groups) * sz(limits.max_batch_seqs));
}

int64_t queue_key(const SchedulerLimits& limits, double cost, int priority, Instant now) {
  const double penalty = limits.kappa_ns * cost;
  return now.ns + Duration::seconds(priority).ns +
         static_cast<int64_t>(std::min(penalty, kLargestPenaltyNs));
}

Status SequenceBook::check_room(int prompt) const {
  if (queue_.size() >= sz(limits_.max_queued)) {
    return fail(Code::overloaded,
                "{} requests are waiting, the limit (--max-num-queued-reqs); try again later",
                queue_.size());
  }
  if (!queue_.empty() && queue_.tokens() + prompt > limits_.max_queued_tokens) {
    return fail(Code::overloaded,
                "{} prompt tokens are waiting and {} more exceed the limit of {} "
                "(--max-num-queued-tokens); try again later",
                queue_.tokens(), prompt, limits_.max_queued_tokens);
  }
  return {};
}

Status SequenceBook::admit(uint64_t id, int prompt, int max_tokens, Instant now, int priority) {
  CHECK(prompt > 0 && max_tokens > 0 && !sequences_.contains(id), "sequence {}: {} + {} tokens", id,
        prompt, max_tokens);
  const int64_t need = int64_t{prompt} + max_tokens;
  if (KvBlocks::blocks_for(need) > limits_.kv_blocks) {
    return fail(Code::invalid,
                "{} prompt tokens and {} output tokens need more than the group's KV cache of {} "
                "tokens; raise --kv-cache-tokens or ask for less",
                prompt, max_tokens, int64_t{limits_.kv_blocks} * kKvBlockTokens);
  }
  ASAP_TRY(check_room(prompt));
  insert(id, prompt, max_tokens, now, priority);
  return {};
}

void SequenceBook::requeue(uint64_t id, int prompt, int max_tokens, Instant arrival, int priority) {
  CHECK(prompt > 0 && max_tokens > 0 && !sequences_.contains(id), "sequence {}: {} + {} tokens", id,
        prompt, max_tokens);
  insert(id, prompt, max_tokens, arrival, priority);
}

void SequenceBook::insert(uint64_t id, int prompt, int max_tokens, Instant arrival, int priority) {
  SequenceState& s = sequences_[id];
  s.id = id;
  s.arrival = arrival;
  s.cost = limits_.cost.piece(prompt, 0);
  s.key = queue_key(limits_, s.cost, priority, arrival);
  s.prompt = prompt;
  s.max_tokens = max_tokens;
  s.known = prompt;
  queue_.insert(&s);
}

bool SequenceBook::enter(SequenceState& s, int g) {
  if (!group(g).kv.reserve(int64_t{s.prompt} + s.max_tokens, &s.blocks)) return false;
  queue_.erase(&s);
  s.group = g;
  ++group(g).residents;
  return true;
}

void SequenceBook::add_piece(BatchPlan& plan, SequenceState& s, int tokens) {
  CHECK(tokens > 0 && tokens <= s.left() && (s.running == 0 || limits_.chain) && !s.leaving &&
            s.group == plan.group,
        "sequence {} gets {} tokens", s.id, tokens);
  plan.pieces.push_back({s.id, s.computed, tokens, tokens == s.left(), s.last_stage});
  plan.tokens += tokens;
  s.computed += tokens;
  ++s.running;
  s.last_stage = plan.stage;
}

void SequenceBook::keep_part(SequenceState& s) {
  auto& parts = group(s.group).parts;
  const auto before = [](const SequenceState* a, const SequenceState* b) {
    return a->key < b->key;
  };
  parts.insert(std::upper_bound(parts.begin(), parts.end(), &s, before), &s);
}

void SequenceBook::drop_part(SequenceState& s) {
  remove(group(s.group).parts, &s);
}

bool SequenceBook::waits(uint64_t id) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second.group < 0;
}

void SequenceBook::on_sampled(uint64_t id, bool finished) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  SequenceState& s = found->second;
  CHECK(s.running > 0 && s.left() == 0, "sequence {} has {} tokens to compute", id, s.left());
  ++s.known;
  CHECK(finished || s.leaving || s.known < s.prompt + s.max_tokens,
        "sequence {} goes on after {} output tokens", id, s.max_tokens);
  if (finished) s.leaving = true;
}

void SequenceBook::on_batch_done(const BatchPlan& plan) {
  for (const BatchPiece& piece : plan.pieces) {
    SequenceState& s = sequences_.at(piece.sequence);
    --s.running;
    if (s.last_stage == plan.stage) s.last_stage = -1;
    if (s.leaving) {
      if (s.running == 0) leave(s);
    } else if (piece.sample) {
      CHECK(s.left() == 1, "sequence {} got no token", s.id);
      group(plan.group).singles.push_back(&s);
    }
  }
}

void SequenceBook::on_cancel(uint64_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  found->second.leaving = true;
  if (found->second.running == 0) {
    leave(found->second);
  } else {
    drop_part(found->second);
  }
}

void SequenceBook::leave(SequenceState& s) {
  if (s.group < 0) {
    queue_.erase(&s);
  } else {
    Group& home = group(s.group);
    home.kv.release(s.blocks);
    remove(home.singles, &s);
    remove(home.parts, &s);
    --home.residents;
  }
  sequences_.erase(s.id);
}

std::vector<uint64_t> SequenceBook::on_group_lost(int g) {
  std::vector<uint64_t> lost;
  std::vector<SequenceState*> residents;
  for (auto& [id, s] : sequences_) {
    if (s.group == g) residents.push_back(&s);
  }
  for (SequenceState* s : residents) {
    if (!s->leaving) lost.push_back(s->id);
    leave(*s);
  }
  group(g).lost = true;
  std::sort(lost.begin(), lost.end());
  return lost;
}

double SequenceBook::kv_usage() const {
  int64_t total = 0;
  int64_t free = 0;
  for (const Group& group : groups_) {
    total += group.kv.total_blocks();
    free += group.kv.free_blocks();
  }
  return total == 0 ? 0 : 1.0 - static_cast<double>(free) / static_cast<double>(total);
}

void SequenceBook::check() const {
  queue_.check();
  size_t waiting = 0;
  for (const auto& [id, s] : sequences_) {
    waiting += s.group < 0 ? 1 : 0;
    CHECK(s.id == id && s.computed <= s.known && s.known <= s.prompt + s.max_tokens,
          "sequence {}: {} of {} computed", id, s.computed, s.known);
    CHECK(s.running > 0 || !s.leaving, "sequence {} stays without a batch", id);
  }
  CHECK(waiting == queue_.size(), "{} wait, {} in the queue", waiting, queue_.size());
  for (int g = 0; g < limits_.groups; ++g) check_group(g);
}

// Every block has one owner; every resident runs or can go on.
void SequenceBook::check_group(int g) const {
  const Group& group = this->group(g);
  group.kv.check();
  std::vector<uint8_t> owned(sz(group.kv.total_blocks()), 0);
  int blocks = 0;
  int residents = 0;
  for (const auto& [id, s] : sequences_) {
    if (s.group != g) continue;
    ++residents;
    CHECK(static_cast<int64_t>(s.blocks.size()) == KvBlocks::blocks_for(s.prompt + s.max_tokens));
    for (const int32_t block : s.blocks) {
      CHECK(++owned[sz(block)] == 1, "block {} of g{} has two owners", block, g);
      ++blocks;
    }
    const bool single = std::count(group.singles.begin(), group.singles.end(), &s) == 1;
    const bool part = std::count(group.parts.begin(), group.parts.end(), &s) == 1;
    CHECK(!(single && part) && (limits_.chain || !single || s.running == 0) &&
              (s.running > 0 || single || part),
          "sequence {}", id);
    CHECK(!part || s.left() > 0, "sequence {}", id);
  }
  CHECK(residents == group.residents, "g{}: {} live there, {} counted", g, residents,
        group.residents);
  CHECK(group.kv.free_blocks() + blocks == group.kv.total_blocks(), "g{} lost blocks", g);
}

}  // namespace asap
