#include "asap/runtime/attention_rows.h"

#include <algorithm>
#include <cstring>

#include "asap/base/check.h"
#include "asap/runtime/sampler.h"

namespace asap {

namespace {

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

template <typename T>
Payload payload_of(const T* data, size_t count) {
  return std::as_bytes(std::span<const T>(data, count));
}

}  // namespace

struct AttentionRows::Stage {
  BatchRows rows;
  std::vector<Sequence> sequences;
  std::vector<int32_t> positions;  // [tokens]
  std::vector<int32_t> slots;      // [tokens]
  std::vector<float> angles, index_angles;
  std::vector<float> h;                    // [slice, H] residual stream
  std::vector<float> x;                    // [slice, H] post-attention norm
  std::vector<float> shared;               // [slice, H] shared expert
  std::vector<int32_t> ids;                // [slice, K]
  std::vector<float> weights;              // [slice, K]
  std::vector<std::vector<int32_t>> sent;  // [E] own rows dispatched to each expert rank, ascending
};

AttentionRows::AttentionRows(const Geometry& geometry, int rank,
                             std::shared_ptr<const AttentionWeights> weights, int kv_blocks,
                             Ops& ops)
    : geometry_(geometry),
      rank_(rank),
      layout_(geometry),
      spec_(weights->spec),
      caches_(*weights, kv_blocks, geometry.activation),
      ops_(ops),
      side_(std::move(weights), caches_, ops, geometry.max_batch_tokens),
      rope_(rope_frequencies(spec_.rope)),
      index_rope_(spec_.index_topk > 0 ? rope_frequencies(spec_.index_rope)
                                       : std::vector<double>()) {
  const size_t tokens = sz(geometry.max_batch_tokens);
  const size_t slice = sz(geometry.slice_tokens());
  const size_t hidden = sz(geometry.hidden);
  for (int r = 0; r < geometry.stages; ++r) {
    auto stage = std::make_unique<Stage>();
    for (auto* rows : {&stage->h, &stage->x, &stage->shared}) rows->resize(slice * hidden);
    stage->ids.resize(slice * sz(geometry.top_k));
    stage->weights.resize(slice * sz(geometry.top_k));
    stage->angles.resize(tokens * sz(spec_.rope.dim));
    stage->index_angles.resize(tokens * sz(spec_.index_rope.dim));
    stage->sent.resize(sz(geometry.expert_ranks));
    stages_.push_back(std::move(stage));
  }
  gathered_.resize(tokens * sz(geometry.gather_width));
  partial_.resize(tokens * hidden);
  selected_.resize(tokens * sz(geometry.index_topk));
  head_rows_.resize(sz(geometry.max_batch_seqs) * hidden);
  logits_.resize(sz(geometry.max_batch_seqs) * sz(geometry.vocab));
  row_logits_.resize(sz(geometry.vocab));
  cached_ids_.resize(sz(kv_blocks) * sz(kKvBlock));
  wire_.resize(slice * geometry.row_bytes());
  counts_.reserve(sz(geometry.local_experts()));
  next_.reserve(sz(geometry.local_experts()) + 1);
  rows_.reserve(slice * sz(geometry.local_top_k()));
}

AttentionRows::~AttentionRows() = default;

// Positions, cache slots and angles of every token of the batch; the slice's embeddings.
void AttentionRows::begin(const StageBatch& b) {
  Stage& stage = at(b);
  stage.sequences.clear();
  stage.positions.clear();
  stage.slots.clear();
  int row = 0;
  const int32_t* table = b.blocks.data();
  for (const SequenceCommand& c : b.commands) {
    stage.sequences.push_back({row, c.tokens, c.past, c.prompt, table});
    for (int position = c.past; position < c.past + c.tokens; ++position) {
      stage.positions.push_back(position);
      stage.slots.push_back(table[position / kKvBlock] * kKvBlock + position % kKvBlock);
    }
    row += c.tokens;
    table += c.blocks;
  }
  for (size_t i = 0; i < stage.slots.size(); ++i) cached_ids_[sz(stage.slots[i])] = b.ids[i];
  rope_angles(rope_, spec_.rope.amplitude, stage.positions, stage.angles.data());
  rope_angles(index_rope_, spec_.index_rope.amplitude, stage.positions, stage.index_angles.data());
  stage.rows = {b.tokens,
                b.slice,
                stage.sequences,
                stage.slots.data(),
                stage.angles.data(),
                stage.index_angles.data(),
                b.select};
  side_.embed(b.ids.subspan(sz(b.slice.begin), sz(b.slice.size())), stage.h.data());
}

Payload AttentionRows::project(const StageBatch& b) {
  Stage& stage = at(b);
  gathered_stage_ = -1;
  side_.project(b.layer, stage.rows, stage.h.data(), gathered_.data());
  return payload_of(gathered_.data(), sz(b.slice.size()) * sz(geometry_.gather_width));
}

void AttentionRows::collect_gathered(const StageBatch& b) {
  for (int peer = 0; peer < geometry_.ranks; ++peer) {
    const Part slice = part_of(b.tokens, geometry_.ranks, peer);
    const uint64_t payload = layout_.gather.payload(layout_.peer_slot(b.stage, peer));
    std::memcpy(gathered_.data() + static_cast<int64_t>(slice.begin) * geometry_.gather_width,
                b.window + payload, sz(slice.size()) * sz(geometry_.gather_width) * sizeof(float));
  }
  gathered_stage_ = b.stage;
}

void AttentionRows::store(const StageBatch& b) {
  collect_gathered(b);
  side_.store(b.layer, at(b).rows, gathered_.data());
}

Payload AttentionRows::select(const StageBatch& b) {
  side_.select(b.layer, at(b).rows, at(b).h.data(), gathered_.data(), selected_.data());
  const size_t count = sz(b.slice.size()) * sz(geometry_.index_topk);
  if (observer_) {
    observer_({b.layer, b.commands, b.slice, {}, {}, {selected_.data(), count}});
  }
  return payload_of(selected_.data(), count);
}

// The selection of an earlier layer stays in the window where a layer makes none of its own: peers
// send the next one only after this rank's part in this layer.
void AttentionRows::collect_selected(const StageBatch& b) {
  for (int peer = 0; peer < geometry_.ranks; ++peer) {
    const Part slice = part_of(b.tokens, geometry_.ranks, peer);
    const uint64_t payload = layout_.select.payload(layout_.peer_slot(b.stage, peer));
    std::memcpy(selected_.data() + static_cast<int64_t>(slice.begin) * geometry_.index_topk,
                b.window + payload, sz(slice.size()) * sz(geometry_.index_topk) * sizeof(int32_t));
  }
}

void AttentionRows::attend(const StageBatch& b) {
  // Another stage may have used the buffer since.
  if (gathered_stage_ != b.stage) collect_gathered(b);
  if (b.select) collect_selected(b);
  side_.attend(b.layer, at(b).rows, gathered_.data(), b.select ? selected_.data() : nullptr,
               partial_.data());
}

Payload AttentionRows::partial(const StageBatch& b, int to) {
  const Part slice = part_of(b.tokens, geometry_.ranks, to);
  return payload_of(partial_.data() + static_cast<int64_t>(slice.begin) * geometry_.hidden,
                    sz(slice.size()) * sz(geometry_.hidden));
}

// Partial sums in ascending rank order, then the residual: the bits do not depend on arrival.
void AttentionRows::reduce(const StageBatch& b) {
  Stage& stage = at(b);
  const int64_t elements = static_cast<int64_t>(b.slice.size()) * geometry_.hidden;
  std::fill_n(partial_.begin(), elements, 0.0f);
  for (int peer = 0; peer < geometry_.ranks; ++peer) {
    const uint64_t payload = layout_.reduce.payload(layout_.peer_slot(b.stage, peer));
    ops_.add(b.window + payload, elements, DType::f32, partial_.data());
  }
  for (int64_t i = 0; i < elements; ++i) stage.h[sz(i)] += partial_[sz(i)];
}

void AttentionRows::dense(const StageBatch& b) {
  side_.dense(b.layer, b.slice.size(), at(b).h.data());
}

void AttentionRows::route(const StageBatch& b) {
  Stage& stage = at(b);
  side_.route(b.layer, b.slice.size(), stage.h.data(), stage.x.data(), stage.ids.data(),
              stage.weights.data());
  if (observer_) {
    const size_t count = sz(b.slice.size()) * sz(geometry_.top_k);
    observer_({b.layer,
               b.commands,
               b.slice,
               {stage.ids.data(), count},
               {stage.weights.data(), count},
               {}});
  }
}

// Each expert rank gets each token once, with one row per local expert that the token selected.
DispatchShare AttentionRows::share(const StageBatch& b, int e) {
  Stage& stage = at(b);
  const int n = b.slice.size();
  const int k = geometry_.top_k;
  if (e == 0) {
    ops_.narrow(stage.x.data(), static_cast<int64_t>(n) * geometry_.hidden, geometry_.activation,
                wire_.data());
  }
  const Part own = part_of(geometry_.experts, geometry_.expert_ranks, e);
  std::vector<int32_t>& sent = stage.sent[sz(e)];
  sent.clear();
  counts_.assign(sz(own.size()), 0);
  for (int i = 0; i < n; ++i) {
    bool any = false;
    for (int j = 0; j < k; ++j) {
      const int expert = stage.ids[sz(i * k + j)];
      if (expert < own.begin || expert >= own.end) continue;
      ++counts_[sz(expert - own.begin)];
      any = true;
    }
    if (any) sent.push_back(i);
  }
  next_.assign(sz(own.size()) + 1, 0);
  for (int x = 0; x < own.size(); ++x) next_[sz(x) + 1] = next_[sz(x)] + counts_[sz(x)];
  rows_.resize(sz(next_.back()));
  for (size_t token = 0; token < sent.size(); ++token) {
    for (int j = 0; j < k; ++j) {
      const size_t choice = sz(sent[token] * k + j);
      const int expert = stage.ids[choice];
      if (expert < own.begin || expert >= own.end) continue;
      rows_[sz(next_[sz(expert - own.begin)]++)] = {static_cast<int32_t>(token),
                                                    stage.weights[choice]};
    }
  }
  return {counts_, rows_, sent, wire_.data()};
}

void AttentionRows::shared(const StageBatch& b) {
  Stage& stage = at(b);
  side_.shared(b.layer, b.slice.size(), stage.x.data(), stage.shared.data());
}

// Ascending expert rank, then the shared expert, then the residual.
void AttentionRows::combine(const StageBatch& b) {
  Stage& stage = at(b);
  const int hidden = geometry_.hidden;
  const int64_t elements = static_cast<int64_t>(b.slice.size()) * hidden;
  std::fill_n(partial_.begin(), elements, 0.0f);
  for (int e = 0; e < geometry_.expert_ranks; ++e) {
    const std::vector<int32_t>& sent = stage.sent[sz(e)];
    const std::byte* rows =
        combine_rows(b.window, layout_, b.item, e, static_cast<int>(sent.size()));
    for (size_t i = 0; i < sent.size(); ++i) {
      ops_.add(rows + i * geometry_.row_bytes(), hidden, geometry_.activation,
               partial_.data() + static_cast<int64_t>(sent[i]) * hidden);
    }
  }
  for (int64_t i = 0; i < elements; ++i) {
    stage.h[sz(i)] += partial_[sz(i)] + stage.shared[sz(i)];
  }
}

// Every rank gets the final-norm rows of all sampled sequences; each owner sends those of its
// slice, in batch order.
Payload AttentionRows::last_rows(const StageBatch& b) {
  const size_t hidden = sz(geometry_.hidden);
  size_t own = 0;
  for (const int32_t row : b.sampled) {
    if (row < b.slice.begin || row >= b.slice.end) continue;
    side_.final_norm(1, at(b).h.data() + sz(row - b.slice.begin) * hidden,
                     head_rows_.data() + own * hidden);
    ++own;
  }
  return payload_of(head_rows_.data(), own * hidden);
}

Payload AttentionRows::logits(const StageBatch& b) {
  const size_t hidden = sz(geometry_.hidden);
  taken_.assign(sz(geometry_.ranks), 0);
  for (size_t i = 0; i < b.sampled.size(); ++i) {
    int owner = 0;
    while (b.sampled[i] >= part_of(b.tokens, geometry_.ranks, owner).end) ++owner;
    const uint64_t payload = layout_.rows.payload(layout_.peer_slot(b.stage, owner));
    std::memcpy(head_rows_.data() + i * hidden,
                b.window + payload + taken_[sz(owner)]++ * hidden * sizeof(float),
                hidden * sizeof(float));
  }
  const int samples = static_cast<int>(b.sampled.size());
  side_.head(samples, head_rows_.data(), logits_.data());
  const Part vocab = part_of(geometry_.vocab, geometry_.ranks, rank_);
  return payload_of(logits_.data(), sz(samples) * sz(vocab.size()));
}

void AttentionRows::sample(const StageBatch& b, int i, const SequenceCommand& c, ResultEntry* out) {
  for (int peer = 0; peer < geometry_.ranks; ++peer) {
    const Part part = part_of(geometry_.vocab, geometry_.ranks, peer);
    const uint64_t shard = layout_.logits.payload(layout_.peer_slot(b.stage, peer));
    std::memcpy(row_logits_.data() + part.begin,
                b.window + shard + sz(i) * sz(part.size()) * sizeof(float),
                sz(part.size()) * sizeof(float));
  }
  const auto command = static_cast<size_t>(&c - b.commands.data());
  size_t bias = 0;
  for (size_t before = 0; before < command; ++before) bias += sz(b.commands[before].biases);
  SampleParams params = sample_params(c);
  params.biases = b.biases.subspan(bias, sz(c.biases));
  if (params.penalises()) params.history = history(b, command);
  asap::sample(row_logits_, params, out);
}

// The tokens of a sequence lie where its keys do, so they live and die with them.
std::span<const int32_t> AttentionRows::history(const StageBatch& b, size_t command) {
  const SequenceCommand& c = b.commands[command];
  const int32_t* table = at(b).sequences[command].blocks;
  history_.clear();
  for (int position = 0; position < c.past + c.tokens; ++position) {
    history_.push_back(
        cached_ids_[sz(table[position / kKvBlock]) * sz(kKvBlock) + sz(position % kKvBlock)]);
  }
  return history_;
}

Payload AttentionRows::row_logits() const {
  return payload_of(row_logits_.data(), row_logits_.size());
}

}  // namespace asap
