// MiniMax-M2: grouped-query attention over half-rotary heads with q and k norms over all heads
// together, a sigmoid router with a selection bias and no groups, no shared expert.
#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

// Other kinds of attention were announced for this family; 1 is the full one.
void check_attention_types(JsonReader& config) {
  for (const int type : config.integers_or_empty("attn_type_list", 0, 1 << 20)) {
    if (type != 1) {
      config.problem("attn_type_list",
                     fmt::format("holds {}; supported is 1, full attention", type),
                     Code::unsupported);
    }
  }
}

void read(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec);
  const bool norms = config.boolean_or("use_qk_norm", true);
  read_gqa(config, {.qk_norm = norms ? QkNorm::full : QkNorm::none, .theta = 5e6, .head_dim = 128},
           spec);
  require_string(config, "qk_norm_type", "per_layer");
  check_attention_types(config);
  if (config.has("sliding_window")) {
    read_windows(config, std::vector<uint8_t>(static_cast<size_t>(spec->layers), 1), spec);
  }
  read_experts(config, "num_local_experts", "intermediate_size", spec);
  require_string(config, "scoring_func", "sigmoid");
  spec->router.score = RouterScore::sigmoid;
  spec->router.has_bias = config.boolean_or("use_routing_bias", true);
  spec->router.normalize = true;
  all_layers_sparse(spec);
}

}  // namespace

constinit const Family kMinimaxM2 = {"minimax_m2",
                                     "MiniMaxM2ForCausalLM",
                                     &read,
                                     {.moe = "block_sparse_moe.",
                                      .router_bias = "e_score_correction_bias",
                                      .gate = "w1.weight",
                                      .up = "w3.weight",
                                      .down = "w2.weight"}};

}  // namespace asap
