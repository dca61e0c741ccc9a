// GLM-4.5, 4.6 and Air: grouped-query attention over half-rotary heads, with DeepSeek-V3's router
// and shared expert.
#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

void read(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec, 1e-5);
  read_gqa(config,
           {.qk_norm = config.boolean_or("use_qk_norm", false) ? QkNorm::per_head : QkNorm::none,
            .head_dim = 128,
            .partial_rotary = 0.5,
            .bias = BiasKind::qkv},
           spec);
  read_experts(config, "n_routed_experts", "moe_intermediate_size", spec);
  read_shared_experts(config, spec);
  read_grouped_router(config, {}, spec);
  read_leading_dense_layers(config, 1, spec);
}

}  // namespace

constinit const Family kGlm4Moe = {"glm4_moe", "Glm4MoeForCausalLM", &read, {}};

}  // namespace asap
