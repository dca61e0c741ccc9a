// Qwen3-MoE: grouped-query attention with per-head q and k norms, a softmax router, no shared
// expert. Qwen2-MoE: q, k and v biases instead of the norms, and a shared expert behind a gate.
#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

// Layers from max_window_layers on slide, if any do.
void read_qwen_windows(JsonReader& config, int default_first, ModelSpec* spec) {
  if (!config.boolean_or("use_sliding_window", false)) return;
  const int first = config.integer_or("max_window_layers", default_first, 0, kMaxLayers);
  std::vector<uint8_t> sliding;
  for (int layer = 0; layer < spec->layers; ++layer) sliding.push_back(layer >= first ? 1 : 0);
  read_windows(config, sliding, spec);
}

void read_moe(JsonReader& config, ModelSpec* spec) {
  read_experts(config, "num_experts", "moe_intermediate_size", spec);
  spec->router.score = RouterScore::softmax;
  spec->router.normalize = config.boolean_or("norm_topk_prob", false);
  read_sparse_step(config, spec);
}

void read_qwen3(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec);
  read_gqa(config, {.qk_norm = QkNorm::per_head, .bias = BiasKind::qkvo}, spec);
  read_qwen_windows(config, 0, spec);  // transformers 5 has no max_window_layers here
  read_moe(config, spec);
}

void read_qwen2(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec);
  read_gqa(config, {.bias = BiasKind::qkv, .bias_key = "qkv_bias", .bias_default = true}, spec);
  read_qwen_windows(config, 28, spec);
  read_moe(config, spec);
  spec->shared_intermediate =
      config.integer("shared_expert_intermediate_size", 1, kMaxIntermediate);
  spec->shared_gate = true;
}

}  // namespace

constinit const Family kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM", &read_qwen3, {}};
constinit const Family kQwen2Moe = {
    "qwen2_moe", "Qwen2MoeForCausalLM", &read_qwen2, {.shared = "shared_expert."}};

}  // namespace asap
