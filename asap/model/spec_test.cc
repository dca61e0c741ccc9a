#include "asap/model/spec.h"

#include <cmath>

#include "asap/model/model_configs.h"
#include "asap/model/test_support.h"

namespace asap {
namespace {

using Json = nlohmann::json;

// `base` with the keys of `patch` replaced (null removes nothing: it is a value here).
Result<ModelSpec> patched(const char* base, const Json& patch,
                          const std::vector<const char*>& without = {}) {
  Json config = Json::parse(base);
  for (const auto& [key, value] : patch.items()) config[key] = value;
  for (const char* key : without) config.erase(key);
  return parse_spec(config.dump(), "config.json");
}

ModelSpec spec_of(const Result<ModelSpec>& result) {
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(ModelSpec{});
}

TEST(Spec, ReadsDeepseekV32) {
  const ModelSpec spec = spec_of(parse_spec(kDeepseekV32Config, "config.json"));
  EXPECT_EQ(spec.model_type, "deepseek_v32");
  EXPECT_EQ(spec.architecture, "DeepseekV32ForCausalLM");
  EXPECT_EQ(spec.attention, AttentionKind::mla);
  EXPECT_EQ(spec.qk_head(), 192);
  EXPECT_EQ(spec.v_head_width(), 128);
  EXPECT_EQ(spec.moe_layers(), 58);
  EXPECT_EQ(spec.moe_layer[2], 0);
  EXPECT_EQ(spec.moe_layer[3], 1);
  EXPECT_EQ(spec.shared_intermediate, 2048);
  EXPECT_EQ(spec.router.groups, 8);
  EXPECT_EQ(spec.router.top_groups, 4);
  EXPECT_TRUE(spec.router.has_bias);
  EXPECT_EQ(spec.router.scale, 2.5);
  EXPECT_EQ(spec.index_topk, 2048);
  EXPECT_TRUE(spec.rope.interleaved);
  EXPECT_FALSE(spec.index_rope.interleaved);
  EXPECT_EQ(spec.index_rope.dim, 64);
  EXPECT_EQ(spec.rope.amplitude, 1.0);
  EXPECT_NEAR(spec.attention_scale, 0.1352338, 1e-7);
  EXPECT_NEAR(spec.attention_scale * std::sqrt(192.0), 1.8738542, 1e-7);
  EXPECT_EQ(spec.eos_ids, std::vector<int>{1});
}

TEST(Spec, ReadsQwen3) {
  const ModelSpec spec = spec_of(parse_spec(kQwen3Config, "config.json"));
  EXPECT_EQ(spec.attention, AttentionKind::gqa);
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.qk_norm, QkNorm::per_head);
  EXPECT_EQ(spec.moe_layers(), 48);
  EXPECT_EQ(spec.router.score, RouterScore::softmax);
  EXPECT_TRUE(spec.router.normalize);
  EXPECT_FALSE(spec.rope.interleaved);
  EXPECT_EQ(spec.rope.theta, 1e6);
  EXPECT_DOUBLE_EQ(spec.attention_scale, 1 / std::sqrt(128.0));
  EXPECT_EQ(spec.index_topk, 0);
}

TEST(Spec, ReadsTheNumberOfExpertsUnderItsOtherNames) {
  for (const char* key : {"num_local_experts", "n_routed_experts"}) {
    EXPECT_EQ(spec_of(patched(kQwen3Config, {{key, 64}}, {"num_experts"})).experts, 64) << key;
    EXPECT_EQ(spec_of(patched(kQwen3Config, {{key, 64}})).experts, 128) << key;
  }
}

TEST(Spec, ReadsBiasesAndWindows) {
  const ModelSpec spec = spec_of(patched(kQwen3Config, {{"attention_bias", true},
                                                        {"use_sliding_window", true},
                                                        {"sliding_window", 4096},
                                                        {"max_window_layers", 46}}));
  EXPECT_TRUE(spec.qkv_bias);
  EXPECT_TRUE(spec.o_bias);
  EXPECT_EQ(spec.window_of(45), 0);
  EXPECT_EQ(spec.window_of(46), 4096);
}

TEST(Spec, SlidesAllLayersOfQwen3WithoutMaxWindowLayers) {
  const Json patch = {{"use_sliding_window", true}, {"sliding_window", 4096}};
  const ModelSpec spec = spec_of(patched(kQwen3Config, patch, {"max_window_layers"}));
  EXPECT_EQ(spec.window_of(0), 4096);
  EXPECT_EQ(spec.window_of(47), 4096);
}

TEST(Spec, ReadsTheSwitchesOfReferences) {
  const ModelSpec plain = spec_of(parse_spec(kDeepseekV32Config, "config.json"));
  EXPECT_FALSE(plain.index_fp8);
  EXPECT_FALSE(plain.latent_fp8);
  EXPECT_EQ(plain.mla_norm_eps, 1e-6);
  const ModelSpec spec = spec_of(patched(kDeepseekV32Config, {{"indexer_fp8", true},
                                                              {"kv_latent_fp8", true},
                                                              {"mla_norm_eps", 1e-5},
                                                              {"indexer_rope_interleave", true}}));
  EXPECT_TRUE(spec.index_fp8);
  EXPECT_TRUE(spec.latent_fp8);
  EXPECT_EQ(spec.mla_norm_eps, 1e-5);
  EXPECT_TRUE(spec.index_rope.interleaved);
}

TEST(Spec, LayersMayShareAnIndexer) {
  const ModelSpec spec = spec_of(patched(
      kDeepseekV32Config,
      {{"num_hidden_layers", 4}, {"indexer_types", {"full", "shared", "shared", "full", "full"}}}));
  EXPECT_TRUE(spec.indexes(0));
  EXPECT_FALSE(spec.indexes(2));
  EXPECT_EQ(spec.index_layers(), 2);
  const Json four = {{"num_hidden_layers", 4}};
  Json word = four;
  word["index_topk_pattern"] = "FSSFF";
  EXPECT_EQ(spec_of(patched(kDeepseekV32Config, word)).index_layer, spec.index_layer);
  Json often = four;
  often["index_topk_freq"] = 2;
  EXPECT_EQ(spec_of(patched(kDeepseekV32Config, often)).index_layer,
            (std::vector<uint8_t>{1, 1, 0, 1}));
}

TEST(Spec, MissingKeysTakeTheDefaultsOfTheFamily) {
  const ModelSpec full = spec_of(parse_spec(kDeepseekV32Config, "config.json"));
  const ModelSpec spec = spec_of(patched(kDeepseekV32Config, Json::object(),
                                         {"first_k_dense_replace",
                                          "moe_layer_freq",
                                          "q_lora_rank",
                                          "kv_lora_rank",
                                          "n_group",
                                          "topk_group",
                                          "qk_nope_head_dim",
                                          "qk_rope_head_dim",
                                          "v_head_dim",
                                          "topk_method",
                                          "scoring_func",
                                          "norm_topk_prob",
                                          "routed_scaling_factor",
                                          "rms_norm_eps",
                                          "rope_theta",
                                          "attention_bias",
                                          "hidden_act",
                                          "index_n_heads",
                                          "index_head_dim",
                                          "index_topk",
                                          "n_shared_experts",
                                          "torch_dtype",
                                          "tie_word_embeddings"}));
  EXPECT_EQ(spec, full);

  const ModelSpec qwen = spec_of(patched(kQwen3Config, {{"hidden_size", 4096}},
                                         {"num_key_value_heads", "head_dim", "norm_topk_prob"}));
  EXPECT_EQ(qwen.kv_heads, 32);
  EXPECT_EQ(qwen.head_dim, 128);
  EXPECT_FALSE(qwen.router.normalize);
}

TEST(Spec, NullMeansNone) {
  const ModelSpec spec = spec_of(patched(kDeepseekV3Config, {{"q_lora_rank", nullptr},
                                                             {"n_group", nullptr},
                                                             {"topk_group", nullptr},
                                                             {"n_shared_experts", nullptr},
                                                             {"rope_scaling", nullptr}}));
  EXPECT_EQ(spec.q_lora, 0);
  EXPECT_EQ(spec.router.groups, 1);
  EXPECT_EQ(spec.router.top_groups, 1);
  EXPECT_EQ(spec.shared_intermediate, 0);
  EXPECT_FALSE(spec.rope.yarn);
  EXPECT_DOUBLE_EQ(spec.attention_scale, 1 / std::sqrt(192.0));
}

TEST(Spec, BothGenerationsOfKeysAgree) {
  Json rope = Json::parse(kDeepseekV3Config)["rope_scaling"];
  rope["rope_type"] = "yarn";
  rope["rope_theta"] = 10000;
  rope.erase("type");
  Json types = Json::array();
  for (int layer = 0; layer < 61; ++layer) types.push_back(layer < 3 ? "dense" : "sparse");
  const ModelSpec v5 = spec_of(patched(
      kDeepseekV3Config,
      {{"rope_parameters", rope},
       {"dtype", "bfloat16"},
       {"mlp_layer_types", types},
       {"head_dim", 64}},
      {"rope_scaling", "rope_theta", "torch_dtype", "first_k_dense_replace", "moe_layer_freq"}));
  EXPECT_EQ(v5, spec_of(parse_spec(kDeepseekV3Config, "config.json")));
}

TEST(Spec, QwenLayerMap) {
  const ModelSpec spec = spec_of(
      patched(kQwen3Config,
              {{"num_hidden_layers", 6}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}}));
  EXPECT_EQ(spec.moe_layer, (std::vector<uint8_t>{0, 1, 0, 0, 0, 1}));
}

TEST(Spec, ArchitectureStandsInForAMissingModelType) {
  EXPECT_EQ(spec_of(patched(kQwen3Config, Json::object(), {"model_type"})).model_type, "qwen3_moe");
}

TEST(Spec, YarnAmplitude) {
  const auto amplitude = [](const Json& scaling) {
    return spec_of(patched(kDeepseekV3Config, {{"rope_scaling", scaling}})).rope.amplitude;
  };
  Json scaling = {{"type", "yarn"}, {"factor", 32}, {"original_max_position_embeddings", 4096}};
  EXPECT_NEAR(amplitude(scaling), 1.34657, 1e-5);
  scaling["attention_factor"] = 1.25;
  EXPECT_EQ(amplitude(scaling), 1.25);
  scaling.erase("attention_factor");
  scaling["mscale"] = 1.0;
  scaling["mscale_all_dim"] = 0.707;
  EXPECT_NEAR(amplitude(scaling), (0.1 * std::log(32) + 1) / (0.0707 * std::log(32) + 1), 1e-12);
}

TEST(Spec, YarnScaleOfLatentAttention) {
  const auto factor = [](double theta, double f, double all_dim) {
    const Json scaling = {{"type", "yarn"},
                          {"factor", f},
                          {"mscale", all_dim},
                          {"mscale_all_dim", all_dim},
                          {"original_max_position_embeddings", 4096}};
    const ModelSpec spec =
        spec_of(patched(kDeepseekV3Config, {{"rope_scaling", scaling}, {"rope_theta", theta}}));
    return spec.attention_scale * std::sqrt(192.0);
  };
  EXPECT_NEAR(factor(1e4, 40, 0.707), 1.5896262, 1e-7);
  EXPECT_NEAR(factor(5e4, 32, 1), 1.8132604, 1e-7);
  EXPECT_NEAR(factor(5e4, 64, 1), 2.0047397, 1e-7);
  EXPECT_EQ(factor(1e4, 40, 0), 1.0);
}

TEST(Spec, YarnWithoutFactorUsesTheRatioOfContexts) {
  const Json scaling = {{"type", "yarn"}, {"original_max_position_embeddings", 4096}};
  EXPECT_EQ(spec_of(patched(kDeepseekV3Config, {{"rope_scaling", scaling}})).rope.factor, 40.0);
}

RopeSpec yarn_rope(double theta, double factor, double beta_fast, double beta_slow) {
  RopeSpec rope;
  rope.dim = 64;
  rope.theta = theta;
  rope.yarn = true;
  rope.factor = factor;
  rope.original_max_positions = 4096;
  rope.beta_fast = beta_fast;
  rope.beta_slow = beta_slow;
  return rope;
}

// ω of pair j relative to the plain one: 1 up to `low`, 1/factor from `high`, linear between.
void expect_ramp(const RopeSpec& rope, double low, double high) {
  const std::vector<double> w = rope_frequencies(rope);
  ASSERT_EQ(w.size(), 32u);
  for (int j = 0; j < 32; ++j) {
    const double plain = std::pow(rope.theta, -j / 32.0);
    const double ramp = std::clamp((j - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(w[static_cast<size_t>(j)] / plain, 1 - ramp + ramp / rope.factor, 1e-6) << j;
  }
}

TEST(Rope, PlainFrequencies) {
  RopeSpec rope;
  rope.dim = 4;
  EXPECT_EQ(rope_frequencies(rope), (std::vector<double>{1.0, 0.01}));
}

TEST(Rope, YarnBoundsOfReleasedModels) {
  expect_ramp(yarn_rope(1e4, 40, 32, 1), 10, 23);
  expect_ramp(yarn_rope(5e4, 32, 1, 1), 19, 20);
  RopeSpec untruncated = yarn_rope(1.5e5, 32, 32, 1);
  untruncated.truncate = false;
  expect_ramp(untruncated, 8.092779, 17.398025);
}

TEST(Rope, YarnBoundsMayCoincide) {
  RopeSpec rope = yarn_rope(1e4, 4, 1, 1);
  rope.original_max_positions = 2 * M_PI;  // both corrections are 0
  const std::vector<double> w = rope_frequencies(rope);
  EXPECT_EQ(w[0], 1.0);
  EXPECT_NEAR(w[1], std::pow(1e4, -1 / 32.0) / 4, 1e-12);
}

struct Case {
  const char* base;
  Json patch;
  Code code;
  std::vector<std::string> parts;
};

void expect_errors(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.patch.dump());
    expect_error(patched(c.base, c.patch), c.code, c.parts);
  }
}

// A rope_scaling of YaRN with one key changed.
Json scaling(const char* key, const Json& value) {
  Json out = {{"type", "yarn"}, {"factor", 4}};
  out[key] = value;
  return Json{{"rope_scaling", out}};
}

TEST(SpecErrors, OfWindowsAndSharedIndexers) {
  expect_errors({
      {kQwen3Config,
       {{"use_sliding_window", true}, {"sliding_window", nullptr}},
       Code::invalid,
       {"sliding_window is missing"}},
      {kQwen3Config,
       {{"layer_types", {"full_attention", "other"}}, {"use_sliding_window", true}},
       Code::invalid,
       {"layer_types"}},
      {kQwen3Config, {{"partial_rotary_factor", 0.01}}, Code::invalid, {"rotary elements"}},
      {kDeepseekV32Config,
       {{"indexer_types", {"shared"}}, {"num_hidden_layers", 1}, {"first_k_dense_replace", 0}},
       Code::invalid,
       {"indexer_types", "nothing to share"}},
      {kDeepseekV32Config,
       {{"index_topk_pattern", "FSX"}},
       Code::invalid,
       {"index_topk_pattern is \"FSX\"", "each of 61 layers"}},
      {kDeepseekV32Config,
       {{"indexer_fp8", true}, {"index_head_dim", 96}},
       Code::invalid,
       {"indexer_fp8", "power of two"}},
  });
}

// A quantization_config of compressed-tensors with its weights or activations changed.
Json int8_config(const Json& weights, const Json& activations, const char* format) {
  Json args = {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}};
  Json w = args, x = args;
  w.update({{"strategy", "channel"}, {"dynamic", false}});
  x.update({{"strategy", "token"}, {"dynamic", true}});
  w.update(weights);
  x.update(activations);
  return {{"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"config_groups",
             {{"group_0", {{"weights", w}, {"input_activations", x}, {"targets", {"Linear"}}}}}}}}};
}

TEST(Spec, Int8OfCompressedTensors) {
  const Json none = Json::object();
  EXPECT_EQ(spec_of(patched(kQwen3Config, int8_config(none, none, "int-quantized"))),
            spec_of(patched(kQwen3Config, none)));
  Json no_activations = int8_config(none, none, "int-quantized");
  no_activations["quantization_config"]["config_groups"]["group_0"]["input_activations"] = nullptr;
  Json no_groups = int8_config(none, none, "int-quantized");
  no_groups["quantization_config"]["config_groups"] = none;
  expect_errors({
      {kQwen3Config,
       int8_config(none, none, "pack-quantized"),
       Code::unsupported,
       {"format is \"pack-quantized\"", "int-quantized"}},
      {kQwen3Config,
       int8_config({{"num_bits", 4}}, none, "int-quantized"),
       Code::unsupported,
       {"weights: num_bits is 4", "supported is 8"}},
      {kQwen3Config,
       int8_config({{"strategy", "group"}}, none, "int-quantized"),
       Code::unsupported,
       {"weights: strategy is \"group\"", "channel"}},
      {kQwen3Config,
       int8_config({{"symmetric", false}}, none, "int-quantized"),
       Code::unsupported,
       {"weights: symmetric is false"}},
      {kQwen3Config,
       int8_config({{"type", "float"}}, none, "int-quantized"),
       Code::unsupported,
       {"weights: type is \"float\""}},
      {kQwen3Config,
       int8_config(none, {{"dynamic", false}}, "int-quantized"),
       Code::unsupported,
       {"input_activations: dynamic is false", "supported is true"}},
      {kQwen3Config,
       int8_config(none, {{"strategy", nullptr}}, "int-quantized"),
       Code::unsupported,
       {"input_activations: strategy is \"tensor\"", "token"}},
      {kQwen3Config, no_activations, Code::unsupported, {"input_activations is missing"}},
      {kQwen3Config, no_groups, Code::invalid, {"config_groups is missing"}},
  });
}

TEST(SpecErrors, NameKeyValueAndRemedy) {
  expect_errors({
      {kQwen3Config,
       {{"model_type", "llama"}},
       Code::unsupported,
       {"\"llama\"", "deepseek_v3, deepseek_v32, kimi_k2"}},
      {kQwen3Config, {{"model_type", 7}}, Code::invalid, {"model_type is 7", "a string"}},
      {kQwen3Config,
       {{"hidden_size", "big"}},
       Code::invalid,
       {"config.json: hidden_size is \"big\"", "between 1 and 65536"}},
      {kQwen3Config, {{"hidden_size", 65537}}, Code::invalid, {"hidden_size is 65537"}},
      {kQwen3Config, {{"hidden_size", nullptr}}, Code::invalid, {"hidden_size is missing"}},
      {kQwen3Config, {{"num_hidden_layers", 0}}, Code::invalid, {"num_hidden_layers is 0"}},
      {kQwen3Config, {{"num_hidden_layers", 1.5}}, Code::invalid, {"num_hidden_layers is 1.5"}},
      {kQwen3Config,
       {{"num_hidden_layers", 1e300}},
       Code::invalid,
       {"num_hidden_layers is 1e+300"}},
      {kQwen3Config, {{"num_experts", 4097}}, Code::invalid, {"num_experts is 4097"}},
      {kQwen3Config, {{"num_experts", 4}}, Code::invalid, {"num_experts_per_tok is 8", "most 4"}},
      {kQwen3Config,
       {{"num_key_value_heads", 5}},
       Code::invalid,
       {"num_key_value_heads is 5", "divide"}},
      {kQwen3Config, {{"head_dim", 15}}, Code::invalid, {"head_dim is 15", "even"}},
      {kQwen3Config,
       {{"hidden_size", 16}, {"head_dim", nullptr}},
       Code::invalid,
       {"head_dim is 0", "even"}},
      {kQwen3Config, {{"attention_bias", "no"}}, Code::invalid, {"attention_bias is \"no\""}},
      {kQwen3Config, {{"hidden_act", "gelu"}}, Code::unsupported, {"hidden_act is \"gelu\""}},
      {kQwen3Config, {{"torch_dtype", "int8"}}, Code::unsupported, {"torch_dtype is \"int8\""}},
      {kQwen3Config, {{"rms_norm_eps", -1}}, Code::invalid, {"rms_norm_eps is -1"}},
      {kQwen3Config, {{"rope_theta", 1}}, Code::invalid, {"rope_theta is 1"}},
      {kQwen3Config, {{"eos_token_id", {1, "x"}}}, Code::invalid, {"eos_token_id holds \"x\""}},
      {kQwen3Config, {{"mlp_only_layers", {5000}}}, Code::invalid, {"mlp_only_layers holds 5000"}},
      {kQwen3Config,
       {{"mlp_only_layers", {1}}, {"intermediate_size", nullptr}},
       Code::invalid,
       {"intermediate_size is missing"}},
      {kQwen3Config,
       {{"mlp_layer_types", {"sparse"}}},
       Code::invalid,
       {"mlp_layer_types", "each of 48 layers"}},
      {kQwen3Config,
       {{"quantization_config", {{"quant_method", "awq"}}}},
       Code::unsupported,
       {"quant_method is \"awq\"", "fp8"}},
      {kQwen3Config,
       {{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}}}},
       Code::unsupported,
       {"weight_block_size is [64, 64]"}},
      {kQwen3Config,
       {{"quantization_config", {{"quant_method", "fp8"}}}},
       Code::unsupported,
       {"weight_block_size is []"}},
  });
}

TEST(SpecErrors, OfLatentAttentionAndGroupedRouters) {
  expect_errors({
      {kDeepseekV3Config, {{"n_group", 7}}, Code::invalid, {"n_group is 7", "256 experts"}},
      {kDeepseekV3Config, {{"n_group", 256}}, Code::invalid, {"n_group is 256"}},
      {kDeepseekV3Config, {{"topk_group", 9}}, Code::invalid, {"topk_group is 9"}},
      {kDeepseekV3Config, {{"scoring_func", "softmax"}}, Code::unsupported, {"scoring_func"}},
      {kDeepseekV3Config, {{"topk_method", "greedy"}}, Code::unsupported, {"topk_method"}},
      {kDeepseekV3Config, {{"qk_rope_head_dim", 63}}, Code::invalid, {"qk_rope_head_dim is 63"}},
      {kDeepseekV3Config,
       scaling("type", "longrope"),
       Code::unsupported,
       {"rope_scaling: type is \"longrope\""}},
      {kDeepseekV3Config, scaling("factor", "x"), Code::invalid, {"rope_scaling: factor is \"x\""}},
      {kDeepseekV3Config, scaling("beta_fast", 0.5), Code::invalid, {"beta_fast is 0.5"}},
      {kDeepseekV3Config, {{"rope_scaling", 4}}, Code::invalid, {"rope_scaling is 4"}},
      {kDeepseekV32Config, {{"index_head_dim", 32}}, Code::invalid, {"index_head_dim is 32"}},
      {kDeepseekV32Config, {{"q_lora_rank", nullptr}}, Code::unsupported, {"q_lora_rank"}},
  });
}

TEST(SpecErrors, TextThatIsNoObject) {
  expect_error(parse_spec("{", "c"), Code::invalid, {"c: not valid JSON"});
  expect_error(parse_spec("[1]", "c"), Code::invalid, {"c: holds [1]", "object"});
  expect_error(parse_spec("{}", "c"), Code::unsupported, {"model_type \"\""});
  const std::string deep = R"({"model_type":)" + std::string(100000, '[');
  EXPECT_FALSE(parse_spec(deep + std::string(100000, ']') + "}", "c"));
}

TEST(LoadSpec, GenerationConfigNamesTheEndTokens) {
  TemporaryDirectory dir;
  expect_error(load_spec(dir.path() + "/none"), Code::not_found, {"/none"});
  expect_error(load_spec(dir.path()), Code::not_found, {"config.json"});
  dir.write("config.json", kQwen3Config);
  EXPECT_EQ(spec_of(load_spec(dir.path())).eos_ids, std::vector<int>{151645});
  dir.write("generation_config.json", R"({"eos_token_id": [151645, 151643]})");
  EXPECT_EQ(spec_of(load_spec(dir.path())).eos_ids, (std::vector<int>{151645, 151643}));
  dir.write("generation_config.json", R"({"temperature": 0.7})");
  EXPECT_EQ(spec_of(load_spec(dir.path())).eos_ids, std::vector<int>{151645});
  dir.write("generation_config.json", R"({"eos_token_id": "end"})");
  expect_error(load_spec(dir.path()), Code::invalid, {"generation_config.json", "\"end\""});
}

}  // namespace
}  // namespace asap
