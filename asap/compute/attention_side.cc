#include "asap/compute/attention_side.h"

#include <algorithm>
#include <cmath>

#include "asap/base/check.h"
#include "asap/compute/fp8.h"

namespace asap {

namespace {

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

std::vector<float> vector_of(const TensorView& view) {
  std::vector<float> out(sz(view.cols));
  if (view) view.read_row(0, out.data());
  return out;
}

// Kv heads of gqa rank `rank`: its own share, or the one that it shares with its neighbours.
Part own_kv_heads(const ModelSpec& spec, int rank, int ranks) {
  if (spec.kv_heads >= ranks) return part_of(spec.kv_heads, ranks, rank);
  const int head = rank * spec.kv_heads / ranks;
  return {head, head + 1};
}

// Columns [part.begin·d, part.end·d) of a bias, or nothing.
TensorView part_of_bias(const TensorView& bias, Part part, int d) {
  return bias ? bias.slice_cols(part.begin * d, part.end * d) : bias;
}

void load_gqa(const ModelSpec& spec, const LayerViews& views, int rank, int ranks, Ops& ops,
              Arena& arena, AttentionLayerWeights* out) {
  const bool whole = spec.qk_norm == QkNorm::full;
  const Part own = part_of(spec.heads, ranks, rank);
  const Part heads = whole ? Part{0, spec.heads} : own;
  const Part kv = whole ? Part{0, spec.kv_heads} : own_kv_heads(spec, rank, ranks);
  const int d = spec.head_dim;
  const auto pack = [&](const TensorView& w, const TensorView& bias, Part part) {
    return ops.pack(w.slice_rows(part.begin * d, part.end * d), part_of_bias(bias, part, d), arena);
  };
  out->q = pack(views.q, views.q_bias, heads);
  out->k = pack(views.k, views.k_bias, kv);
  out->v = pack(views.v, views.v_bias, kv);
  if (spec.qk_norm != QkNorm::none) {
    out->q_norm = vector_of(views.q_norm);
    out->k_norm = vector_of(views.k_norm);
  }
  if (spec.sinks) out->sinks = vector_of(views.sinks.slice_cols(own.begin, own.end));
}

void load_mla(const ModelSpec& spec, const LayerViews& views, int rank, int ranks, Ops& ops,
              Arena& arena, AttentionLayerWeights* out) {
  const Part heads = part_of(spec.heads, ranks, rank);
  const int qk = spec.qk_head();
  if (spec.q_lora > 0) {
    out->q_a = ops.pack(views.q_a, views.q_a_bias, arena);
    out->q_a_norm = vector_of(views.q_a_norm);
    out->q_b = ops.pack(views.q_b.slice_rows(heads.begin * qk, heads.end * qk), arena);
  } else {
    out->q = ops.pack(views.q.slice_rows(heads.begin * qk, heads.end * qk), arena);
  }
  out->kv_a = ops.pack(views.kv_a, views.kv_a_bias, arena);
  out->kv_a_norm = vector_of(views.kv_a_norm);
  const int kv = spec.qk_nope + spec.v_head;
  for (int head = heads.begin; head < heads.end; ++head) {
    out->mla_heads.push_back(ops.pack_mla_head(views.kv_b.slice_rows(head * kv, (head + 1) * kv),
                                               spec.qk_nope, spec.v_head, arena));
  }
  if (views.index_k) {
    out->index_q = ops.pack(views.index_q_b, arena);
    out->index_k = ops.pack(views.index_k, arena);
    out->index_weights = ops.pack(views.index_weights, arena);
    out->index_k_norm = vector_of(views.index_k_norm);
    out->index_k_bias = vector_of(views.index_k_norm_bias);
  }
}

AttentionLayerWeights load_layer(const ModelSpec& spec, const LayerViews& views, bool moe, int rank,
                                 int ranks, Ops& ops, Arena& arena) {
  AttentionLayerWeights out;
  out.input_norm = vector_of(views.input_norm);
  out.post_norm = vector_of(views.post_norm);
  if (spec.attention == AttentionKind::mla) {
    load_mla(spec, views, rank, ranks, ops, arena, &out);
  } else {
    load_gqa(spec, views, rank, ranks, ops, arena, &out);
  }
  const Part heads = part_of(spec.heads, ranks, rank);
  const int v = spec.v_head_width();
  // The partial sums of all ranks are added up: one of them brings the bias.
  out.o = ops.pack(views.o.slice_cols(heads.begin * v, heads.end * v),
                   rank == 0 ? views.o_bias : TensorView{}, arena);
  if (moe) {
    out.router = ops.pack(views.router, views.router_logit_bias, arena);
    if (spec.router.has_bias) out.router_bias = vector_of(views.router_bias);
    if (spec.shared_intermediate > 0) {
      out.shared = ops.pack_expert(views.shared, arena);
    }
    if (spec.shared_gate) out.shared_gate = ops.pack(views.shared_gate, arena);
  } else {
    out.dense = ops.pack_expert(views.dense, arena);
  }
  return out;
}

// The pages of what a layer has been packed from.
void release_layer(const Checkpoint& checkpoint, const LayerViews& v) {
  for (const TensorView* view : {&v.q, &v.k, &v.v, &v.q_a, &v.q_b, &v.kv_a, &v.kv_b, &v.index_q_b,
                                 &v.index_k, &v.o, &v.dense.gate, &v.dense.up, &v.dense.down,
                                 &v.router, &v.shared.gate, &v.shared.up, &v.shared.down}) {
    if (*view) checkpoint.release(*view);
  }
}

void clamp_rows(float* x, int n, int ld, int width, double limit) {
  const auto most = static_cast<float>(limit);
  for (int i = 0; i < n; ++i, x += ld) {
    for (int j = 0; j < width; ++j) x[j] = std::clamp(x[j], -most, most);
  }
}

// Elements per token and layer in the caches of one rank: {kv, index}.
std::pair<int, int> cache_widths(const ModelSpec& spec, int own_kv_heads) {
  if (spec.attention == AttentionKind::gqa) return {2 * own_kv_heads * spec.head_dim, 0};
  return {spec.kv_lora + spec.qk_rope, spec.index_topk > 0 ? spec.index_dim : 0};
}

}  // namespace

Status check_tensor_parallel(const ModelSpec& spec, int ranks) {
  // Where all heads share one cache row, or none does, they can be given out in unequal numbers;
  // grouped queries must stay with their kv head.
  const bool shared =
      spec.attention == AttentionKind::mla || spec.kv_heads == 1 || spec.kv_heads == spec.heads;
  if (shared ? ranks > spec.heads : spec.heads % ranks != 0) {
    return fail(Code::invalid,
                "--tensor-parallel-size {} does not divide the model's {} attention heads; {}",
                ranks, spec.heads,
                shared ? fmt::format("use at most {}", spec.heads)
                       : fmt::format("use a divisor of {}", spec.heads));
  }
  if (!shared && spec.kv_heads % ranks != 0 && ranks % spec.kv_heads != 0) {
    return fail(Code::invalid,
                "--tensor-parallel-size {} neither divides nor is a multiple of the model's {} "
                "key-value heads",
                ranks, spec.kv_heads);
  }
  return {};
}

std::shared_ptr<const AttentionWeights> load_attention_weights(
    const ModelSpec& spec, const Checkpoint& checkpoint, const ModelWeights& views, int rank,
    int ranks, Ops& ops, const std::function<void(int)>& progress) {
  auto out = std::make_shared<AttentionWeights>();
  out->spec = spec;
  out->checkpoint = checkpoint;
  const Part heads = part_of(spec.heads, ranks, rank);
  out->heads = heads.size();
  out->first_head = heads.begin;
  if (spec.attention == AttentionKind::gqa) {
    const Part kv = own_kv_heads(spec, rank, ranks);
    out->kv_heads = kv.size();
    out->first_kv_head = kv.begin;
  }
  out->vocab = part_of(spec.vocab, ranks, rank);
  out->embed = views.embed;
  out->final_norm = vector_of(views.final_norm);
  out->lm_head = ops.pack(views.lm_head.slice_rows(out->vocab.begin, out->vocab.end), out->arena);
  checkpoint.release(views.lm_head);
  for (int layer = 0; layer < spec.layers; ++layer) {
    out->layers.push_back(load_layer(spec, views.layers[sz(layer)], spec.moe_layer[sz(layer)] != 0,
                                     rank, ranks, ops, out->arena));
    release_layer(checkpoint, views.layers[sz(layer)]);
    if (progress) progress(layer + 1);
  }
  return out;
}

AttentionCaches::AttentionCaches(const AttentionWeights& weights, int blocks, DType dtype) {
  const auto [kv_width, index_width] = cache_widths(weights.spec, weights.kv_heads);
  const uint64_t slots = static_cast<uint64_t>(blocks) * kKvBlock;
  for (int layer = 0; layer < weights.spec.layers; ++layer) {
    const auto cache = [&](int width, DType type) {
      const uint64_t bytes = slots * static_cast<uint64_t>(width) * dtype_bytes(type);
      return KvCache{arena.allocate(bytes), type, width};
    };
    kv.push_back(cache(kv_width, dtype));
    // Index keys decide which keys a token sees at all: they are not rounded.
    if (index_width > 0) {
      index.push_back(weights.spec.indexes(layer) ? cache(index_width, DType::f32) : KvCache{});
    }
  }
}

uint64_t cache_bytes_per_token(const ModelSpec& spec, int ranks, DType dtype) {
  const int kv_heads =
      spec.attention == AttentionKind::gqa ? own_kv_heads(spec, 0, ranks).size() : 0;
  const auto [kv_width, index_width] = cache_widths(spec, kv_heads);
  return sz(spec.layers) * sz(kv_width) * dtype_bytes(dtype) +
         sz(spec.index_layers()) * sz(index_width) * dtype_bytes(DType::f32);
}

void rope_angles(const std::vector<double>& frequencies, double amplitude,
                 std::span<const int32_t> positions, float* out) {
  for (const int32_t position : positions) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      *out++ = static_cast<float>(std::cos(angle) * amplitude);
      *out++ = static_cast<float>(std::sin(angle) * amplitude);
    }
  }
}

AttentionSide::AttentionSide(std::shared_ptr<const AttentionWeights> weights,
                             AttentionCaches& caches, Ops& ops, int max_tokens)
    : weights_(std::move(weights)),
      spec_(weights_->spec),
      caches_(caches),
      ops_(ops),
      gather_width_(gather_width(spec_)) {
  const size_t rows = sz(max_tokens);
  const size_t heads = sz(weights_->heads);
  x_.resize(rows * sz(spec_.hidden));
  y_.resize(rows * sz(spec_.hidden));
  q_.resize(rows * std::max(heads * sz(spec_.qk_head()), sz(spec_.index_heads * spec_.index_dim)));
  kv_.resize(rows * 2 * sz(weights_->kv_heads * spec_.head_dim));
  out_.resize(rows * heads * sz(spec_.v_head_width()));
  logits_.resize(rows * sz(std::max(spec_.experts, spec_.index_heads)));
}

int AttentionSide::gather_width(const ModelSpec& spec) {
  if (spec.attention == AttentionKind::gqa) {
    return spec.qk_norm == QkNorm::full ? (spec.heads + 2 * spec.kv_heads) * spec.head_dim
                                        : spec.hidden;
  }
  return (spec.q_lora > 0 ? spec.q_lora : spec.hidden) + spec.kv_lora + spec.qk_rope +
         (spec.index_topk > 0 ? spec.index_dim : 0);
}

void AttentionSide::embed(std::span<const int32_t> tokens, float* h) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    weights_->embed.read_row(tokens[i], h + i * sz(spec_.hidden));
  }
}

void AttentionSide::project(int layer, const BatchRows& batch, const float* h, float* latents) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  const int n = batch.slice.size();
  const int hidden = spec_.hidden;
  const bool gqa = spec_.attention == AttentionKind::gqa;
  const bool whole = gqa ? spec_.qk_norm != QkNorm::full : spec_.q_lora == 0;
  float* x = whole ? latents : x_.data();
  const int ldx = whole ? gather_width_ : hidden;
  ops_.rms_norm(h, n, hidden, hidden, w.input_norm.data(), spec_.rms_eps, x, ldx);
  if (gqa) {
    if (!whole) project_qkv(layer, batch, x, latents);
    return;
  }
  int at = hidden;
  if (spec_.q_lora > 0) {
    at = spec_.q_lora;
    ops_.linear(w.q_a, x, n, ldx, latents, gather_width_);
    ops_.rms_norm(latents, n, at, gather_width_, w.q_a_norm.data(), spec_.mla_norm_eps, latents,
                  gather_width_);
  }
  float* c = latents + at;
  ops_.linear(w.kv_a, x, n, ldx, c, gather_width_);
  ops_.rms_norm(c, n, spec_.kv_lora, gather_width_, w.kv_a_norm.data(), spec_.mla_norm_eps, c,
                gather_width_);
  if (spec_.latent_fp8) fp8_round_trip(c, n, gather_width_, spec_.kv_lora);
  const int64_t pairs = spec_.rope.dim / 2;
  ops_.rope(c + spec_.kv_lora, n, gather_width_, 1, 0, spec_.rope.dim, spec_.rope.interleaved,
            batch.angles + batch.slice.begin * pairs * 2);
  if (!spec_.indexes(layer)) return;
  project_index_key(layer, batch, x, ldx, c + spec_.kv_lora + spec_.qk_rope);
}

// q, k and v of all heads for the own tokens, finished but for the choice of heads.
void AttentionSide::project_qkv(int layer, const BatchRows& batch, const float* x, float* qkv) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  const int n = batch.slice.size();
  const int d = spec_.head_dim;
  const int ld = gather_width_;
  float* k = qkv + spec_.heads * d;
  float* v = k + spec_.kv_heads * d;
  ops_.linear(w.q, x, n, spec_.hidden, qkv, ld);
  ops_.linear(w.k, x, n, spec_.hidden, k, ld);
  ops_.linear(w.v, x, n, spec_.hidden, v, ld);
  ops_.rms_norm(qkv, n, spec_.heads * d, ld, w.q_norm.data(), spec_.rms_eps, qkv, ld);
  ops_.rms_norm(k, n, spec_.kv_heads * d, ld, w.k_norm.data(), spec_.rms_eps, k, ld);
  if (spec_.clip_qkv > 0) clamp_rows(qkv, n, ld, ld, spec_.clip_qkv);
  const float* angles = batch.angles + int64_t{batch.slice.begin} * spec_.rope.dim;
  ops_.rope(qkv, n, ld, spec_.heads + spec_.kv_heads, d, spec_.rope.dim, spec_.rope.interleaved,
            angles);
}

void AttentionSide::project_index_key(int layer, const BatchRows& batch, const float* x, int ldx,
                                      float* key) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  const int n = batch.slice.size();
  ops_.linear(w.index_k, x, n, ldx, key, gather_width_);
  ops_.layer_norm(key, n, spec_.index_dim, gather_width_, w.index_k_norm.data(),
                  w.index_k_bias.data(), key, gather_width_);
  ops_.rope(key, n, gather_width_, 1, 0, spec_.index_rope.dim, spec_.index_rope.interleaved,
            batch.index_angles + int64_t{batch.slice.begin} * spec_.index_rope.dim);
  if (spec_.index_fp8) {
    hadamard(key, n, gather_width_, spec_.index_dim);
    fp8_round_trip(key, n, gather_width_, spec_.index_dim);
  }
}

void AttentionSide::store(int layer, const BatchRows& batch, const float* gathered) {
  if (spec_.attention == AttentionKind::gqa) return store_gqa(layer, batch, gathered);
  const int n = batch.tokens;
  const float* c = gathered + (spec_.q_lora > 0 ? spec_.q_lora : spec_.hidden);
  ops_.kv_store(caches_.kv[sz(layer)], batch.slots, c, n, gather_width_);
  if (spec_.indexes(layer)) {
    ops_.kv_store(caches_.index[sz(layer)], batch.slots, c + spec_.kv_lora + spec_.qk_rope, n,
                  gather_width_);
  }
}

void AttentionSide::store_gqa(int layer, const BatchRows& batch, const float* gathered) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  const int n = batch.tokens;
  const int d = spec_.head_dim;
  const int kv_heads = weights_->kv_heads;
  const int width = 2 * kv_heads * d;
  float* k = kv_.data();
  float* v = k + kv_heads * d;
  if (spec_.qk_norm == QkNorm::full) {
    const float* all_k = gathered + (spec_.heads + weights_->first_kv_head) * d;
    for (int i = 0; i < n; ++i, all_k += gather_width_) {
      std::copy_n(all_k, kv_heads * d, k + int64_t{i} * width);
      std::copy_n(all_k + spec_.kv_heads * d, kv_heads * d, v + int64_t{i} * width);
    }
    return ops_.kv_store(caches_.kv[sz(layer)], batch.slots, k, n, width);
  }
  ops_.linear(w.k, gathered, n, gather_width_, k, width);
  ops_.linear(w.v, gathered, n, gather_width_, v, width);
  for (int head = 0; spec_.qk_norm == QkNorm::per_head && head < kv_heads; ++head) {
    ops_.rms_norm(k + head * d, n, d, width, w.k_norm.data(), spec_.rms_eps, k + head * d, width);
  }
  if (spec_.clip_qkv > 0) clamp_rows(k, n, width, width, spec_.clip_qkv);
  ops_.rope(k, n, width, kv_heads, d, spec_.rope.dim, spec_.rope.interleaved, batch.angles);
  ops_.kv_store(caches_.kv[sz(layer)], batch.slots, k, n, width);
}

void AttentionSide::select(int layer, const BatchRows& batch, const float* h, const float* gathered,
                           int32_t* selected) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  const int n = batch.slice.size();
  const int heads = spec_.index_heads;
  const int dim = spec_.index_dim;
  const float* latents = gathered + static_cast<int64_t>(batch.slice.begin) * gather_width_;
  ops_.linear(w.index_q, latents, n, gather_width_, q_.data(), heads * dim);
  ops_.rope(q_.data(), n, heads * dim, heads, dim, spec_.index_rope.dim,
            spec_.index_rope.interleaved,
            batch.index_angles + int64_t{batch.slice.begin} * spec_.index_rope.dim);
  if (spec_.index_fp8) {
    hadamard(q_.data(), n * heads, dim, dim);
    fp8_round_trip(q_.data(), n * heads, dim, dim);
  }
  ops_.rms_norm(h, n, spec_.hidden, spec_.hidden, w.input_norm.data(), spec_.rms_eps, x_.data(),
                spec_.hidden);
  ops_.linear(w.index_weights, x_.data(), n, spec_.hidden, logits_.data(), heads);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads) * dim));
  for (int i = 0; i < n * heads; ++i) logits_[sz(i)] *= scale;
  ops_.indexer({batch.sequences, batch.slice.begin, batch.slice.end, q_.data(), logits_.data(),
                caches_.index[sz(layer)], heads, dim, spec_.index_topk, selected});
}

void AttentionSide::attend_gqa(int layer, const BatchRows& batch, const float* gathered) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  const int n = batch.tokens;
  const int heads = weights_->heads;
  const int d = spec_.head_dim;
  float* q = q_.data();
  if (spec_.qk_norm == QkNorm::full) {
    const float* all = gathered + weights_->first_head * d;
    for (int i = 0; i < n; ++i) {
      std::copy_n(all + int64_t{i} * gather_width_, heads * d, q + int64_t{i} * heads * d);
    }
  } else {
    ops_.linear(w.q, gathered, n, gather_width_, q, heads * d);
    if (spec_.qk_norm == QkNorm::per_head) {
      // [tokens, heads, d] is [tokens·heads, d]: one norm per head.
      ops_.rms_norm(q, n * heads, d, d, w.q_norm.data(), spec_.rms_eps, q, d);
    }
    if (spec_.clip_qkv > 0) clamp_rows(q, n, heads * d, heads * d, spec_.clip_qkv);
    ops_.rope(q, n, heads * d, heads, d, spec_.rope.dim, spec_.rope.interleaved, batch.angles);
  }
  ops_.attention_gqa({batch.sequences, q, caches_.kv[sz(layer)], heads, weights_->kv_heads, d,
                      static_cast<float>(spec_.attention_scale), spec_.window_of(layer),
                      w.sinks.empty() ? nullptr : w.sinks.data(), out_.data()});
}

void AttentionSide::attend_mla(int layer, const BatchRows& batch, const float* gathered,
                               const int32_t* selected) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  const int heads = weights_->heads;
  const int qk = spec_.qk_head();
  float* q = q_.data();
  ops_.linear(spec_.q_lora > 0 ? w.q_b : w.q, gathered, batch.tokens, gather_width_, q, heads * qk);
  ops_.rope(q + spec_.qk_nope, batch.tokens, heads * qk, heads, qk, spec_.rope.dim,
            spec_.rope.interleaved, batch.angles);
  ops_.attention_mla({batch.sequences, q, caches_.kv[sz(layer)], w.mla_heads, spec_.qk_nope,
                      spec_.qk_rope, spec_.v_head, spec_.kv_lora,
                      static_cast<float>(spec_.attention_scale), selected, spec_.index_topk,
                      out_.data()});
}

void AttentionSide::attend(int layer, const BatchRows& batch, const float* gathered,
                           const int32_t* selected, float* partial) {
  if (spec_.attention == AttentionKind::gqa) {
    attend_gqa(layer, batch, gathered);
  } else {
    attend_mla(layer, batch, gathered, selected);
  }
  const Matrix& o = weights_->layers[sz(layer)].o;
  ops_.linear(o, out_.data(), batch.tokens, o.k, partial, spec_.hidden);
}

void AttentionSide::route(int layer, int n, const float* h, float* x, int32_t* ids,
                          float* weights) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  ops_.rms_norm(h, n, spec_.hidden, spec_.hidden, w.post_norm.data(), spec_.rms_eps, x,
                spec_.hidden);
  ops_.linear(w.router, x, n, spec_.hidden, logits_.data(), spec_.experts);
  ops_.route(spec_.router, spec_.experts, spec_.top_k, logits_.data(),
             w.router_bias.empty() ? nullptr : w.router_bias.data(), n, ids, weights);
}

void AttentionSide::shared(int layer, int n, const float* x, float* out) {
  if (spec_.shared_intermediate == 0) {
    std::fill(out, out + static_cast<int64_t>(n) * spec_.hidden, 0.0f);
    return;
  }
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  ops_.ffn(w.shared, x, n, out);
  if (!spec_.shared_gate) return;
  ops_.linear(w.shared_gate, x, n, spec_.hidden, logits_.data(), 1);
  for (int i = 0; i < n; ++i, out += spec_.hidden) {
    const float gate = 1.0f / (1.0f + std::exp(-logits_[sz(i)]));
    for (int j = 0; j < spec_.hidden; ++j) out[j] *= gate;
  }
}

void AttentionSide::dense(int layer, int n, float* h) {
  const AttentionLayerWeights& w = weights_->layers[sz(layer)];
  const int64_t elements = static_cast<int64_t>(n) * spec_.hidden;
  ops_.rms_norm(h, n, spec_.hidden, spec_.hidden, w.post_norm.data(), spec_.rms_eps, x_.data(),
                spec_.hidden);
  ops_.ffn(w.dense, x_.data(), n, y_.data());
  for (int64_t i = 0; i < elements; ++i) h[i] += y_[sz(i)];
}

void AttentionSide::final_norm(int n, const float* h, float* x) const {
  ops_.rms_norm(h, n, spec_.hidden, spec_.hidden, weights_->final_norm.data(), spec_.rms_eps, x,
                spec_.hidden);
}

void AttentionSide::head(int n, const float* x, float* logits) const {
  ops_.linear(weights_->lm_head, x, n, spec_.hidden, logits, weights_->vocab.size());
}

}  // namespace asap
