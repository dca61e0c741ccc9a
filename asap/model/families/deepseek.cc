// DeepSeek-V3 and V3.2: multi-head latent attention, a sigmoid router with a selection bias and
// expert groups, leading dense layers, a shared expert; V3.2 adds the sparse-attention indexer.
// Keys that are missing take the defaults of the released models.
#include <algorithm>
#include <cmath>

#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

void read_mla(JsonReader& config, ModelSpec* spec) {
  spec->attention = AttentionKind::mla;
  // null means one undivided q_proj; a missing key means the default.
  spec->q_lora =
      config.is_null("q_lora_rank") ? 0 : config.integer_or("q_lora_rank", 1536, 1, kMaxHidden);
  spec->kv_lora = config.integer_or("kv_lora_rank", 512, 1, kMaxHidden);
  spec->qk_nope = config.integer_or("qk_nope_head_dim", 128, 1, kMaxHeadWidth);
  spec->qk_rope = config.integer_or("qk_rope_head_dim", 64, 2, kMaxHeadWidth);
  spec->v_head = config.integer_or("v_head_dim", 128, 1, kMaxHeadWidth);
  if (spec->qk_rope % 2 != 0) {
    config.problem("qk_rope_head_dim", fmt::format("is {}; it must be even", spec->qk_rope));
  }
  refuse_if_true(config, "attention_bias");
  const double factor = read_rope(config, 1e4, spec->max_positions, &spec->rope);
  spec->rope.dim = spec->qk_rope;
  spec->rope.interleaved = config.boolean_or("rope_interleave", true);
  spec->attention_scale = factor / std::sqrt(static_cast<double>(spec->qk_head()));
}

void read_router(JsonReader& config, ModelSpec* spec) {
  RouterSpec& router = spec->router;
  router.score = RouterScore::sigmoid;
  router.has_bias = true;
  router.normalize = config.boolean_or("norm_topk_prob", true);
  router.scale = config.number_or("routed_scaling_factor", 2.5, 1e-6, 1e6);
  router.groups = config.is_null("n_group") ? 1 : config.integer_or("n_group", 8, 1, spec->experts);
  router.top_groups = config.integer_or(
      "topk_group", config.is_null("topk_group") ? router.groups : std::min(4, router.groups), 1,
      router.groups);
  // A group's score is the sum of its two best experts.
  if (router.groups > 1 &&
      (spec->experts % router.groups != 0 || spec->experts / router.groups < 2)) {
    config.problem("n_group", fmt::format("is {}; it must divide the {} experts of "
                                          "n_routed_experts into groups of at least 2",
                                          router.groups, spec->experts));
  }
  const std::string score = config.string_or("scoring_func", "sigmoid");
  if (score != "sigmoid") {
    config.problem("scoring_func",
                   fmt::format("is {}; this family is supported with \"sigmoid\"", shown(score)),
                   Code::unsupported);
  }
  const std::string method = config.string_or("topk_method", "noaux_tc");
  if (method != "noaux_tc") {
    config.problem("topk_method",
                   fmt::format("is {}; this family is supported with \"noaux_tc\"", shown(method)),
                   Code::unsupported);
  }
}

void read_moe(JsonReader& config, ModelSpec* spec) {
  spec->experts = config.integer("n_routed_experts", 1, kMaxExperts);
  spec->top_k = config.integer("num_experts_per_tok", 1, kMaxTopK);
  spec->moe_intermediate = config.integer("moe_intermediate_size", 1, kMaxIntermediate);
  const int shared = config.is_null("n_shared_experts")
                         ? 0
                         : config.integer_or("n_shared_experts", 1, 0, kMaxTopK);
  spec->shared_intermediate = shared * spec->moe_intermediate;
  spec->dense_intermediate = config.integer_or("intermediate_size", 0, 1, kMaxIntermediate);
  read_router(config, spec);
  if (read_mlp_layer_types(config, spec)) return;
  const int first = config.integer_or("first_k_dense_replace", 3, 0, spec->layers);
  const int every = config.integer_or("moe_layer_freq", 1, 1, kMaxLayers);
  for (int layer = 0; layer < spec->layers; ++layer) {
    spec->moe_layer.push_back(layer >= first && layer % every == 0 ? 1 : 0);
  }
}

void read_v3(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec);
  read_mla(config, spec);
  read_moe(config, spec);
}

void read_v32(JsonReader& config, ModelSpec* spec) {
  read_v3(config, spec);
  spec->index_heads = config.integer_or("index_n_heads", 64, 1, kMaxHeads);
  spec->index_dim = config.integer_or("index_head_dim", 128, 2, kMaxHeadWidth);
  spec->index_topk = config.integer_or("index_topk", 2048, 1, kMaxPositions);
  spec->index_rope = spec->rope;
  spec->index_rope.interleaved = config.boolean_or("indexer_rope_interleave", false);
  spec->index_rope.amplitude = 1.0;
  if (spec->q_lora == 0) {
    config.problem("q_lora_rank", "is null; the sparse-attention indexer needs the query latent",
                   Code::unsupported);
  }
  if (spec->index_dim < spec->qk_rope) {
    config.problem("index_head_dim", fmt::format("is {}; it must be at least qk_rope_head_dim, {}",
                                                 spec->index_dim, spec->qk_rope));
  }
}

}  // namespace

constinit const Family kDeepseekV3 = {"deepseek_v3", "DeepseekV3ForCausalLM", &read_v3, {}};
constinit const Family kDeepseekV32 = {"deepseek_v32", "DeepseekV32ForCausalLM", &read_v32, {}};

}  // namespace asap
