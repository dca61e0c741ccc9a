#include "asap/policy/batcher.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

namespace {

// Waiting sequences looked at behind the first one for a batch; bounds the work of form().
constexpr int kLookahead = 64;
// Parts of a prompt that is alone: one's experts work while the other's attention does. More parts
// only add what a batch costs.
constexpr int kLoneParts = 2;

size_t sz(int n) {
  return static_cast<size_t>(n);
}

}  // namespace

Batcher::Batcher(const SchedulerLimits& limits)
    : limits_(limits),
      smallest_cut_(std::min(kSmallestCut, (limits.max_batch_tokens + 1) / 2)),
      book_(limits) {}

bool Batcher::has_ready(int g) const {
  const Group& group = book_.group(g);
  return !group.singles.empty() || std::any_of(group.parts.begin(), group.parts.end(),
                                               [&](const SequenceState* s) { return goes_on(*s); });
}

// The next part of a cut prompt can run now.
bool Batcher::goes_on(const SequenceState& s) const {
  return s.running == 0 || limits_.chain;
}

double Batcher::backlog(int g) const {
  double cost = 0;
  for (const SequenceState* s : book_.group(g).parts)
    cost += limits_.cost.piece(s->left(), s->computed);
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
  const int most = std::min(s.left(), room_tokens(draft));
  const bool lone = queue().empty() && draft.plan.pieces.empty() && draft.room.own_stages > 1;
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
  return s.left() - part < least / 2 ? most : std::min(part, most);
}

bool Batcher::full(const Draft& draft) const {
  return room_tokens(draft) <= 0 || draft.plan.exclusive ||
         static_cast<int>(draft.plan.pieces.size()) >= limits_.max_batch_seqs;
}

void Batcher::form(BatchPlan& plan, const Room& room, Instant now) {
  CHECK(plan.pieces.empty() && plan.tokens == 0 && !group_of(plan).lost, "g{} stage {}", plan.group,
        plan.stage);
  const int64_t share = (queue().tokens() + room.free_stages - 1) / room.free_stages;
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
    if (s->left() == 0) book_.drop_part(*s);
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
          queue().tokens() >= limits_.knee_tokens);
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
  size_t place = 0;
  for (int looked_at = 0; looked_at < kLookahead && place < queue().size(); ++looked_at) {
    if (full(draft)) return;
    SequenceState& s = queue().at(place);
    const bool wanted = !leave_to_others(draft, s);
    if (wanted && fits(draft, s) && book_.enter(s, draft.plan.group)) {
      if (held_for_ == s.id) held_group_ = -1;
      ++draft.entered;
      add_piece(draft, s);
      if (s.left() > 0) book_.keep_part(s);
      continue;
    }
    if (wanted && !may_pass(draft, s)) return;
    draft.passing = true;
    ++place;
  }
}

void Batcher::add_piece(Draft& draft, SequenceState& s) {
  const bool prompt = s.computed < s.prompt;
  draft.plan.exclusive = prompt && exclusive(s);
  const int tokens = part_tokens(draft, s);
  draft.prompts += prompt ? 1 : 0;
  book_.add_piece(draft.plan, s, tokens);
}

int Batcher::roomiest_group() const {
  int best = -1;
  for (int g = 0; g < limits_.groups; ++g) {
    if (book_.group(g).lost) continue;
    if (best < 0 || book_.group(g).kv.free_blocks() > book_.group(best).kv.free_blocks()) best = g;
  }
  return best;
}

void Batcher::on_cancel(uint64_t id) {
  if (held_for_ == id) held_group_ = -1;
  book_.on_cancel(id);
}

std::vector<uint64_t> Batcher::on_group_lost(int g) {
  if (held_group_ == g) held_group_ = -1;
  return book_.on_group_lost(g);
}

void Batcher::check() const {
  book_.check();
  if (held_group_ >= 0) {
    CHECK(book_.waits(held_for_), "g{} is held for {}", held_group_, held_for_);
  }
}

}  // namespace asap
