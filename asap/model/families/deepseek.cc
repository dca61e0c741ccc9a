// DeepSeek-V2, V3 and V3.2 and their kin: multi-head latent attention, expert groups, leading dense
// layers, shared experts. V3 scores experts by sigmoid with a selection bias; V3.2 adds the
// sparse-attention indexer. Kimi-K2 is V3 with one group; GLM-5 is V3.2 with other sizes, no
// groups, an interleaved indexer and layers that share a selection. Keys that are missing take the
// defaults of the released models.
#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

void read_moe(JsonReader& config, int first_sparse, const GroupedRouterDefaults& router,
              ModelSpec* spec) {
  read_experts(config, "n_routed_experts", "moe_intermediate_size", spec);
  read_shared_experts(config, spec);
  read_grouped_router(config, router, spec);
  read_leading_dense_layers(config, first_sparse, spec);
}

// Softmax over all experts; plain top-k, or within the groups whose best expert is best.
void read_v2_router(JsonReader& config, ModelSpec* spec) {
  RouterSpec& router = spec->router;
  router.score = RouterScore::softmax;
  router.group_score = GroupScore::max;
  router.normalize = config.boolean_or("norm_topk_prob", false);
  router.scale = config.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6);
  require_string(config, "scoring_func", "softmax");
  const std::string method = config.string_or("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    read_groups(config, {}, spec);
  } else if (method != "greedy") {
    config.problem("topk_method",
                   fmt::format("is {}; this family is supported with \"greedy\" and "
                               "\"group_limited_greedy\"",
                               shown(method)),
                   Code::unsupported);
  }
}

void read_v2(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec);
  read_mla(config, {}, spec);
  read_experts(config, "n_routed_experts", "moe_intermediate_size", spec);
  read_shared_experts(config, spec);
  read_v2_router(config, spec);
  read_leading_dense_layers(config, 0, spec);
}

void read_v3(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec);
  read_mla(config, {}, spec);
  read_moe(config, 3, {.groups = 8, .top_groups = 4, .scale = 2.5}, spec);
}

void read_v32(JsonReader& config, ModelSpec* spec) {
  read_v3(config, spec);
  read_indexer(config, 64, false, spec);
}

void read_kimi_k2(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec);
  read_mla(config, {.theta = 5e4}, spec);
  read_moe(config, 1, {.scale = 2.827}, spec);
}

void read_glm_moe_dsa(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec, 1e-5);
  read_mla(config, {.q_lora = 2048, .qk_nope = 192, .v_head = 256}, spec);
  read_moe(config, 3, {.scale = 2.5}, spec);
  read_indexer(config, 32, true, spec);
}

}  // namespace

constinit const Family kDeepseekV2 = {"deepseek_v2", "DeepseekV2ForCausalLM", &read_v2, {}};
constinit const Family kDeepseekV3 = {"deepseek_v3", "DeepseekV3ForCausalLM", &read_v3, {}};
constinit const Family kDeepseekV32 = {"deepseek_v32", "DeepseekV32ForCausalLM", &read_v32, {}};
constinit const Family kKimiK2 = {"kimi_k2", "DeepseekV3ForCausalLM", &read_kimi_k2, {}};
constinit const Family kGlmMoeDsa = {"glm_moe_dsa", "GlmMoeDsaForCausalLM", &read_glm_moe_dsa, {}};

}  // namespace asap
