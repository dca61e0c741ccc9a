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

std::shared_ptr<const ExpertWeights> load_expert_weights(const ModelSpec& spec,
                                                         const ModelWeights& views, int rank,
                                                         int ranks, Ops& ops,
                                                         const std::function<void(int)>& progress) {
  auto out = std::make_shared<ExpertWeights>();
  out->experts = part_of(spec.experts, ranks, rank);
  out->entries.resize(sz(spec.layers) * sz(out->experts.size()));
  auto entry = out->entries.begin();
  for (int layer = 0; layer < spec.layers; ++layer) {
    for (int expert = out->experts.begin; expert < out->experts.end; ++expert, ++entry) {
      if (spec.moe_layer[sz(layer)] == 0) continue;
      *entry = ops.pack_expert(views.layers[sz(layer)].experts[sz(expert)], spec.glu, out->arena);
    }
    if (progress) progress(layer + 1);
  }
  out->table = {spec.layers, out->experts.size(), out->entries};
  return out;
}

int piece_tokens(const Geometry& geometry) {
  return std::min(kPieceTokens, geometry.slice_tokens() * geometry.ranks);
}

int piece_rows(const Geometry& geometry) {
  return piece_tokens(geometry) * geometry.local_top_k();
}

// ---------------------------------------------------------------- receive

class ExpertRank::Receive final : public Agent {
 public:
  Receive(ExpertRank& rank, std::unique_ptr<Port> port, Tracer tracer)
      : rank_(rank),
        port_(std::move(port)),
        tracer_(tracer),
        expected_(rank.items_.size(), 1),
        views_(sz(rank.geometry_.ranks)) {}

  std::string name() const override { return fmt::format("moe e{} receive", rank_.rank_); }

  // Looks at every (group, stage) once, from where it stopped last time.
  int do_work(Instant) override {
    const int slots = static_cast<int>(expected_.size());
    int done = 0;
    for (int i = 0; i < slots; ++i) {
      cursor_ = (cursor_ + 1) % slots;
      done += poll(cursor_);
    }
    return done;
  }

 private:
  int poll(int slot) {
    const Instant begin = tracer_.now();
    const Geometry& g = rank_.geometry_;
    ItemId id{.group = slot / g.stages,
              .stage = slot % g.stages,
              .epoch = rank_.epoch_,
              .seq = expected_[sz(slot)]};
    const int local = rank_.weights_->experts.size();
    if (!dispatch_recv(port_->window(), g, rank_.layout_, local, id, views_)) return 0;
    ++expected_[sz(slot)];
    id.layer = views_[0].header->layer;
    id.trace_id = views_[0].header->trace_id;
    ExpertItem& item = rank_.items_[sz(slot)];
    CHECK(item.id.seq + 1 == id.seq, "g{} stage {}: item {} arrived before item {} was answered",
          id.group, id.stage, id.seq, item.id.seq + 1);
    item.id = id;
    index(item, local);
    rank_.ready_.push(&item);
    rank_.compute_bell_.ring();
    tracer_.add(event_of(id, TraceOp::receive), begin);
    return 1;
  }

  // Joins the ranks' shares: global token numbers, and for each token its rows by ascending expert.
  void index(ExpertItem& item, int local) {
    const uint64_t row_bytes = rank_.geometry_.row_bytes();
    item.rank_begin.assign(1, 0);
    item.payload.clear();
    int rows = 0;
    for (const DispatchView& view : views_) {
      for (int token = 0; token < view.header->tokens; ++token) {
        item.payload.push_back(view.hidden + sz(token) * row_bytes);
      }
      item.rank_begin.push_back(static_cast<int>(item.payload.size()));
      rows += view.header->rows;
    }
    item.tokens = static_cast<int>(item.payload.size());
    item.token_offsets.assign(sz(item.tokens) + 1, 0);
    item.token_expert.resize(sz(rows));
    item.token_weight.resize(sz(rows));
    for (size_t t = 0; t < views_.size(); ++t) {
      for (int row = 0; row < views_[t].header->rows; ++row) {
        ++item.token_offsets[sz(item.rank_begin[t] + views_[t].rows[row].token) + 1];
      }
    }
    for (size_t i = 0; i < sz(item.tokens); ++i) item.token_offsets[i + 1] += item.token_offsets[i];
    next_.assign(item.token_offsets.begin(), item.token_offsets.end());
    for (size_t t = 0; t < views_.size(); ++t) {
      const RowEntry* row = views_[t].rows;
      for (int expert = 0; expert < local; ++expert) {
        for (int i = 0; i < views_[t].counts[expert]; ++i, ++row) {
          const size_t at = sz(next_[sz(item.rank_begin[t] + row->token)]++);
          item.token_expert[at] = expert;
          item.token_weight[at] = row->weight;
        }
      }
    }
  }

  ExpertRank& rank_;
  std::unique_ptr<Port> port_;
  Tracer tracer_;
  std::vector<uint64_t> expected_;  // [D·R] next item of each (group, stage)
  std::vector<DispatchView> views_;
  std::vector<int32_t> next_;
  int cursor_ = 0;
};

// ---------------------------------------------------------------- compute

class ExpertRank::Compute final : public Agent {
 public:
  Compute(ExpertRank& rank, Tracer tracer)
      : rank_(rank), tracer_(tracer), queue_(rank.geometry_.groups, rank.geometry_.stages) {}

  std::string name() const override { return fmt::format("moe e{} compute", rank_.rank_); }

  // One piece per turn.
  int do_work(Instant now) override {
    while (const auto item = rank_.ready_.pop()) {
      queue_.on_ready((*item)->id.group, (*item)->id.stage, now);
    }
    if (piece_ == nullptr) {
      const auto buffer = rank_.free_.pop();
      if (!buffer) return 0;
      piece_ = *buffer;
    }
    if (item_ == nullptr) {
      const auto next = queue_.next(now);
      if (!next) return 0;
      item_ = &rank_.items_[sz(next->group * rank_.geometry_.stages + next->stage)];
      first_ = 0;
    }
    const Instant begin = tracer_.now();
    const ItemId id = item_->id;
    compute_piece();
    tracer_.add(event_of(id, TraceOp::experts), begin);
    return 1;
  }

 private:
  void compute_piece() {
    piece_->item = item_;
    piece_->first = first_;
    piece_->count = std::min(item_->tokens - first_, piece_tokens(rank_.geometry_));
    sort_by_expert();
    if (piece_->count > 0) {
      rank_.ops_.experts(
          rank_.weights_->table,
          {item_->id.layer, piece_->count, piece_->expert_offsets, piece_->row_token.data(),
           piece_->row_weight.data(), piece_->token_offsets.data(), piece_->token_rows.data(),
           item_->payload.data() + first_, rank_.geometry_.activation, piece_->out.data()});
    }
    first_ += piece_->count;
    if (first_ == item_->tokens) item_ = nullptr;
    rank_.computed_.push(piece_);
    piece_ = nullptr;
    rank_.send_bell_.ring();
  }

  // Counting sort of the piece's rows by expert; tokens ascend within an expert.
  void sort_by_expert() {
    ExpertPiece& p = *piece_;
    const ExpertItem& item = *p.item;
    const size_t experts = sz(rank_.weights_->experts.size());
    const int32_t row0 = item.token_offsets[sz(p.first)];
    const int32_t rows = item.token_offsets[sz(p.first + p.count)] - row0;
    p.expert_offsets.assign(experts + 1, 0);
    for (int32_t i = row0; i < row0 + rows; ++i) {
      ++p.expert_offsets[sz(item.token_expert[sz(i)]) + 1];
    }
    for (size_t e = 0; e < experts; ++e) p.expert_offsets[e + 1] += p.expert_offsets[e];
    next_.assign(p.expert_offsets.begin(), p.expert_offsets.end());
    p.row_token.resize(sz(rows));
    p.row_weight.resize(sz(rows));
    p.token_rows.resize(sz(rows));
    p.token_offsets.assign(1, 0);
    for (int token = 0; token < p.count; ++token) {
      for (int32_t i = item.token_offsets[sz(p.first + token)];
           i < item.token_offsets[sz(p.first + token + 1)]; ++i) {
        const int32_t row = next_[sz(item.token_expert[sz(i)])]++;
        p.row_token[sz(row)] = token;
        p.row_weight[sz(row)] = item.token_weight[sz(i)];
        p.token_rows[sz(i - row0)] = row;
      }
      p.token_offsets.push_back(item.token_offsets[sz(p.first + token + 1)] - row0);
    }
  }

  ExpertRank& rank_;
  Tracer tracer_;
  ExpertQueue queue_;
  ExpertPiece* piece_ = nullptr;  // buffer taken, not yet filled
  ExpertItem* item_ = nullptr;    // item under way
  int first_ = 0;                 // its first token not yet computed
  std::vector<int32_t> next_;
};

// ---------------------------------------------------------------- send

class ExpertRank::Send final : public Agent {
 public:
  Send(ExpertRank& rank, std::unique_ptr<Port> port, Tracer tracer)
      : rank_(rank), port_(std::move(port)), tracer_(tracer) {
    wire_.resize(sz(piece_tokens(rank.geometry_)) * rank.geometry_.row_bytes());
  }

  std::string name() const override { return fmt::format("moe e{} send", rank_.rank_); }

  int do_work(Instant) override {
    const auto next = rank_.computed_.pop();
    if (!next) return 0;
    const Instant begin = tracer_.now();
    ExpertPiece& piece = **next;
    const ItemId id = piece.item->id;
    const bool last = piece.first + piece.count == piece.item->tokens;
    rank_.ops_.narrow(piece.out.data(), int64_t{piece.count} * rank_.geometry_.hidden,
                      rank_.geometry_.activation, wire_.data());
    for (int t = 0; t < rank_.geometry_.ranks; ++t) answer(piece, t, last);
    tracer_.add(event_of(id, TraceOp::combine_send), begin);
    rank_.free_.push(&piece);
    rank_.compute_bell_.ring();
    return 1;
  }

 private:
  void answer(const ExpertPiece& piece, int t, bool last) {
    const Geometry& g = rank_.geometry_;
    const ExpertItem& item = *piece.item;
    const int rank_begin = item.rank_begin[sz(t)];
    const int rank_end = item.rank_begin[sz(t) + 1];
    const int begin = std::max(piece.first, rank_begin);
    const int end = std::min(piece.first + piece.count, rank_end);
    if (begin < end) {
      combine_put_rows(*port_, g, rank_.attention_layout_, item.id, t, rank_.rank_,
                       begin - rank_begin, end - begin,
                       wire_.data() + sz(begin - piece.first) * g.row_bytes());
    }
    if (last) {
      combine_finish(*port_, g, rank_.attention_layout_, item.id, t, rank_.rank_,
                     rank_end - rank_begin);
    }
  }

  ExpertRank& rank_;
  std::unique_ptr<Port> port_;
  Tracer tracer_;
  std::vector<std::byte> wire_;  // [piece tokens, H] in the activation type
};

// ---------------------------------------------------------------- rank

ExpertRank::ExpertRank(const Geometry& geometry, int rank,
                       std::shared_ptr<const ExpertWeights> weights, Ops& ops, Link& link,
                       const Tracer tracers[3])
    : geometry_(geometry),
      rank_(rank),
      layout_(geometry),
      attention_layout_(geometry),
      weights_(std::move(weights)),
      ops_(ops),
      items_(sz(geometry.groups * geometry.stages)),
      pieces_(2),
      ready_(items_.size()),
      computed_(pieces_.size()),
      free_(pieces_.size()) {
  const size_t tokens = sz(geometry.slice_tokens()) * sz(geometry.ranks);
  const size_t rows = tokens * sz(geometry.local_top_k());
  for (ExpertItem& item : items_) {
    item.payload.reserve(tokens);
    item.token_offsets.reserve(tokens + 1);
    item.token_expert.reserve(rows);
    item.token_weight.reserve(rows);
  }
  for (ExpertPiece& piece : pieces_) {
    piece.out.resize(sz(piece_tokens(geometry)) * sz(geometry.hidden));
    free_.push(&piece);
  }
  const int device = expert_device(geometry, rank);
  receive_ = std::make_unique<Receive>(*this, link.attach(device), tracers[0]);
  compute_ = std::make_unique<Compute>(*this, tracers[1]);
  send_ = std::make_unique<Send>(*this, link.attach(device), tracers[2]);
}

ExpertRank::~ExpertRank() = default;
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
