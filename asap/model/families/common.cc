#include "asap/model/families/common.h"

#include <algorithm>
#include <cmath>

namespace asap {

namespace {

// M(s, k) of YaRN.
double yarn_mscale(double scale, double k) {
  return scale <= 1 ? 1.0 : 0.1 * k * std::log(scale) + 1.0;
}

// FP8 with 128×128 blocks, MXFP4 and int8 are known by their tensors; anything else is named and
// refused.
void check_quantization(JsonReader& config, ModelSpec* spec) {
  const char* key = "quantization_config";
  if (!config.has(key)) return;
  if (!config.raw(key).is_object()) {
    config.problem(key, fmt::format("is {}; it must be an object", shown(config.raw(key))));
    return;
  }
  JsonReader quantization(config.raw(key), config.file() + ": " + key);
  const std::string method = quantization.string_or("quant_method", "");
  const std::vector<int> block = quantization.integers_or_empty("weight_block_size", 1, 1 << 20);
  if (method == "compressed-tensors") {
    check_int_quantized(quantization);
  } else if (method != "fp8" && method != "mxfp4") {
    quantization.problem("quant_method",
                         fmt::format("is {}; supported are \"fp8\" with 128x128 blocks, \"mxfp4\" "
                                     "and \"compressed-tensors\" with int8: use such a copy of the "
                                     "model, or an unquantised one",
                                     shown(method)),
                         Code::unsupported);
  } else if (method == "fp8" && block != std::vector<int>{128, 128}) {
    quantization.problem("weight_block_size",
                         fmt::format("is [{}]; supported is [128, 128]", fmt::join(block, ", ")),
                         Code::unsupported);
  }
  spec->fp8_ue8m0 = quantization.string_or("scale_fmt", "") == "ue8m0";
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

void read_sizes(JsonReader& config, ModelSpec* spec, double default_rms_eps) {
  spec->hidden = config.integer("hidden_size", 1, kMaxHidden);
  spec->layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  spec->vocab = config.integer("vocab_size", 1, kMaxVocab);
  spec->heads = config.integer("num_attention_heads", 1, kMaxHeads);
  spec->max_positions = config.integer_or("max_position_embeddings", 4096, 1, kMaxPositions);
  spec->rms_eps = config.number_or("rms_norm_eps", default_rms_eps, 1e-12, 1e-2);
  spec->tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  spec->stored_dtype = read_dtype(config);
  spec->eos_ids = config.integers_or_empty("eos_token_id", 0, kMaxVocab);
  spec->bos_id = config.integer_or("bos_token_id", -1, -1, kMaxVocab);
  const std::string activation = config.string_or("hidden_act", "silu");
  if (activation != "silu") {
    config.problem("hidden_act", fmt::format("is {}; supported is \"silu\"", shown(activation)),
                   Code::unsupported);
  }
  check_quantization(config, spec);
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

namespace {

// mlp_layer_types of the newer key style. False if the key is missing.
bool read_mlp_layer_types(JsonReader& config, ModelSpec* spec) {
  const char* key = "mlp_layer_types";
  if (!config.has(key)) return false;
  const auto sparse = read_choices(config, key, spec->layers, "dense", "sparse");
  spec->moe_layer = sparse;
  return true;
}

}  // namespace

std::vector<uint8_t> read_choices(JsonReader& config, const char* key, int count, const char* zero,
                                  const char* one) {
  std::vector<uint8_t> out(static_cast<size_t>(count), 0);
  const nlohmann::json& list = config.raw(key);
  if (!list.is_array() || list.size() < out.size()) {
    config.problem(key, fmt::format("is {}; it must list one entry for each of {} layers",
                                    shown(list), count));
    return out;
  }
  for (size_t layer = 0; layer < out.size(); ++layer) {
    const std::string type = list[layer].is_string() ? list[layer].get<std::string>() : "";
    if (type != zero && type != one) {
      config.problem(key,
                     fmt::format("holds {}; use \"{}\" or \"{}\"", shown(list[layer]), zero, one));
    }
    out[layer] = type == one ? 1 : 0;
  }
  return out;
}

void read_experts(JsonReader& config, const char* count_key, const char* width_key,
                  ModelSpec* spec) {
  // A family's key may have changed: transformers 5 saves Qwen3-MoE's number as num_local_experts.
  for (const char* other : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (!config.has(count_key) && config.has(other)) count_key = other;
  }
  spec->experts = config.integer(count_key, 1, kMaxExperts);
  spec->top_k = config.integer("num_experts_per_tok", 1, kMaxTopK);
  spec->moe_intermediate = config.integer(width_key, 1, kMaxIntermediate);
}

void read_shared_experts(JsonReader& config, ModelSpec* spec) {
  const int shared = config.is_null("n_shared_experts")
                         ? 0
                         : config.integer_or("n_shared_experts", 1, 0, kMaxTopK);
  spec->shared_intermediate = shared * spec->moe_intermediate;
}

void read_groups(JsonReader& config, const GroupedRouterDefaults& defaults, ModelSpec* spec) {
  RouterSpec& router = spec->router;
  router.groups = config.is_null("n_group")
                      ? 1
                      : config.integer_or("n_group", defaults.groups, 1, spec->experts);
  router.top_groups = config.integer_or(
      "topk_group",
      config.is_null("topk_group") ? router.groups : std::min(defaults.top_groups, router.groups),
      1, router.groups);
  const int least = router.group_score == GroupScore::top2_sum ? 2 : 1;
  if (router.groups > 1 &&
      (spec->experts % router.groups != 0 || spec->experts / router.groups < least)) {
    config.problem("n_group", fmt::format("is {}; it must divide the {} experts into groups of at "
                                          "least {}",
                                          router.groups, spec->experts, least));
  }
}

void read_grouped_router(JsonReader& config, const GroupedRouterDefaults& defaults,
                         ModelSpec* spec) {
  RouterSpec& router = spec->router;
  router.score = RouterScore::sigmoid;
  router.has_bias = true;
  router.normalize = config.boolean_or("norm_topk_prob", true);
  router.scale = config.number_or("routed_scaling_factor", defaults.scale, 1e-6, 1e6);
  read_groups(config, defaults, spec);
  require_string(config, "scoring_func", "sigmoid");
  require_string(config, "topk_method", "noaux_tc");
}

void read_leading_dense_layers(JsonReader& config, int default_first, ModelSpec* spec) {
  spec->dense_intermediate = config.integer_or("intermediate_size", 0, 1, kMaxIntermediate);
  if (read_mlp_layer_types(config, spec)) return;
  const int first = config.integer_or("first_k_dense_replace", default_first, 0, kMaxLayers);
  const int every = config.integer_or("moe_layer_freq", 1, 1, kMaxLayers);
  for (int layer = 0; layer < spec->layers; ++layer) {
    spec->moe_layer.push_back(layer >= first && layer % every == 0 ? 1 : 0);
  }
}

void read_sparse_step(JsonReader& config, ModelSpec* spec) {
  spec->dense_intermediate = config.integer_or("intermediate_size", 0, 1, kMaxIntermediate);
  if (read_mlp_layer_types(config, spec)) return;
  const int every = config.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  for (int layer = 0; layer < spec->layers; ++layer) {
    spec->moe_layer.push_back((layer + 1) % every == 0 ? 1 : 0);
  }
  for (const int layer : config.integers_or_empty("mlp_only_layers", 0, kMaxLayers)) {
    if (layer < spec->layers) spec->moe_layer[static_cast<size_t>(layer)] = 0;
  }
}

void all_layers_sparse(ModelSpec* spec) {
  spec->moe_layer.assign(static_cast<size_t>(spec->layers), 1);
}

void refuse_if_true(JsonReader& config, const char* key) {
  if (config.boolean_or(key, false)) {
    config.problem(key, "is true; this family is supported with false only", Code::unsupported);
  }
}

void require_string(JsonReader& config, const char* key, const char* value) {
  const std::string given = config.string_or(key, value);
  if (given == value) return;
  config.problem(key,
                 fmt::format("is {}; this family is supported with \"{}\"", shown(given), value),
                 Code::unsupported);
}

}  // namespace asap
