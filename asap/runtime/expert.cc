#include "asap/runtime/expert.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

namespace {

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

TraceEvent event_of(const ItemId& id, TraceOp op) {
  TraceEvent event;
  event.batch = id.trace_id;
  event.op = op;
  event.layer = static_cast<int16_t>(id.layer);
  event.group = static_cast<int16_t>(id.group);
  event.stage = static_cast<int16_t>(id.stage);
  return event;
}

}  // namespace

// ---------------------------------------------------------------- receive

class ExpertRank::Receive final : public Agent {
 public:
  Receive(ExpertRank& rank, std::unique_ptr<Port> port, Tracer tracer)
      : rank_(rank),
        port_(std::move(port)),
        tracer_(tracer),
        front_layout_(rank.geometry_),
        local_(part_of(rank.geometry_.experts, rank.geometry_.expert_ranks, rank.rank_).size()),
        accepted_(rank.items_.size()),
        epochs_(sz(rank.geometry_.groups), 1),
        fences_(sz(rank.geometry_.groups), 0),
        views_(sz(rank.geometry_.ranks)) {
    const auto answers = rank.answered_before_.begin();
    for (size_t slot = 0; slot < accepted_.size(); ++slot) {
      const auto first = answers + static_cast<std::ptrdiff_t>(slot) * rank.geometry_.ranks;
      accepted_[slot] = *std::min_element(first, first + rank.geometry_.ranks);
    }
  }

  std::string name() const override { return fmt::format("moe e{} receive", rank_.rank_); }

  // Looks at every (group, stage) once, from where it stopped last time.
  int do_work(Instant) override {
    const int slots = static_cast<int>(accepted_.size());
    int done = 0;
    for (int group = 0; group < rank_.geometry_.groups; ++group) done += look_at_fence(group);
    for (int i = 0; i < slots; ++i) {
      cursor_ = (cursor_ + 1) % slots;
      done += poll(cursor_);
    }
    return done;
  }

 private:
  int poll(int slot) {
    const Geometry& g = rank_.geometry_;
    ItemId id{.group = slot / g.stages, .stage = slot % g.stages};
    const uint64_t flag = dispatch_announced(port_->window(), g, rank_.layout_, id.group, id.stage);
    if (flag <= accepted_[sz(slot)] || flag_epoch(flag) != epochs_[sz(id.group)]) return 0;
    if (closing(id.group)) return 0;
    // The last answer is out, but the sender has not let go of the item yet: it rings when it has.
    if (busy(slot)) {
      rank_.stalled_.store(1);
      if (rank_.busy_[sz(slot)].load() != 0) return 0;
    }
    id.epoch = flag_epoch(flag);
    id.seq = flag_seq(flag);
    CHECK(dispatch_recv(port_->window(), g, rank_.layout_, local_, id, views_));
    const Instant begin = tracer_.now();
    accepted_[sz(slot)] = flag;
    rank_.busy_[sz(slot)].store(1, std::memory_order_relaxed);
    id.layer = views_[0].header->layer;
    id.trace_id = views_[0].header->trace_id;
    ExpertItem& item = rank_.items_[sz(slot)];
    item.id = id;
    rank_.math_->index(views_, item);
    rank_.hand(rank_.ready_, &item);
    rank_.compute_bell_.ring();
    tracer_.add(event_of(id, TraceOp::receive), begin);
    return 1;
  }

  bool busy(int slot) const { return rank_.busy_[sz(slot)].load(std::memory_order_acquire) != 0; }
  // The group has a later epoch, which has not been acknowledged yet.
  bool closing(int group) const { return flag_epoch(fence_flag(group)) > epochs_[sz(group)]; }
  uint64_t fence_flag(int group) const {
    return load_flag(port_->window() + rank_.layout_.fence.flag(group));
  }

  // Acknowledges a fence once no item of the group is under way. The answer repeats the flag, so a
  // fence that is sent again is answered again.
  int look_at_fence(int group) {
    const uint64_t flag = fence_flag(group);
    if (flag == fences_[sz(group)] || flag_epoch(flag) < epochs_[sz(group)]) return 0;
    const int stages = rank_.geometry_.stages;
    for (int slot = group * stages; slot < (group + 1) * stages; ++slot) {
      if (flag_epoch(flag) > epochs_[sz(group)] && busy(slot)) return 0;
    }
    fences_[sz(group)] = flag;
    epochs_[sz(group)] = flag_epoch(flag);
    const int slot = front_layout_.fenced_slot(group, rank_.rank_);
    port_->put_flag(kFrontDevice, front_layout_.fenced.flag(slot), flag);
    return 1;
  }

  ExpertRank& rank_;
  std::unique_ptr<Port> port_;
  Tracer tracer_;
  const FrontLayout front_layout_;
  const int local_;                 // experts of this rank
  std::vector<uint64_t> accepted_;  // [D·R] flag of the newest item accepted
  std::vector<uint64_t> epochs_;    // [D] from which items are accepted
  std::vector<uint64_t> fences_;    // [D] last fence that was answered
  std::vector<DispatchView> views_;
  int cursor_ = 0;
};

// ---------------------------------------------------------------- compute

class ExpertRank::Compute final : public Agent {
 public:
  Compute(ExpertRank& rank, const ExpertQueueLimits& limits, Tracer tracer)
      : rank_(rank), tracer_(tracer), queue_(limits) {}

  std::string name() const override { return fmt::format("moe e{} compute", rank_.rank_); }

  void count_load(ExpertLoadCounters* counters) { load_ = counters; }

  // One piece per turn.
  int do_work(Instant now) override {
    if (load_ != nullptr) count_idle(now);
    while (const ExpertItem* item = take(rank_.ready_, now)) {
      queue_.on_ready(item->id.group, item->id.stage, item->id.layer, now);
    }
    if (piece_ == nullptr) piece_ = take(rank_.free_, now);
    if (piece_ == nullptr || !fill(now)) return 0;
    idle_since_ = Instant::never();
    const Instant begin = tracer_.now();
    rank_.math_->experts(*piece_);
    for (const ExpertSegment& s : piece_->segments) {
      tracer_.add(event_of(s.item->id, TraceOp::experts), begin);
    }
    if (load_ != nullptr) count_items();
    rank_.hand(rank_.computed_, piece_);
    piece_ = nullptr;
    rank_.send_bell_.ring();
    return 1;
  }

 private:
  // Until something is found, the time since the last look was idle.
  void count_idle(Instant now) {
    const auto relaxed = std::memory_order_relaxed;
    if (idle_since_ < now) {
      load_->idle_ns.store(load_->idle_ns.load(relaxed) + (now - idle_since_).ns, relaxed);
    }
    idle_since_ = now;
  }

  void count_items() {
    const auto relaxed = std::memory_order_relaxed;
    int64_t done = load_->items.load(relaxed);
    for (const ExpertSegment& s : piece_->segments) done += s.last() ? 1 : 0;
    load_->items.store(done, relaxed);
    load_->ready.store(static_cast<int32_t>(queue_.ready()), relaxed);
  }

  // The rest of the item under way, else the next one; with items of equal layer behind it where
  // the policy merges. False: nothing is ready.
  bool fill(Instant now) {
    ExpertPiece& p = *piece_;
    p.segments.clear();
    p.tokens = 0;
    const int room = rank_.math_->piece_tokens();
    do {
      if (item_ == nullptr) {
        const auto next = p.segments.empty() ? queue_.next(now) : queue_.next_of(p.layer);
        if (!next) break;
        item_ = &rank_.items_[sz(next->group * rank_.geometry_.stages + next->stage)];
        first_ = 0;
      }
      p.layer = item_->id.layer;
      const int count = std::min(item_->tokens - first_, room - p.tokens);
      p.segments.push_back({item_, first_, count, p.tokens});
      p.tokens += count;
      first_ += count;
      if (first_ == item_->tokens) item_ = nullptr;
    } while (item_ == nullptr && p.tokens < room);
    return !p.segments.empty();
  }

  ExpertRank& rank_;
  Tracer tracer_;
  ExpertQueue queue_;
  ExpertPiece* piece_ = nullptr;  // buffer taken, not yet filled
  ExpertItem* item_ = nullptr;    // item under way
  int first_ = 0;                 // its first token not yet computed
  ExpertLoadCounters* load_ = nullptr;
  Instant idle_since_ = Instant::never();
};

// ---------------------------------------------------------------- send

class ExpertRank::Send final : public Agent {
 public:
  Send(ExpertRank& rank, std::unique_ptr<Port> port, Tracer tracer)
      : rank_(rank), port_(std::move(port)), tracer_(tracer) {}

  std::string name() const override { return fmt::format("moe e{} send", rank_.rank_); }

  int do_work(Instant now) override {
    ExpertPiece* piece = take(rank_.computed_, now);
    if (piece == nullptr) return 0;
    const Instant begin = tracer_.now();
    rank_.math_->narrow(*piece);
    for (const ExpertSegment& segment : piece->segments) {
      const ItemId id = segment.item->id;
      const bool last = segment.last();
      for (int t = 0; t < rank_.geometry_.ranks; ++t) answer(*piece, segment, t);
      tracer_.add(event_of(id, TraceOp::combine_send), begin);
      if (last) {  // the item may be reused from here
        rank_.busy_[sz(id.group * rank_.geometry_.stages + id.stage)].store(0);
        if (rank_.stalled_.load() != 0) {
          rank_.stalled_.store(0);
          rank_.receive_bell_.ring();
        }
      }
    }
    rank_.hand(rank_.free_, piece);
    rank_.compute_bell_.ring();
    return 1;
  }

 private:
  void answer(const ExpertPiece& piece, const ExpertSegment& s, int t) {
    const Geometry& g = rank_.geometry_;
    const ExpertItem& item = *s.item;
    const int slot = item.id.group * g.stages + item.id.stage;
    if (rank_.answered_before_[sz(slot * g.ranks + t)] >= make_flag(item.id.epoch, item.id.seq)) {
      return;  // by a predecessor, before it died
    }
    const int rank_begin = item.rank_begin[sz(t)];
    const int rank_end = item.rank_begin[sz(t) + 1];
    const int begin = std::max(s.first, rank_begin);
    const int end = std::min(s.first + s.count, rank_end);
    const std::byte* rows = rank_.math_->rows(piece, s.at + begin - s.first);
    if (begin < end && rows != nullptr) {
      combine_put_rows(*port_, g, rank_.attention_layout_, item.id, t, rank_.rank_,
                       begin - rank_begin, end - begin, rows);
    }
    if (s.last()) {
      combine_finish(*port_, g, rank_.attention_layout_, item.id, t, rank_.rank_,
                     rank_end - rank_begin);
    }
  }

  ExpertRank& rank_;
  std::unique_ptr<Port> port_;
  Tracer tracer_;
};

// ---------------------------------------------------------------- rank

ExpertRank::ExpertRank(const Geometry& geometry, int rank, std::unique_ptr<ExpertCompute> compute,
                       Link& link, const ExpertQueueLimits& limits, const Tracer tracers[3],
                       Instant (*visible)())
    : geometry_(geometry),
      rank_(rank),
      layout_(geometry),
      attention_layout_(geometry),
      math_(std::move(compute)),
      visible_(visible),
      items_(sz(geometry.groups * geometry.stages)),
      busy_(items_.size()),
      receive_bell_(link.doorbell(expert_device(geometry, rank))),
      pieces_(2),
      ready_(items_.size()),
      computed_(pieces_.size()),
      free_(pieces_.size()) {
  for (ExpertItem& item : items_) math_->reserve(item);
  for (ExpertPiece& piece : pieces_) {
    math_->reserve(piece);
    piece.segments.reserve(items_.size());
    free_.push({&piece, Instant{0}});
  }
  for (int group = 0; group < geometry.groups; ++group) {
    for (int stage = 0; stage < geometry.stages; ++stage) {
      for (int t = 0; t < geometry.ranks; ++t) {
        const auto peer = link.attach(attention_device(geometry, group, t));
        answered_before_.push_back(
            load_flag(peer->window() +
                      attention_layout_.combine.flag(attention_layout_.expert_slot(stage, rank))));
      }
    }
  }
  const int device = expert_device(geometry, rank);
  receive_ = std::make_unique<Receive>(*this, link.attach(device), tracers[0]);
  compute_ = std::make_unique<Compute>(*this, limits, tracers[1]);
  send_ = std::make_unique<Send>(*this, link.attach(device), tracers[2]);
}

ExpertRank::~ExpertRank() = default;

void ExpertRank::count_load(ExpertLoadCounters* counters) {
  compute_->count_load(counters);
}

Agent& ExpertRank::receive() {
  return *receive_;
}
Agent& ExpertRank::compute() {
  return *compute_;
}
Agent& ExpertRank::send() {
  return *send_;
}

}  // namespace asap
