#include "asap/policy/batcher.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

namespace {

// Waiting sequences looked at behind the first one for a batch; bounds the work of form().
constexpr int kLookahead = 64;
// A prompt that is cut gets at least this many tokens of a batch (or half of a smaller S).
constexpr int kSmallestCut = 64;
// Parts of a prompt that is alone: one's experts work while the other's attention does. More parts
// only add what a batch costs.
constexpr int kLoneParts = 2;
// Largest weight of a sequence's cost in the queue's order; keeps keys far from overflow.
constexpr double kLargestPenaltyNs = 1e17;

size_t sz(int n) {
  return static_cast<size_t>(n);
}

int left(const SequenceState& s) {
  return s.known - s.computed;
}

void remove(std::vector<SequenceState*>& from, const SequenceState* s) {
  from.erase(std::remove(from.begin(), from.end(), s), from.end());
}

}  // namespace

Batcher::Batcher(const SchedulerLimits& limits)
    : limits_(limits),
      smallest_cut_(std::min(kSmallestCut, (limits.max_batch_tokens + 1) / 2)),
      queue_(limits.max_queued) {
  CHECK(limits.groups > 0 && limits.max_batch_tokens > 0 && limits.max_batch_seqs > 0);
  CHECK(limits.kv_blocks >= 0 && limits.max_queued >= 0 && limits.kappa_ns >= 0);
  for (int g = 0; g < limits.groups; ++g) {
    groups_.emplace_back(limits.kv_blocks);
    groups_.back().singles.reserve(sz(limits.kv_blocks));  // a resident owns at least one block
    groups_.back().parts.reserve(sz(limits.kv_blocks));
  }
  sequences_.reserve(sz(limits.max_queued) + sz(limits.groups) * sz(limits.max_batch_seqs));
}

Status Batcher::admit(uint64_t id, int prompt, int max_tokens, Instant now) {
  CHECK(prompt > 0 && max_tokens > 0 && !sequences_.contains(id), "sequence {}: {} + {} tokens", id,
        prompt, max_tokens);
  const int64_t need = int64_t{prompt} + max_tokens;
  if (KvBlocks::blocks_for(need) > limits_.kv_blocks) {
    return fail(Code::invalid,
                "{} prompt tokens and {} output tokens need more than the group's KV cache of {} "
                "tokens; raise --kv-cache-tokens or ask for less",
                prompt, max_tokens, int64_t{limits_.kv_blocks} * kKvBlockTokens);
  }
  if (queue_.size() >= sz(limits_.max_queued)) {
    return fail(Code::overloaded,
                "{} requests are waiting, the limit (--max-num-queued-reqs); try again later",
                queue_.size());
  }
  if (!queue_.empty() && queue_.tokens() + prompt > limits_.max_queued_tokens) {
    return fail(Code::overloaded,
                "{} prompt tokens are waiting and {} more exceed the limit of {}; try again later",
                queue_.tokens(), prompt, limits_.max_queued_tokens);
  }
  SequenceState& s = sequences_[id];
  s.id = id;
  s.arrival = now;
  const double penalty = limits_.kappa_ns * limits_.cost.piece(prompt, 0);
  s.key = now.ns + static_cast<int64_t>(std::min(penalty, kLargestPenaltyNs));
  s.prompt = prompt;
  s.max_tokens = max_tokens;
  s.known = prompt;
  queue_.insert(&s);
  return {};
}

bool Batcher::has_ready(int g) const {
  const Group& group = groups_[sz(g)];
  return !group.singles.empty() || std::any_of(group.parts.begin(), group.parts.end(),
                                               [&](const SequenceState* s) { return goes_on(*s); });
}

// The next part of a cut prompt can run now.
bool Batcher::goes_on(const SequenceState& s) const {
  return s.running == 0 || limits_.chain;
}

double Batcher::backlog(int g) const {
  double cost = 0;
  for (const SequenceState* s : groups_[sz(g)].parts)
    cost += limits_.cost.piece(left(*s), s->computed);
  return cost;
}

bool Batcher::exclusive(const SequenceState& s) const {
  return limits_.pairing == Pairing::paper && limits_.exclusive_tokens > 0 &&
         s.prompt > limits_.exclusive_tokens;
}

int Batcher::room_tokens(const Draft& draft) const {
  const int most = draft.prompts == 0
                       ? limits_.max_batch_tokens
                       : std::min(limits_.max_batch_tokens, limits_.max_shared_tokens);
  return most - draft.plan.tokens;
}

// All that is left and fits; of a prompt that has its group for itself, the share of one stage.
int Batcher::part_tokens(const Draft& draft, const SequenceState& s) const {
  const int most = std::min(left(s), room_tokens(draft));
  const bool lone = queue_.empty() && draft.plan.pieces.empty() && draft.room.own_stages > 1;
  if (!lone || limits_.split_lone_tokens == 0 || s.prompt < limits_.split_lone_tokens) return most;
  const double share = limits_.cost.piece(s.prompt, 0) / kLoneParts;
  int low = 1;
  int high = most;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (limits_.cost.piece(middle, s.computed) < share) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const int least = limits_.split_lone_tokens / 2;
  const int part = std::max((low + kKvBlockTokens - 1) / kKvBlockTokens * kKvBlockTokens, least);
  return left(s) - part < least / 2 ? most : std::min(part, most);
}

bool Batcher::full(const Draft& draft) const {
  return room_tokens(draft) <= 0 || draft.plan.exclusive ||
         static_cast<int>(draft.plan.pieces.size()) >= limits_.max_batch_seqs;
}

void Batcher::form(BatchPlan& plan, const Room& room, Instant now) {
  CHECK(plan.pieces.empty() && plan.tokens == 0 && !group_of(plan).lost, "g{} stage {}", plan.group,
        plan.stage);
  const int64_t share = (queue_.tokens() + room.free_stages - 1) / room.free_stages;
  Draft draft{plan, room, now, std::max<int64_t>(limits_.knee_tokens, share)};
  add_residents(draft);
  add_waiting(draft);
}

// Single tokens first: they cost little and somebody reads along. But they leave a place to a part.
void Batcher::add_residents(Draft& draft) {
  Group& group = group_of(draft.plan);
  const bool part_ready =
      std::any_of(group.parts.begin(), group.parts.end(), [&](const SequenceState* s) {
        return goes_on(*s) && (!exclusive(*s) || draft.room.whole_group);
      });
  int places = std::min(limits_.max_batch_seqs, limits_.max_batch_tokens);
  if (part_ready) {
    places = std::min(limits_.max_batch_seqs - 1, limits_.max_batch_tokens - smallest_cut_);
  }
  add_singles(draft, group, places);
  while (!full(draft)) {
    const int prompts = draft.prompts;
    add_part(draft, group);
    if (draft.prompts == prompts) return;
  }
}

void Batcher::add_singles(Draft& draft, Group& group, int places) {
  const size_t count = std::min(group.singles.size(), sz(places));
  for (size_t i = 0; i < count; ++i) add_piece(draft, *group.singles[i]);
  group.singles.erase(group.singles.begin(),
                      group.singles.begin() + static_cast<std::ptrdiff_t>(count));
}

void Batcher::add_part(Draft& draft, Group& group) {
  for (SequenceState* s : group.parts) {
    if (!goes_on(*s) || s->last_stage == draft.plan.stage) continue;
    if (exclusive(*s) && (draft.prompts > 0 || !draft.room.whole_group)) continue;
    add_piece(draft, *s);
    if (left(*s) == 0) remove(group.parts, s);
    return;
  }
}

// The sequence would carry this batch beyond its share, and others would take it at once: a group
// that has nothing to do, or a free stage, once both have the knee.
bool Batcher::leave_to_others(const Draft& draft, const SequenceState& s) const {
  if (!limits_.share_backlog) return false;
  if (draft.entered == 0 || draft.plan.tokens + s.prompt <= draft.target) return false;
  return draft.room.other_idle ||
         (draft.room.free_stages > 1 && draft.plan.tokens >= limits_.knee_tokens &&
          queue_.tokens() >= limits_.knee_tokens);
}

// In tokens; KV blocks are another matter.
bool Batcher::fits(const Draft& draft, const SequenceState& s) const {
  if (exclusive(s) && (draft.prompts > 0 || !draft.room.whole_group)) return false;
  if (s.prompt <= room_tokens(draft)) return true;
  const bool cut = s.prompt > limits_.max_batch_tokens || draft.entered == 0;
  return cut && !draft.passing && room_tokens(draft) >= smallest_cut_;
}

// `s` finds no room in the group. Those behind it may use what is left, unless it has been the
// first of the queue for too long: then one group is held until it has room. That others filled
// this batch before it is no reason to complain.
bool Batcher::may_pass(const Draft& draft, SequenceState& s) {
  const bool no_blocks = fits(draft, s);
  if (!draft.passing && (no_blocks || draft.entered == 0)) {
    if (s.blocked_since == Instant::never()) s.blocked_since = draft.now;
    if (held_group_ < 0 && draft.now - s.blocked_since >= limits_.pass_bound) {
      held_group_ = roomiest_group();
      held_for_ = s.id;
    }
  }
  return held_group_ != draft.plan.group || held_for_ != s.id;
}

void Batcher::add_waiting(Draft& draft) {
  Group& group = group_of(draft.plan);
  size_t place = 0;
  for (int looked_at = 0; looked_at < kLookahead && place < queue_.size(); ++looked_at) {
    if (full(draft)) return;
    SequenceState& s = queue_.at(place);
    const bool wanted = !leave_to_others(draft, s);
    if (wanted && fits(draft, s) && group.kv.reserve(int64_t{s.prompt} + s.max_tokens, &s.blocks)) {
      queue_.erase(&s);
      s.group = draft.plan.group;
      if (held_for_ == s.id) held_group_ = -1;
      ++draft.entered;
      add_piece(draft, s);
      if (left(s) > 0) {
        group.parts.insert(std::upper_bound(group.parts.begin(), group.parts.end(), &s,
                                            [](const SequenceState* a, const SequenceState* b) {
                                              return a->key < b->key;
                                            }),
                           &s);
      }
      continue;
    }
    if (wanted && !may_pass(draft, s)) return;
    draft.passing = true;
    ++place;
  }
}

void Batcher::add_piece(Draft& draft, SequenceState& s) {
  const int tokens = part_tokens(draft, s);
  CHECK(tokens > 0 && goes_on(s) && !s.leaving, "sequence {} gets {} tokens", s.id, tokens);
  const bool prompt = s.computed < s.prompt;
  draft.plan.pieces.push_back({s.id, s.computed, tokens, tokens == left(s), s.last_stage});
  draft.plan.tokens += tokens;
  draft.plan.exclusive = prompt && exclusive(s);
  draft.prompts += prompt ? 1 : 0;
  s.computed += tokens;
  ++s.running;
  s.last_stage = draft.plan.stage;
}

int Batcher::roomiest_group() const {
  int best = -1;
  for (int g = 0; g < limits_.groups; ++g) {
    if (groups_[sz(g)].lost) continue;
    if (best < 0 || kv(g).free_blocks() > kv(best).free_blocks()) best = g;
  }
  return best;
}

void Batcher::on_sampled(uint64_t id, bool finished) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  SequenceState& s = found->second;
  CHECK(s.running > 0 && left(s) == 0, "sequence {} has {} tokens to compute", id, left(s));
  ++s.known;
  CHECK(finished || s.leaving || s.known < s.prompt + s.max_tokens,
        "sequence {} goes on after {} output tokens", id, s.max_tokens);
  if (finished) s.leaving = true;
}

void Batcher::on_batch_done(const BatchPlan& plan) {
  Group& group = group_of(plan);
  for (const BatchPiece& piece : plan.pieces) {
    SequenceState& s = sequences_.at(piece.sequence);
    --s.running;
    if (s.last_stage == plan.stage) s.last_stage = -1;
    if (s.leaving) {
      if (s.running == 0) leave(s);
    } else if (piece.sample) {
      CHECK(left(s) == 1, "sequence {} got no token", s.id);
      group.singles.push_back(&s);
    }
  }
}

void Batcher::on_cancel(uint64_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  found->second.leaving = true;
  if (found->second.running == 0) {
    leave(found->second);
  } else {
    remove(groups_[sz(found->second.group)].parts, &found->second);
  }
}

void Batcher::leave(SequenceState& s) {
  if (held_for_ == s.id) held_group_ = -1;
  if (s.group < 0) {
    queue_.erase(&s);
  } else {
    Group& group = groups_[sz(s.group)];
    group.kv.release(s.blocks);
    remove(group.singles, &s);
    remove(group.parts, &s);
  }
  sequences_.erase(s.id);
}

std::vector<uint64_t> Batcher::on_group_lost(int g) {
  std::vector<uint64_t> lost;
  std::vector<SequenceState*> residents;
  for (auto& [id, s] : sequences_) {
    if (s.group == g) residents.push_back(&s);
  }
  for (SequenceState* s : residents) {
    if (!s->leaving) lost.push_back(s->id);
    leave(*s);
  }
  groups_[sz(g)].lost = true;
  if (held_group_ == g) held_group_ = -1;
  std::sort(lost.begin(), lost.end());
  return lost;
}

void Batcher::on_group_back(int g) {
  groups_[sz(g)].lost = false;
}

void Batcher::check() const {
  queue_.check();
  size_t waiting = 0;
  for (const auto& [id, s] : sequences_) {
    waiting += s.group < 0 ? 1 : 0;
    CHECK(s.id == id && s.computed <= s.known && s.known <= s.prompt + s.max_tokens,
          "sequence {}: {} of {} computed", id, s.computed, s.known);
    CHECK(s.running > 0 || !s.leaving, "sequence {} stays without a batch", id);
  }
  CHECK(waiting == queue_.size(), "{} wait, {} in the queue", waiting, queue_.size());
  if (held_group_ >= 0) {
    CHECK(sequences_.contains(held_for_) && sequences_.at(held_for_).group < 0,
          "g{} is held for {}", held_group_, held_for_);
  }
  for (size_t g = 0; g < groups_.size(); ++g) check_group(g);
}

// Every block has one owner; every resident runs or can go on.
void Batcher::check_group(size_t g) const {
  const Group& group = groups_[g];
  group.kv.check();
  std::vector<uint8_t> owned(sz(group.kv.total_blocks()), 0);
  int blocks = 0;
  for (const auto& [id, s] : sequences_) {
    if (s.group != static_cast<int>(g)) continue;
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
    CHECK(!part || left(s) > 0, "sequence {}", id);
  }
  CHECK(group.kv.free_blocks() + blocks == group.kv.total_blocks(), "g{} lost blocks", g);
}

}  // namespace asap
