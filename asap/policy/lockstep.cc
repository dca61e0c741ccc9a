#include "asap/policy/lockstep.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

namespace {

// Waiting sequences without room that a step looks past; bounds the work of a step.
constexpr int kLookahead = 64;

size_t sz(int n) {
  return static_cast<size_t>(n);
}

}  // namespace

LockstepPolicy::LockstepPolicy(const SchedulerLimits& limits)
    : limits_(limits),
      seats_(std::min(limits.max_batch_seqs, limits.max_shared_tokens)),
      smallest_cut_(std::min(kSmallestCut, (limits.max_shared_tokens + 1) / 2)),
      book_(limits),
      plans_(sz(limits.groups)),
      phases_(sz(limits.groups), Phase::idle),
      residents_(sz(limits.groups)),
      drafts_(sz(limits.groups)),
      balanced_drafts_(sz(limits.groups)) {
  CHECK(limits.stages == 1 && limits.max_shared_tokens > 0 &&
            limits.max_shared_tokens <= limits.max_batch_tokens,
        "{} stages, {} of {} tokens shared", limits.stages, limits.max_shared_tokens,
        limits.max_batch_tokens);
  for (int g = 0; g < limits.groups; ++g) {
    plans_[sz(g)].group = g;
    plans_[sz(g)].pieces.reserve(sz(limits.max_batch_seqs));
  }
  chosen_.reserve(sz(limits.groups) * sz(seats_));
  balanced_.reserve(sz(limits.groups) * sz(seats_));
}

bool LockstepPolicy::worth_starting(Instant now) const {
  if (book_.resident() > 0) return true;
  const WaitQueue& queue = book_.queue();
  if (queue.empty()) return false;
  const int64_t groups = std::count_if(plans_.begin(), plans_.end(), [&](const BatchPlan& plan) {
    return !book_.group(plan.group).lost;
  });
  return now - queue.oldest() >= limits_.max_wait ||
         queue.tokens() >= groups * limits_.max_shared_tokens ||
         static_cast<int64_t>(queue.size()) >= groups * seats_;
}

const BatchPlan* LockstepPolicy::next(Instant now) {
  last_now_ = now;
  if (live_ == 0 && (!worth_starting(now) || !form_step(now))) return nullptr;
  const auto formed = std::find(phases_.begin(), phases_.end(), Phase::formed);
  if (formed == phases_.end()) return nullptr;
  *formed = Phase::running;
  return &plans_[static_cast<size_t>(formed - phases_.begin())];
}

Instant LockstepPolicy::wake_at() const {
  if (live_ > 0 || book_.queue().empty()) return Instant::never();
  const Instant patience = book_.queue().oldest() + limits_.max_wait;
  return patience > last_now_ ? patience : Instant::never();
}

// False, and nothing has changed, if no group has anything to do.
bool LockstepPolicy::form_step(Instant now) {
  for (BatchPlan& plan : plans_) residents_[sz(plan.group)] = add_residents(plan);
  choose(now);
  balance();
  for (const Choice& choice : chosen_) {
    BatchPlan& plan = plans_[sz(choice.group)];
    SequenceState& s = *choice.sequence;
    const int tokens = put(residents_[sz(choice.group)], s);
    CHECK(book_.enter(s, choice.group), "sequence {} finds no blocks in g{}", s.id, choice.group);
    book_.add_piece(plan, s, tokens);
    if (s.left() > 0) book_.keep_part(s);
  }
  if (std::all_of(plans_.begin(), plans_.end(),
                  [](const BatchPlan& plan) { return plan.pieces.empty(); })) {
    return false;
  }
  for (const BatchPlan& plan : plans_) {
    if (book_.group(plan.group).lost) continue;
    phases_[sz(plan.group)] = Phase::formed;
    ++live_;
  }
  return true;
}

// Everybody who lives in the group has a seat, so all singles run; cut prompts as far as they fit.
LockstepPolicy::Draft LockstepPolicy::add_residents(BatchPlan& plan) {
  SequenceBook::Group& group = book_.group(plan.group);
  Draft draft{
      .seats = seats_ - group.residents, .blocks = group.kv.free_blocks(), .lost = group.lost};
  for (SequenceState* s : group.singles) book_.add_piece(plan, *s, 1);
  draft.tokens = static_cast<int>(group.singles.size());
  group.singles.clear();
  for (SequenceState* s : group.parts) {
    const int tokens = std::min(s->left(), room(draft));
    if (tokens <= 0) break;
    book_.add_piece(plan, *s, tokens);
    draft.tokens += tokens;
    ++draft.prompts;
  }
  std::erase_if(group.parts, [](const SequenceState* s) { return s->left() == 0; });
  return draft;
}

// For prompts, in tokens.
int LockstepPolicy::room(const Draft& draft) const {
  const int most = draft.prompts == 0 ? limits_.max_batch_tokens : limits_.max_shared_tokens;
  return most - draft.tokens;
}

// Tokens of a waiting sequence that the batch would take; 0: it cannot enter there.
int LockstepPolicy::share(const Draft& draft, const SequenceState& s) const {
  const int64_t need = KvBlocks::blocks_for(int64_t{s.prompt} + s.max_tokens);
  if (draft.lost || draft.seats <= 0 || need > draft.blocks) return 0;
  const int most = room(draft);
  if (s.prompt <= most) return s.prompt;
  const bool cut = limits_.cut_to_share || draft.prompts == 0;
  return cut && most >= smallest_cut_ ? most : 0;
}

int LockstepPolicy::put(Draft& draft, const SequenceState& s) const {
  const int tokens = share(draft, s);
  draft.tokens += tokens;
  draft.blocks -= KvBlocks::blocks_for(int64_t{s.prompt} + s.max_tokens);
  --draft.seats;
  ++draft.prompts;
  return tokens;
}

// The group with the fewest tokens that can take the sequence; -1: none.
int LockstepPolicy::lightest(const std::vector<Draft>& drafts, const SequenceState& s) const {
  int best = -1;
  for (int g = 0; g < limits_.groups; ++g) {
    if (best >= 0 && drafts[sz(g)].tokens >= drafts[sz(best)].tokens) continue;
    if (share(drafts[sz(g)], s) > 0) best = g;
  }
  return best;
}

// In the queue's order. Those behind one that finds no room may use what is left, unless residents
// have kept the first of the queue out for too long.
void LockstepPolicy::choose(Instant now) {
  const WaitQueue& queue = book_.queue();
  chosen_.clear();
  drafts_ = residents_;
  int passed = 0;
  for (size_t place = 0; place < queue.size() && passed < kLookahead; ++place) {
    SequenceState& s = queue.at(place);
    const int group = lightest(drafts_, s);
    if (group >= 0) {
      put(drafts_[sz(group)], s);
      chosen_.push_back({&s, group});
      continue;
    }
    ++passed;
    if (place > 0) continue;
    if (s.blocked_since == Instant::never()) s.blocked_since = now;
    if (now - s.blocked_since >= limits_.pass_bound) return;
  }
}

// The same sequences, longest first to the lightest group, if all of them fit that way and the
// step computes no fewer tokens with no larger a batch.
void LockstepPolicy::balance() {
  balanced_ = chosen_;
  balanced_drafts_ = residents_;
  std::sort(balanced_.begin(), balanced_.end(), [](const Choice& a, const Choice& b) {
    return a.sequence->prompt != b.sequence->prompt ? a.sequence->prompt > b.sequence->prompt
                                                    : a.sequence->id < b.sequence->id;
  });
  for (Choice& choice : balanced_) {
    choice.group = lightest(balanced_drafts_, *choice.sequence);
    if (choice.group < 0) return;
    put(balanced_drafts_[sz(choice.group)], *choice.sequence);
  }
  const auto sums = [](const std::vector<Draft>& drafts) {
    int64_t total = 0;
    int largest = 0;
    for (const Draft& draft : drafts) {
      total += draft.tokens;
      largest = std::max(largest, draft.tokens);
    }
    return std::pair(total, largest);
  };
  const auto [total, largest] = sums(drafts_);
  const auto [balanced_total, balanced_largest] = sums(balanced_drafts_);
  if (balanced_total < total || balanced_largest > largest) return;
  chosen_.swap(balanced_);
}

void LockstepPolicy::on_batch_done(int g, int stage) {
  CHECK(stage == 0 && phases_[sz(g)] == Phase::running, "g{} stage {} runs no batch", g, stage);
  phases_[sz(g)] = Phase::idle;
  --live_;
  book_.on_batch_done(plans_[sz(g)]);
  plans_[sz(g)].clear();
}

std::vector<uint64_t> LockstepPolicy::on_group_lost(int g) {
  live_ -= phases_[sz(g)] == Phase::idle ? 0 : 1;
  phases_[sz(g)] = Phase::idle;
  plans_[sz(g)].clear();
  return book_.on_group_lost(g);
}

void LockstepPolicy::check() const {
  book_.check();
  CHECK(live_ ==
        static_cast<int>(phases_.size()) - std::count(phases_.begin(), phases_.end(), Phase::idle));
  for (const BatchPlan& plan : plans_) {
    int tokens = 0;
    for (const BatchPiece& piece : plan.pieces) tokens += piece.tokens;
    CHECK(tokens == plan.tokens && tokens <= limits_.max_batch_tokens &&
              plan.pieces.size() <= sz(limits_.max_batch_seqs),
          "g{}: {} tokens in {} pieces", plan.group, plan.tokens, plan.pieces.size());
    CHECK(phases_[sz(plan.group)] != Phase::idle || plan.pieces.empty());
    CHECK(book_.group(plan.group).residents <= seats_, "g{} has {} residents, {} seats", plan.group,
          book_.group(plan.group).residents, seats_);
  }
}

}  // namespace asap
