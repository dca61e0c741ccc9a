// Every preset against published figures: parameters, bytes of an expert, operations per token.
// Tolerances are half a unit of the last published digit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "asap/model/dummy_weights.h"
#include "asap/model/inspect.h"
#include "asap/model/model_source.h"
#include "asap/model/presets.h"
#include "asap/model/switches.h"
#include "asap/model/weights.h"

namespace asap {
namespace {

ModelSpec spec_of(const std::string& name) {
  ModelSource source;
  source.preset = name;
  const auto spec = load_spec(source);
  EXPECT_TRUE(spec) << spec.error().message;
  return spec.value_or(ModelSpec{});
}

struct Size {
  const char* preset;
  double total, total_unit;    // billions, and half the last digit
  double active, active_unit;  // the same
  double expert;               // millions of parameters of one expert
  double bf16, bf16_unit;      // MB of one expert
  double fp8;                  // MB of its fp8 values; 0: no figure
};

// The active parameters of Mixtral-8x7B are 12.75 without the embedding and 12.88 with it.
constexpr Size kSizes[] = {
    {"deepseek-v3.2", 671.9, 0.05, 37.5, 0.05, 44.04, 88.1, 0.05, 44.04},
    {"deepseek-v3", 671.0, 0.05, 36.6, 0.05, 44.04, 88.1, 0.05, 44.04},
    {"deepseek-r1", 671.0, 0.05, 36.6, 0.05, 44.04, 88.1, 0.05, 44.04},
    {"kimi-k2", 1026.4, 0.05, 31.7, 0.05, 44.04, 88.1, 0.05, 44.04},
    {"glm-5", 743.9, 0.05, 40.8, 0.05, 37.75, 75.5, 0.05, 37.7},
    {"deepseek-v2", 235.7, 0.05, 20.9, 0.05, 23.59, 47.2, 0.05, 23.6},
    {"deepseek-v2-lite", 15.7, 0.05, 2.45, 0.005, 8.65, 17.3, 0.05, 8.7},
    {"qwen3-235b-a22b", 235.1, 0.05, 21.6, 0.05, 18.87, 37.7, 0.05, 18.9},
    {"qwen3-30b-a3b", 30.5, 0.05, 3.04, 0.005, 4.72, 9.4, 0.05, 4.7},
    {"qwen3-coder-480b-a35b", 480.2, 0.05, 34.5, 0.05, 47.19, 94.4, 0.05, 47.2},
    {"qwen2-57b-a14b", 57.4, 0.05, 13.7, 0.05, 27.53, 55.1, 0.05, 27.5},
    {"qwen1.5-moe-a2.7b", 14.3, 0.05, 2.4, 0.05, 8.65, 17.3, 0.05, 8.7},
    {"mixtral-8x7b", 46.7, 0.05, 12.8, 0.06, 176.2, 352, 0.5, 0},
    {"mixtral-8x22b", 140.6, 0.05, 39.0, 0.05, 302.0, 604, 0.5, 0},
    {"olmoe-1b-7b", 6.92, 0.005, 1.18, 0.005, 6.29, 12.6, 0.05, 6.3},
    {"glm-4.5", 352.8, 0.05, 32.9, 0.05, 23.59, 47.2, 0.05, 23.6},
    {"glm-4.5-air", 106.9, 0.05, 12.8, 0.05, 17.30, 34.6, 0.05, 17.3},
    {"gpt-oss-120b", 116.8, 0.05, 5.1, 0.05, 24.88, 49.8, 0.05, 0},
    {"gpt-oss-20b", 20.9, 0.05, 3.6, 0.05, 24.88, 49.8, 0.05, 0},
    {"minimax-m2", 228.7, 0.05, 10.4, 0.05, 14.16, 28.3, 0.05, 14.2},
};

TEST(InspectPresets, ParametersAndBytesOfAnExpert) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.preset);
    const ModelSpec spec = spec_of(size.preset);
    const ParameterCount p = count_parameters(spec);
    EXPECT_NEAR(static_cast<double>(p.total) * 1e-9, size.total, size.total_unit);
    EXPECT_NEAR(static_cast<double>(p.active) * 1e-9, size.active, size.active_unit);
    const double expert = static_cast<double>(p.per_expert) * 1e-6;
    EXPECT_NEAR(expert, size.expert, size.expert < 100 ? 0.005 : 0.05);
    EXPECT_NEAR(static_cast<double>(expert_bytes(spec, DType::bf16)) * 1e-6, size.bf16,
                size.bf16_unit);
    if (size.fp8 > 0) {
      EXPECT_NEAR(expert, size.fp8, 0.05);
    }
  }
}

TEST(InspectPresets, EveryPresetHasItsRow) {
  std::vector<std::string> rows;
  for (const Size& size : kSizes) rows.emplace_back(size.preset);
  std::sort(rows.begin(), rows.end());
  ASSERT_EQ(rows.size(), presets().size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], presets()[i].name);
}

TEST(InspectPresets, QuantisedExperts) {
  const ModelSpec v32 = spec_of("deepseek-v3.2");
  EXPECT_EQ(expert_bytes(v32, DType::f8_e4m3) - 44'040'192u, 10'752u);  // 10.8 KB of scales
  EXPECT_EQ(expert_bytes(v32, DType::i8) - 44'040'192u, 4u * (2048 + 2048 + 7168));
  const ModelSpec oss = spec_of("gpt-oss-120b");
  EXPECT_NEAR(static_cast<double>(expert_bytes(oss, DType::mxfp4)) * 1e-6, 13.2, 0.05);
  // All experts of a MoE layer, and of all layers.
  const auto layer_gb = [](const ModelSpec& spec, DType type) {
    return spec.experts * static_cast<double>(expert_bytes(spec, type)) * 1e-9;
  };
  EXPECT_NEAR(layer_gb(v32, DType::f8_e4m3), 11.27, 0.01);  // 11.274 and its scales
  EXPECT_NEAR(layer_gb(v32, DType::f8_e4m3) * v32.moe_layers(), 653.9, 0.2);
  EXPECT_NEAR(layer_gb(spec_of("kimi-k2"), DType::f8_e4m3), 16.9, 0.05);
  EXPECT_NEAR(layer_gb(spec_of("qwen3-30b-a3b"), DType::bf16), 1.21, 0.005);
  EXPECT_NEAR(layer_gb(spec_of("olmoe-1b-7b"), DType::bf16), 0.81, 0.005);
}

TEST(InspectPresets, CacheOfAToken) {
  const ModelSpec v32 = spec_of("deepseek-v3.2");
  EXPECT_NEAR(static_cast<double>(token_cache_bytes(v32, DType::bf16).keys_values) * 1e-3, 70.3,
              0.05);
  EXPECT_NEAR(static_cast<double>(token_cache_bytes(v32, DType::f8_e4m3).keys_values) * 1e-3, 40.0,
              0.05);
  EXPECT_NEAR(static_cast<double>(token_cache_bytes(v32, DType::f8_e4m3).index) * 1e-3, 8.1, 0.05);
  // 2 · layers · kv heads · head width · 2 bytes.
  EXPECT_EQ(token_cache_bytes(spec_of("mixtral-8x7b"), DType::bf16).total(), 131'072u);
  EXPECT_EQ(token_cache_bytes(spec_of("gpt-oss-120b"), DType::bf16).total(), 73'728u);
}

struct Cost {
  const char* preset;
  double attention[5];  // GFLOP per token of prompts of 1K, 4K, 16K, 64K, 128K tokens
  double moe, dense;
  int share_4k, share_128k;  // of attention, percent
};

constexpr Cost kCosts[] = {
    {"deepseek-v3.2", {33.7, 52.7, 65.3, 91.5, 124.6}, 46.2, 2.4, 52, 72},
    {"deepseek-v3", {25.4, 33.1, 63.8, 186.6, 350.3}, 46.2, 2.4, 41, 88},
    {"deepseek-r1", {25.4, 33.1, 63.8, 186.6, 350.3}, 46.2, 2.4, 41, 88},
    {"kimi-k2", {13.6, 17.5, 32.8, 94.2, 176.1}, 47.9, 0.8, 26, 78},
    {"glm-5", {33.1, 45.2, 53.3, 70.0, 91.2}, 51.2, 1.4, 46, 63},
    {"deepseek-v2", {20.4, 28.0, 58.2, 179.0, 340.0}, 22.4, 0.4, 55, 94},
    {"deepseek-v2-lite", {0.9, 1.3, 3.0, 9.8, 18.9}, 3.6, 0.1, 26, 83},
    {"qwen3-235b-a22b", {15.0, 19.7, 38.6, 114.3, 215.3}, 28.5, 0, 41, 88},
    {"qwen3-30b-a3b", {2.2, 3.4, 8.3, 27.6, 53.4}, 3.6, 0, 48, 94},
    {"mixtral-8x7b", {3.0, 3.8, 7.0, 19.9, 37.0}, 22.6, 0, 14, 62},
    {"olmoe-1b-7b", {0.6, 0.8, 1.6, 4.8, 9.1}, 1.6, 0, 33, 85},
    {"glm-4.5", {27.4, 34.3, 62.1, 173.3, 321.4}, 37.9, 1.1, 47, 89},
    {"gpt-oss-120b", {2.1, 2.6, 4.4, 11.6, 21.3}, 7.2, 0, 26, 75},
    {"minimax-m2", {6.2, 8.6, 17.9, 55.4, 105.3}, 14.1, 0, 38, 88},
};
constexpr int64_t kPrompts[] = {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17};

TEST(InspectPresets, OperationsPerToken) {
  for (const Cost& cost : kCosts) {
    const ModelSpec spec = spec_of(cost.preset);
    for (size_t i = 0; i < 5; ++i) {
      SCOPED_TRACE(testing::Message() << cost.preset << " at " << kPrompts[i]);
      const TokenFlops flops = flops_per_token(spec, kPrompts[i]);
      EXPECT_NEAR(flops.attention * 1e-9, cost.attention[i], 0.05);
      EXPECT_NEAR(flops.moe * 1e-9, cost.moe, 0.05);
      EXPECT_NEAR(flops.dense * 1e-9, cost.dense, 0.05);
      const double share = 100 * flops.attention / flops.per_token();
      if (i == 1) {
        EXPECT_NEAR(share, cost.share_4k, 0.5);
      }
      if (i == 4) {
        EXPECT_NEAR(share, cost.share_128k, 0.5);
      }
    }
  }
}

// V3.2: the indexer overtakes the saturated sparse core near 35K visible keys, 70K-token prompts.
TEST(InspectPresets, SparseAttentionSplit) {
  const ModelSpec v32 = spec_of("deepseek-v3.2");
  const ModelSpec v3 = spec_of("deepseek-v3");
  const double projections = 22.8;  // GFLOP
  const auto core = [&](const ModelSpec& spec, int64_t prompt) {
    return flops_per_token(spec, prompt).attention * 1e-9 - projections;
  };
  // Per visible key, all layers, MFLOP: dense 5.00; indexer 1.00 (on top of its projections, 1.7).
  EXPECT_NEAR((core(v3, 4001) - core(v3, 2001)) / 1000 * 1e3, 5.00, 0.005);
  EXPECT_NEAR((core(v32, 1) - core(v3, 1)) - 0.0120 - 0.0010, 1.7, 0.05);
  const double saturated = 34.8 - 16.99 * (2048.0 * 2047 / 2) / (1 << 17) * 1e-3;
  EXPECT_NEAR(core(v32, 1 << 17) - 1.7 - saturated, 1.00 * (1 << 16) * 1e-3, 0.2);
}

// What is counted is what a checkpoint holds: every element of every tensor that is asked for.
TEST(InspectPresets, CountsAreThoseOfTheTensors) {
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(std::string(preset.name));
    ModelSource source;
    source.preset = preset.name;
    source.load_format = "dummy";
    const ModelSpec spec = spec_of(source.preset);
    const auto weights = open_weights(source, spec);
    ASSERT_TRUE(weights) << weights.error().message;
    int64_t elements = 0;
    for (const auto& [name, tensor] : weights->checkpoint.tensors()) {
      if (name.ends_with("_scale_inv") || name.ends_with("_scales")) continue;
      int64_t count = name.ends_with("_blocks") ? 2 : 1;  // two values in a byte
      for (const int64_t size : tensor.shape) count *= size;
      elements += count;
    }
    EXPECT_EQ(count_parameters(spec).total, elements);
  }
}

using Choices = std::map<std::string, std::string>;
Choices choices(const std::string& preset, const std::string& overrides = "") {
  ModelSource source;
  source.preset = preset;
  source.hf_overrides = overrides;
  Choices out;
  for (const Switch& s : switches_of(load_spec(source).value())) out[s.topic] = s.choice;
  return out;
}

TEST(InspectPresets, Switches) {
  const Choices v32 = choices("deepseek-v3.2");
  EXPECT_EQ(v32.at("indexer RoPE layout"), "half-split");
  EXPECT_EQ(v32.at("indexer Hadamard and fp8 rounding"), "neither");
  EXPECT_EQ(v32.at("fp8 round trip of the latent"), "no");
  EXPECT_EQ(v32.at("RoPE layout"), "interleaved");
  EXPECT_EQ(v32.at("eps of the latents' norms"), "1e-06");
  EXPECT_EQ(v32.at("YaRN factor on attention logits"), "1.8739");
  EXPECT_EQ(v32.at("score of a group"), "its two best experts");
  EXPECT_EQ(v32.at("experts of losing groups"), "-inf");
  EXPECT_EQ(v32.at("sum that divides expert weights"), "plus 1e-20");
  EXPECT_EQ(v32.at("routed_scaling_factor"), "2.5, always applied");

  const Choices as_deepseek = choices("deepseek-v3.2", R"({"indexer_fp8": true,
    "kv_latent_fp8": true, "indexer_rope_interleave": true, "mla_norm_eps": 1e-5})");
  EXPECT_EQ(as_deepseek.at("indexer Hadamard and fp8 rounding"), "both");
  EXPECT_EQ(as_deepseek.at("fp8 round trip of the latent"), "yes");
  EXPECT_EQ(as_deepseek.at("indexer RoPE layout"), "interleaved");
  EXPECT_EQ(as_deepseek.at("eps of the latents' norms"), "1e-05");

  EXPECT_EQ(choices("glm-5").at("indexer RoPE layout"), "interleaved");
  EXPECT_EQ(choices("deepseek-v2").at("YaRN factor on attention logits"), "1.8739");
  EXPECT_EQ(choices("deepseek-v2-lite").at("YaRN factor on attention logits"), "1.5896");
  EXPECT_EQ(choices("deepseek-v2").at("score of a group"), "its best expert");
  EXPECT_EQ(choices("kimi-k2").at("YaRN factor on attention logits"), "1.8133");
  EXPECT_FALSE(choices("kimi-k2").contains("score of a group"));
  EXPECT_FALSE(choices("qwen3-30b-a3b").contains("indexer RoPE layout"));
  EXPECT_EQ(choices("olmoe-1b-7b").at("expert weights"), "as scored");
  EXPECT_FALSE(choices("gpt-oss-20b").contains("expert weights"));
}

}  // namespace
}  // namespace asap
