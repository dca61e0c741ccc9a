#include "asap/runtime/expert_rows.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

namespace {

// Asked for from disk before it is their turn: some ten megabytes each.
constexpr int kExpertsAhead = 8;

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

}  // namespace

std::shared_ptr<const ExpertWeights> load_expert_weights(const ModelSpec& spec,
                                                         const Checkpoint& checkpoint,
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
      const std::vector<FfnViews>& experts = views.layers[sz(layer)].experts;
      if (expert + kExpertsAhead < out->experts.end) {
        const FfnViews& next = experts[sz(expert + kExpertsAhead)];
        for (const TensorView* view : {&next.gate, &next.up, &next.down}) {
          checkpoint.prefetch(*view);
        }
      }
      const FfnViews& ffn = experts[sz(expert)];
      *entry = ops.pack_expert(ffn, spec.glu, out->arena);
      for (const TensorView* view : {&ffn.gate, &ffn.up, &ffn.down}) checkpoint.release(*view);
    }
    if (progress) progress(layer + 1);
  }
  out->table = {spec.layers, out->experts.size(), out->entries};
  return out;
}

int piece_tokens(const Geometry& geometry) {
  const int items = geometry.lockstep ? geometry.groups : 1;  // of one layer, served together
  return static_cast<int>(
      std::min(int64_t{kPieceTokens}, int64_t{items} * geometry.slice_tokens() * geometry.ranks));
}

int piece_rows(const Geometry& geometry) {
  return piece_tokens(geometry) * geometry.local_top_k();
}

ExpertRows::ExpertRows(const Geometry& geometry, std::shared_ptr<const ExpertWeights> weights,
                       Ops& ops, bool super_kernel)
    : geometry_(geometry), weights_(std::move(weights)), ops_(ops), super_kernel_(super_kernel) {
  wire_.resize(sz(piece_tokens()) * geometry.row_bytes());
}

void ExpertRows::reserve(ExpertItem& item) const {
  const size_t tokens = sz(geometry_.slice_tokens()) * sz(geometry_.ranks);
  const size_t rows = tokens * sz(geometry_.local_top_k());
  item.payload.reserve(tokens);
  item.token_offsets.reserve(tokens + 1);
  item.token_expert.reserve(rows);
  item.token_weight.reserve(rows);
}

void ExpertRows::reserve(ExpertPiece& piece) const {
  const size_t tokens = sz(piece_tokens());
  const size_t rows = tokens * sz(geometry_.local_top_k());
  piece.row_token.reserve(rows);
  piece.row_weight.reserve(rows);
  piece.token_rows.reserve(rows);
  piece.token_offsets.reserve(tokens + 1);
  piece.payload.reserve(tokens);
  piece.out.resize(tokens * sz(geometry_.hidden));
}

// Joins the ranks' shares: global token numbers, and for each token its rows by ascending expert.
void ExpertRows::index(std::span<const DispatchView> views, ExpertItem& item) {
  count(views);
  item.rank_begin.assign(1, 0);
  item.payload.clear();
  int rows = 0;
  for (const DispatchView& view : views) {
    for (int token = 0; token < view.header->tokens; ++token) {
      item.payload.push_back(view.hidden + sz(token) * geometry_.row_bytes());
    }
    item.rank_begin.push_back(static_cast<int>(item.payload.size()));
    rows += view.header->rows;
  }
  item.tokens = static_cast<int>(item.payload.size());
  item.token_offsets.assign(sz(item.tokens) + 1, 0);
  item.token_expert.resize(sz(rows));
  item.token_weight.resize(sz(rows));
  for (size_t t = 0; t < views.size(); ++t) {
    for (int row = 0; row < views[t].header->rows; ++row) {
      ++item.token_offsets[sz(item.rank_begin[t] + views[t].rows[row].token) + 1];
    }
  }
  for (size_t i = 0; i < sz(item.tokens); ++i) item.token_offsets[i + 1] += item.token_offsets[i];
  next_item_.assign(item.token_offsets.begin(), item.token_offsets.end());
  for (size_t t = 0; t < views.size(); ++t) {
    const RowEntry* row = views[t].rows;
    for (int expert = 0; expert < weights_->experts.size(); ++expert) {
      for (int i = 0; i < views[t].counts[expert]; ++i, ++row) {
        const size_t at = sz(next_item_[sz(item.rank_begin[t] + row->token)]++);
        item.token_expert[at] = expert;
        item.token_weight[at] = row->weight;
      }
    }
  }
}

void ExpertRows::count(std::span<const DispatchView> views) {
  if (histogram_ == nullptr) return;
  for (int expert = 0; expert < weights_->experts.size(); ++expert) {
    int rows = 0;
    for (const DispatchView& view : views) rows += view.counts[expert];
    histogram_->add(rows);
  }
}

// Counting sort of the piece's rows by expert; tokens ascend within an expert.
void ExpertRows::sort_by_expert(ExpertPiece& p) {
  const size_t experts = sz(weights_->experts.size());
  p.expert_offsets.assign(experts + 1, 0);
  p.payload.clear();
  for (const ExpertSegment& s : p.segments) {
    const ExpertItem& item = *s.item;
    for (int32_t i = item.token_offsets[sz(s.first)]; i < item.token_offsets[sz(s.first + s.count)];
         ++i) {
      ++p.expert_offsets[sz(item.token_expert[sz(i)]) + 1];
    }
    p.payload.insert(p.payload.end(), item.payload.begin() + s.first,
                     item.payload.begin() + s.first + s.count);
  }
  for (size_t e = 0; e < experts; ++e) p.expert_offsets[e + 1] += p.expert_offsets[e];
  next_piece_.assign(p.expert_offsets.begin(), p.expert_offsets.end());
  const size_t rows = sz(p.expert_offsets.back());
  p.row_token.resize(rows);
  p.row_weight.resize(rows);
  p.token_rows.clear();
  p.token_offsets.assign(1, 0);
  for (const ExpertSegment& s : p.segments) {
    const ExpertItem& item = *s.item;
    for (int token = 0; token < s.count; ++token) {
      for (int32_t i = item.token_offsets[sz(s.first + token)];
           i < item.token_offsets[sz(s.first + token + 1)]; ++i) {
        const int32_t row = next_piece_[sz(item.token_expert[sz(i)])]++;
        p.row_token[sz(row)] = s.at + token;
        p.row_weight[sz(row)] = item.token_weight[sz(i)];
        p.token_rows.push_back(row);
      }
      p.token_offsets.push_back(static_cast<int32_t>(p.token_rows.size()));
    }
  }
}

void ExpertRows::experts(ExpertPiece& piece) {
  sort_by_expert(piece);
  if (piece.tokens == 0) return;
  if (!super_kernel_) return per_expert(piece);
  ops_.experts(weights_->table,
               {piece.layer, piece.tokens, piece.expert_offsets, piece.row_token.data(),
                piece.row_weight.data(), piece.token_offsets.data(), piece.token_rows.data(),
                piece.payload.data(), geometry_.activation, piece.out.data()});
}

// One call per expert, each with a fork and a join of the team; partial results are added in
// ascending expert, so the bits are the same.
void ExpertRows::per_expert(ExpertPiece& p) {
  const size_t experts = sz(weights_->experts.size());
  const size_t hidden = sz(geometry_.hidden);
  std::fill_n(p.out.begin(), sz(p.tokens) * hidden, 0.0f);
  one_out_.resize(p.out.size());
  for (size_t e = 0; e < experts; ++e) {
    const int32_t begin = p.expert_offsets[e];
    const int32_t rows = p.expert_offsets[e + 1] - begin;
    if (rows == 0) continue;
    one_offsets_.assign(experts + 1, 0);
    std::fill(one_offsets_.begin() + static_cast<std::ptrdiff_t>(e) + 1, one_offsets_.end(), rows);
    one_token_offsets_.assign(1, 0);
    one_token_rows_.clear();
    for (int token = 0; token < p.tokens; ++token) {
      const size_t row = one_token_rows_.size();
      if (row < sz(rows) && p.row_token[sz(begin) + row] == token) {
        one_token_rows_.push_back(static_cast<int32_t>(row));
      }
      one_token_offsets_.push_back(static_cast<int32_t>(one_token_rows_.size()));
    }
    ops_.experts(weights_->table,
                 {p.layer, p.tokens, one_offsets_, p.row_token.data() + begin,
                  p.row_weight.data() + begin, one_token_offsets_.data(), one_token_rows_.data(),
                  p.payload.data(), geometry_.activation, one_out_.data()});
    for (int32_t row = begin; row < begin + rows; ++row) {
      const size_t at = sz(p.row_token[sz(row)]) * hidden;
      for (size_t i = 0; i < hidden; ++i) p.out[at + i] += one_out_[at + i];
    }
  }
}

void ExpertRows::narrow(const ExpertPiece& piece) {
  ops_.narrow(piece.out.data(), int64_t{piece.tokens} * geometry_.hidden, geometry_.activation,
              wire_.data());
}

const std::byte* ExpertRows::rows(const ExpertPiece&, int at) const {
  return wire_.data() + sz(at) * geometry_.row_bytes();
}

}  // namespace asap
