// Family: how one dialect of config.json and of tensor names becomes a ModelSpec and ModelWeights.
//
// A family costs one small file that describes; the forward pass, the ops and the loader are
// shared. To add one: write families/<name>.cc with a `constinit const Family`, declare it below,
// and add it to the list in registry.cc.
#pragma once

#include <span>
#include <string>

#include "asap/model/json_reader.h"
#include "asap/model/spec.h"

namespace asap {

// Where the tensors of a layer are, relative to "model.layers.N.". The defaults are what most
// families use.
struct TensorNames {
  const char* attention = "self_attn.";
  const char* dense = "mlp.";  // FFN of a dense layer
  const char* moe = "mlp.";    // parent of the router, the experts and the shared expert
  const char* router = "gate.weight";
  const char* router_bias = "gate.e_score_correction_bias";  // for the selection only
  const char* router_logit_bias = "router.bias";
  const char* shared = "shared_experts.";
  const char* shared_gate = "shared_expert_gate.weight";
  const char* gate = "gate_proj.weight";  // the three matrices of every FFN
  const char* up = "up_proj.weight";
  const char* down = "down_proj.weight";
  // Fused expert tensors hold gate and up rows in turns, and unquantised ones are transposed; else
  // all gate rows come before all up rows.
  bool interleaved = false;
};

struct Family {
  const char* model_type;    // of config.json
  const char* architecture;  // architectures[0]; identifies the family if model_type is missing
  // Fills `spec`; whatever is wrong is left in config.status().
  void (*read)(JsonReader& config, ModelSpec* spec);
  TensorNames names;
};

extern const Family kDeepseekV2;
extern const Family kDeepseekV3;
extern const Family kDeepseekV32;
extern const Family kKimiK2;
extern const Family kGlmMoeDsa;
extern const Family kGlm4Moe;
extern const Family kQwen2Moe;
extern const Family kQwen3Moe;
extern const Family kMixtral;
extern const Family kOlmoe;
extern const Family kGptOss;
extern const Family kMinimaxM2;

// Every family, in the order in which messages list them.
std::span<const Family* const> families();
// Null if unknown.
const Family* find_family(const std::string& model_type);

}  // namespace asap
