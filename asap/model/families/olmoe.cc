// OLMoE: grouped-query attention with q and k norms over all heads together, optional clamping of
// q, k and v, a softmax router.
#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

void read(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec, 1e-5);
  read_gqa(config, {.qk_norm = QkNorm::full, .bias = BiasKind::qkvo}, spec);
  spec->clip_qkv = config.number_or("clip_qkv", 0, 1e-6, 1e9);
  read_experts(config, "num_experts", "intermediate_size", spec);
  spec->router.score = RouterScore::softmax;
  spec->router.normalize = config.boolean_or("norm_topk_prob", false);
  all_layers_sparse(spec);
}

}  // namespace

constinit const Family kOlmoe = {"olmoe", "OlmoeForCausalLM", &read, {}};

}  // namespace asap
