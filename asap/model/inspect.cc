#include "asap/model/inspect.h"

#include <algorithm>
#include <vector>

#include "asap/base/check.h"
#include "asap/model/tensor.h"

namespace asap {

namespace {

// A weight matrix as far as counting goes. `kept`: quantised checkpoints leave it in bf16.
struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
  bool kept = false;

  int64_t size() const { return rows * cols; }
};
using Shapes = std::vector<Shape>;

int64_t blocks(int64_t n) {
  return (n + kScaleBlock - 1) / kScaleBlock;
}
int64_t divide_up(int64_t n, int64_t parts) {
  return (n + parts - 1) / parts;
}

int64_t count(const Shapes& shapes) {
  int64_t sum = 0;
  for (const Shape& shape : shapes) sum += shape.size();
  return sum;
}

uint64_t bytes(const Shapes& shapes, DType weights) {
  int64_t sum = 0;
  for (const Shape& shape : shapes) {
    const bool quantised = dtype_bits(weights) <= 8;
    const DType type = quantised && shape.kept ? DType::bf16 : weights;
    sum += shape.size() * static_cast<int64_t>(dtype_bits(type)) / 8;
    if (type == DType::f8_e4m3) sum += blocks(shape.rows) * blocks(shape.cols) * 4;
    if (type == DType::mxfp4) sum += shape.size() / kMxBlock;
    if (type == DType::i8) sum += shape.rows * 4;
  }
  return static_cast<uint64_t>(sum);
}

// Projections of one layer for `heads` query heads and `kv_heads` key-value heads.
Shapes attention_shapes(const ModelSpec& spec, int64_t heads, int64_t kv_heads) {
  const int64_t hidden = spec.hidden;
  const Shape o{hidden, heads * spec.v_head_width()};
  if (spec.attention == AttentionKind::gqa) {
    const Shape kv{kv_heads * spec.head_dim, hidden};
    return {{heads * spec.head_dim, hidden}, kv, kv, o};
  }
  Shapes out = {{spec.kv_lora + spec.qk_rope, hidden},
                {heads * (spec.qk_nope + spec.v_head), spec.kv_lora},
                o};
  if (spec.q_lora > 0) {
    out.push_back({spec.q_lora, hidden});
    out.push_back({heads * spec.qk_head(), spec.q_lora});
  } else {
    out.push_back({heads * spec.qk_head(), hidden});
  }
  return out;
}

Shapes indexer_shapes(const ModelSpec& spec) {
  if (spec.index_topk == 0) return {};
  return {{int64_t{spec.index_heads} * spec.index_dim, spec.q_lora},
          {spec.index_dim, spec.hidden},
          {spec.index_heads, spec.hidden, true}};
}

Shapes ffn_shapes(int64_t intermediate, int64_t hidden) {
  return {{intermediate, hidden}, {intermediate, hidden}, {hidden, intermediate}};
}

Shapes shared_shapes(const ModelSpec& spec) {
  return spec.shared_intermediate > 0 ? ffn_shapes(spec.shared_intermediate, spec.hidden)
                                      : Shapes{};
}

Shapes router_shapes(const ModelSpec& spec) {
  return {{spec.experts, spec.hidden, true}};
}
int64_t router_biases(const ModelSpec& spec) {
  return (spec.router.has_bias ? spec.experts : 0) + (spec.router.logit_bias ? spec.experts : 0);
}

// Biases of a layer's attention projections, and sinks.
int64_t attention_biases(const ModelSpec& spec) {
  const bool gqa = spec.attention == AttentionKind::gqa;
  int64_t out = spec.sinks ? spec.heads : 0;
  if (spec.o_bias) out += spec.hidden;
  if (!spec.qkv_bias) return out;
  return out + (gqa ? (int64_t{spec.heads} + 2 * spec.kv_heads) * spec.head_dim
                    : spec.q_lora + spec.kv_lora + spec.qk_rope);
}

int64_t expert_biases(const ModelSpec& spec) {
  return spec.expert_bias ? 2 * int64_t{spec.moe_intermediate} + spec.hidden : 0;
}

// Norm weights and biases of the whole model.
int64_t norm_count(const ModelSpec& spec) {
  int64_t layer = 2 * int64_t{spec.hidden};
  if (spec.attention == AttentionKind::mla) layer += spec.q_lora + spec.kv_lora;
  if (spec.qk_norm == QkNorm::per_head) layer += 2 * int64_t{spec.head_dim};
  if (spec.qk_norm == QkNorm::full) layer += (int64_t{spec.heads} + spec.kv_heads) * spec.head_dim;
  return layer * spec.layers + int64_t{spec.index_layers()} * 2 * spec.index_dim + spec.hidden;
}

// Mean over the tokens of a prompt of min(keys it sees, limit).
double mean_visible_keys(int64_t prompt_tokens, int64_t limit) {
  const auto s = static_cast<double>(prompt_tokens);
  const auto m = static_cast<double>(std::min(prompt_tokens, limit));
  return (m * (m + 1) / 2 + (s - m) * m) / s;
}

// Attention core of one token over all layers: scores and the sum of values.
double core_flops(const ModelSpec& spec, int64_t prompt_tokens) {
  const double heads = spec.heads;
  if (spec.index_topk > 0) {
    const double keys = mean_visible_keys(prompt_tokens, spec.index_topk);
    return spec.layers * 2 * keys * heads * (2.0 * spec.kv_lora + spec.qk_rope);
  }
  double keys = 0;  // of all layers
  for (int layer = 0; layer < spec.layers; ++layer) {
    const int window = spec.window_of(layer);
    keys += mean_visible_keys(prompt_tokens, window > 0 ? window : prompt_tokens);
  }
  return 2 * keys * heads * (spec.qk_head() + spec.v_head_width());
}

// The same of the indexer.
double indexer_flops(const ModelSpec& spec, int64_t prompt_tokens) {
  const double keys = mean_visible_keys(prompt_tokens, prompt_tokens);
  const double scores = 2 * keys * spec.index_heads * spec.index_dim;
  return spec.index_layers() * (2.0 * static_cast<double>(count(indexer_shapes(spec))) + scores);
}

}  // namespace

ParameterCount count_parameters(const ModelSpec& spec) {
  const int64_t moe = spec.moe_layers();
  ParameterCount out;
  out.embedding = int64_t{spec.vocab} * spec.hidden;
  out.head = spec.tied_embeddings ? 0 : out.embedding;
  out.norms = norm_count(spec);
  out.attention = spec.layers * count(attention_shapes(spec, spec.heads, spec.kv_heads));
  out.indexer = spec.index_layers() * count(indexer_shapes(spec));
  out.dense = (spec.layers - moe) * count(ffn_shapes(spec.dense_intermediate, spec.hidden));
  out.shared = moe * (count(shared_shapes(spec)) + (spec.shared_gate ? spec.hidden : 0));
  out.router = moe * (count(router_shapes(spec)) + router_biases(spec));
  out.per_expert = count(ffn_shapes(spec.moe_intermediate, spec.hidden));
  out.routed = moe * spec.experts * out.per_expert;
  const int64_t of_attention = spec.layers * attention_biases(spec);
  out.biases = of_attention + moe * spec.experts * expert_biases(spec);
  const int64_t always = out.head + out.norms + of_attention + out.attention + out.indexer +
                         out.dense + out.shared + out.router;
  out.total = out.embedding + always + out.routed + (out.biases - of_attention);
  out.active = always + moe * spec.top_k * (out.per_expert + expert_biases(spec));
  if (spec.tied_embeddings) out.active += out.embedding;
  return out;
}

AttentionRankBytes attention_rank_bytes(const ModelSpec& spec, int ranks, DType weights) {
  CHECK(ranks > 0, "{} ranks", ranks);
  const auto layers = static_cast<uint64_t>(spec.layers);
  const auto moe = static_cast<uint64_t>(spec.moe_layers());
  const int64_t heads = divide_up(spec.heads, ranks);
  const int64_t kv_heads = divide_up(spec.kv_heads, ranks);
  AttentionRankBytes out;
  out.embedding = bytes({{spec.vocab, spec.hidden, true}}, weights);
  out.head = bytes({{divide_up(spec.vocab, ranks), spec.hidden, true}}, weights);
  out.norms = static_cast<uint64_t>(norm_count(spec)) * sizeof(float);
  out.attention = layers * (bytes(attention_shapes(spec, heads, kv_heads), weights) +
                            static_cast<uint64_t>(attention_biases(spec)) * sizeof(float)) +
                  static_cast<uint64_t>(spec.index_layers()) * bytes(indexer_shapes(spec), weights);
  out.dense = (layers - moe) * bytes(ffn_shapes(spec.dense_intermediate, spec.hidden), weights);
  out.shared = moe * bytes(shared_shapes(spec), weights);
  out.router = moe * (bytes(router_shapes(spec), weights) +
                      static_cast<uint64_t>(router_biases(spec)) * sizeof(float));
  return out;
}

uint64_t expert_bytes(const ModelSpec& spec, DType weights) {
  return bytes(ffn_shapes(spec.moe_intermediate, spec.hidden), weights);
}

uint64_t expert_rank_bytes(const ModelSpec& spec, int ranks, DType weights) {
  CHECK(ranks > 0, "{} ranks", ranks);
  const auto own = static_cast<uint64_t>(divide_up(spec.experts, ranks));
  return static_cast<uint64_t>(spec.moe_layers()) * own * expert_bytes(spec, weights);
}

CacheBytes token_cache_bytes(const ModelSpec& spec, DType cache) {
  const bool f8 = cache == DType::f8_e4m3;
  const auto element = static_cast<int64_t>(dtype_bytes(cache));
  int64_t keys_values = 0;
  if (spec.attention == AttentionKind::gqa) {
    keys_values = 2 * int64_t{spec.kv_heads} * spec.head_dim * element;
  } else if (f8) {
    keys_values = spec.kv_lora + 4 * blocks(spec.kv_lora) + 2 * int64_t{spec.qk_rope};
  } else {
    keys_values = (int64_t{spec.kv_lora} + spec.qk_rope) * element;
  }
  int64_t index = 0;
  if (spec.index_topk > 0) index = spec.index_dim * element + (f8 ? 4 : 0);
  return {static_cast<uint64_t>(keys_values * spec.layers),
          static_cast<uint64_t>(index * spec.index_layers())};
}

TokenFlops flops_per_token(const ModelSpec& spec, int64_t prompt_tokens) {
  CHECK(prompt_tokens > 0, "{} tokens", prompt_tokens);
  const double moe = spec.moe_layers();
  const auto projections =
      static_cast<double>(count(attention_shapes(spec, spec.heads, spec.kv_heads)));
  const auto expert = static_cast<double>(count(ffn_shapes(spec.moe_intermediate, spec.hidden)));
  const auto dense = static_cast<double>(count(ffn_shapes(spec.dense_intermediate, spec.hidden)));
  TokenFlops out;
  out.attention = spec.layers * 2 * projections + core_flops(spec, prompt_tokens) +
                  indexer_flops(spec, prompt_tokens);
  out.moe = 2 * moe *
            (spec.top_k * expert + static_cast<double>(count(shared_shapes(spec))) +
             static_cast<double>(count(router_shapes(spec))));
  out.dense = 2 * (spec.layers - moe) * dense;
  out.head_per_prompt = 2.0 * spec.hidden * spec.vocab;
  return out;
}

}  // namespace asap
