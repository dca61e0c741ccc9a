// gpt-oss: grouped-query attention with biases, sinks and every other layer sliding; a router with
// bias whose weights are the softmax of the selected logits; experts with biases and a clamped
// gate, stored as MXFP4 blocks.
#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

void read(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec, 1e-5);
  read_gqa(config, {.theta = 1.5e5, .head_dim = 64, .bias = BiasKind::qkvo, .bias_default = true},
           spec);
  spec->sinks = true;
  std::vector<uint8_t> sliding;
  for (int layer = 0; layer < spec->layers; ++layer) sliding.push_back(layer % 2 == 0 ? 1 : 0);
  read_windows(config, sliding, spec);
  read_experts(config, "num_local_experts", "intermediate_size", spec);
  spec->expert_bias = true;
  spec->glu = {.clamped = true,
               .alpha = config.number_or("swiglu_alpha", 1.702, 1e-3, 1e3),
               .limit = config.number_or("swiglu_limit", 7.0, 1e-3, 1e6)};
  spec->router.score = RouterScore::softmax_selected;
  spec->router.logit_bias = true;
  all_layers_sparse(spec);
}

}  // namespace

constinit const Family kGptOss = {
    "gpt_oss", "GptOssForCausalLM", &read, {.router = "router.weight", .interleaved = true}};

}  // namespace asap
