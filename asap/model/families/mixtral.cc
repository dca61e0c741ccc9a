// Mixtral: grouped-query attention without norms or biases, two of eight experts, weights that
// always sum to one.
#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

void read(JsonReader& config, ModelSpec* spec) {
  read_sizes(config, spec, 1e-5);
  read_gqa(config, {.theta = 1e6}, spec);
  if (config.has("sliding_window")) {
    read_windows(config, std::vector<uint8_t>(static_cast<size_t>(spec->layers), 1), spec);
  }
  read_experts(config, "num_local_experts", "intermediate_size", spec);
  spec->router.score = RouterScore::softmax;
  spec->router.normalize = true;
  all_layers_sparse(spec);
}

}  // namespace

constinit const Family kMixtral = {
    "mixtral",
    "MixtralForCausalLM",
    &read,
    {.moe = "block_sparse_moe.", .gate = "w1.weight", .up = "w3.weight", .down = "w2.weight"}};

}  // namespace asap
