#include "asap/model/families/common.h"

#include <cmath>

namespace asap {

namespace {

// M(s, k) of YaRN.
double yarn_mscale(double scale, double k) {
  return scale <= 1 ? 1.0 : 0.1 * k * std::log(scale) + 1.0;
}

// FP8 with 128×128 blocks is dequantised when it is read; anything else is named and refused.
void check_quantization(JsonReader& config) {
  const char* key = "quantization_config";
  if (!config.has(key)) return;
  if (!config.raw(key).is_object()) {
    config.problem(key, fmt::format("is {}; it must be an object", shown(config.raw(key))));
    return;
  }
  JsonReader quantization(config.raw(key), config.file() + ": " + key);
  const std::string method = quantization.string_or("quant_method", "");
  if (method != "fp8") {
    quantization.problem("quant_method",
                         fmt::format("is {}; supported is \"fp8\" with 128x128 blocks: use such a "
                                     "copy of the model, or an unquantised one",
                                     shown(method)),
                         Code::unsupported);
  }
  const std::vector<int> block = quantization.integers_or_empty("weight_block_size", 1, 1 << 20);
  if (block != std::vector<int>{128, 128}) {
    quantization.problem("weight_block_size",
                         fmt::format("is [{}]; supported is [128, 128]", fmt::join(block, ", ")),
                         Code::unsupported);
  }
  config.adopt(quantization.status());
}

DType read_dtype(JsonReader& config) {
  const char* key = config.has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = config.string_or(key, "bfloat16");
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    if (name == dtype_name(type)) return type;
  }
  config.problem(key,
                 fmt::format("is {}; supported are bfloat16, float16 and float32", shown(name)),
                 Code::unsupported);
  return DType::bf16;
}

// Fills YaRN's part of `rope` from the scaling object; returns M(factor, mscale_all_dim)².
double read_yarn(JsonReader& scaling, double max_positions, RopeSpec* rope) {
  rope->yarn = true;
  rope->original_max_positions =
      scaling.number_or("original_max_position_embeddings", max_positions, 1, kMaxPositions);
  rope->factor =
      scaling.number_or("factor", max_positions / rope->original_max_positions, 1e-3, 1e6);
  rope->beta_fast = scaling.number_or("beta_fast", 32, 1e-3, 1e6);
  rope->beta_slow = scaling.number_or("beta_slow", 1, 1e-3, 1e6);
  if (rope->beta_fast < rope->beta_slow) {
    scaling.problem("beta_fast", fmt::format("is {}; it must be at least beta_slow, {}",
                                             rope->beta_fast, rope->beta_slow));
  }
  rope->truncate = scaling.boolean_or("truncate", true);
  const double mscale = scaling.number_or("mscale", 0, 0, 1e3);
  const double all_dim = scaling.number_or("mscale_all_dim", 0, 0, 1e3);
  const double amplitude = mscale != 0 && all_dim != 0 ? yarn_mscale(rope->factor, mscale) /
                                                             yarn_mscale(rope->factor, all_dim)
                                                       : yarn_mscale(rope->factor, 1);
  rope->amplitude = scaling.number_or("attention_factor", amplitude, 1e-6, 1e6);
  return all_dim != 0 ? std::pow(yarn_mscale(rope->factor, all_dim), 2) : 1.0;
}

}  // namespace

void read_sizes(JsonReader& config, ModelSpec* spec) {
  spec->hidden = config.integer("hidden_size", 1, kMaxHidden);
  spec->layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  spec->vocab = config.integer("vocab_size", 1, kMaxVocab);
  spec->heads = config.integer("num_attention_heads", 1, kMaxHeads);
  spec->max_positions = config.integer_or("max_position_embeddings", 4096, 1, kMaxPositions);
  spec->rms_eps = config.number_or("rms_norm_eps", 1e-6, 1e-12, 1e-2);
  spec->tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  spec->stored_dtype = read_dtype(config);
  spec->eos_ids = config.integers_or_empty("eos_token_id", 0, kMaxVocab);
  spec->bos_id = config.integer_or("bos_token_id", -1, -1, kMaxVocab);
  const std::string activation = config.string_or("hidden_act", "silu");
  if (activation != "silu") {
    config.problem("hidden_act", fmt::format("is {}; supported is \"silu\"", shown(activation)),
                   Code::unsupported);
  }
  check_quantization(config);
}

double read_rope(JsonReader& config, double default_theta, int max_positions, RopeSpec* rope) {
  constexpr double kMinTheta = 2, kMaxTheta = 1e12;
  rope->theta = config.number_or("rope_theta", default_theta, kMinTheta, kMaxTheta);
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) return 1.0;
  if (!config.raw(key).is_object()) {
    config.problem(key, fmt::format("is {}; it must be an object", shown(config.raw(key))));
    return 1.0;
  }
  JsonReader scaling(config.raw(key), config.file() + ": " + key);
  rope->theta = scaling.number_or("rope_theta", rope->theta, kMinTheta, kMaxTheta);
  const char* type_key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.string_or(type_key, "default");
  double scale = 1.0;
  if (type == "yarn" || type == "deepseek_yarn") {
    scale = read_yarn(scaling, max_positions, rope);
  } else if (type != "default") {
    scaling.problem(type_key,
                    fmt::format("is {}; supported are \"default\" and \"yarn\"", shown(type)),
                    Code::unsupported);
  }
  config.adopt(scaling.status());
  return scale;
}

bool read_mlp_layer_types(JsonReader& config, ModelSpec* spec) {
  const char* key = "mlp_layer_types";
  if (!config.has(key)) return false;
  const nlohmann::json& types = config.raw(key);
  spec->moe_layer.assign(static_cast<size_t>(spec->layers), 1);
  if (!types.is_array() || types.size() != spec->moe_layer.size()) {
    config.problem(key, fmt::format("is {}; it must list one entry for each of {} layers",
                                    shown(types), spec->layers));
    return true;
  }
  for (size_t layer = 0; layer < types.size(); ++layer) {
    const std::string type = types[layer].is_string() ? types[layer].get<std::string>() : "";
    if (type != "sparse" && type != "dense") {
      config.problem(key,
                     fmt::format("holds {}; use \"sparse\" or \"dense\"", shown(types[layer])));
    }
    spec->moe_layer[layer] = type == "sparse" ? 1 : 0;
  }
  return true;
}

void refuse_if_true(JsonReader& config, const char* key) {
  if (config.boolean_or(key, false)) {
    config.problem(key, "is true; this family is supported with false only", Code::unsupported);
  }
}

}  // namespace asap
