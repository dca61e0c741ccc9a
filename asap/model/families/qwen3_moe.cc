// Qwen3-MoE: grouped-query attention with per-head q and k norms, a softmax router, no shared
// expert.
#include <cmath>

#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

void read_gqa(JsonReader& config, ModelSpec* spec) {
  spec->attention = AttentionKind::gqa;
  spec->qk_norm_per_head = true;
  spec->kv_heads = config.integer_or("num_key_value_heads", spec->heads, 1, spec->heads);
  if (spec->heads % spec->kv_heads != 0) {
    config.problem("num_key_value_heads", fmt::format("is {}; it must divide num_attention_heads, "
                                                      "{}",
                                                      spec->kv_heads, spec->heads));
  }
  spec->head_dim = config.integer_or("head_dim", spec->hidden / spec->heads, 2, kMaxHeadWidth);
  if (spec->head_dim < 2 || spec->head_dim % 2 != 0) {
    config.problem("head_dim",
                   fmt::format("is {}; it must be even and at least 2", spec->head_dim));
    spec->head_dim = 2;
  }
  refuse_if_true(config, "attention_bias");
  refuse_if_true(config, "use_sliding_window");
  read_rope(config, 1e4, spec->max_positions, &spec->rope);
  spec->rope.dim = spec->head_dim;
  spec->attention_scale = 1.0 / std::sqrt(static_cast<double>(spec->head_dim));
}

void read_moe(JsonReader& config, ModelSpec* spec) {
  spec->experts = config.integer("num_experts", 1, kMaxExperts);
  spec->top_k = config.integer("num_experts_per_tok", 1, kMaxTopK);
  spec->moe_intermediate = config.integer("moe_intermediate_size", 1, kMaxIntermediate);
  spec->dense_intermediate = config.integer_or("intermediate_size", 0, 1, kMaxIntermediate);
  spec->router.score = RouterScore::softmax;
  spec->router.normalize = config.boolean_or("norm_topk_prob", false);
  if (read_mlp_layer_types(config, spec)) return;
  const int every = config.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  for (int layer = 0; layer < spec->layers; ++layer) {
    spec->moe_layer.push_back((layer + 1) % every == 0 ? 1 : 0);
  }
  for (const int layer : config.integers_or_empty("mlp_only_layers", 0, spec->layers - 1)) {
    spec->moe_layer[static_cast<size_t>(layer)] = 0;
  }
}

void read(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec);
  read_gqa(config, spec);
  read_moe(config, spec);
}

}  // namespace

constinit const Family kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM", &read, {}};

}  // namespace asap
