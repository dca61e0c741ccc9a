#include "asap/model/inspect.h"

#include <gtest/gtest.h>

#include "asap/model/model_configs.h"

namespace asap {
namespace {

ModelSpec spec_of(const char* config) {
  const auto spec = parse_spec(config, "config.json");
  EXPECT_TRUE(spec) << spec.error().message;
  return spec.value_or(ModelSpec{});
}

class Inspect : public testing::Test {
 protected:
  const ModelSpec v32 = spec_of(kDeepseekV32Config);
  const ModelSpec v3 = spec_of(kDeepseekV3Config);
  const ModelSpec qwen = spec_of(kQwen3Config);
};

double billions(int64_t n) {
  return static_cast<double>(n) * 1e-9;
}

// The published totals, to their last digit.
TEST_F(Inspect, Parameters) {
  EXPECT_NEAR(billions(count_parameters(v32).total), 671.9, 0.05);
  EXPECT_NEAR(billions(count_parameters(v32).active), 37.5, 0.05);
  EXPECT_NEAR(billions(count_parameters(v3).total), 671.0, 0.05);
  EXPECT_NEAR(billions(count_parameters(v3).active), 36.6, 0.05);
  EXPECT_NEAR(billions(count_parameters(qwen).total), 30.5, 0.05);
  EXPECT_NEAR(billions(count_parameters(qwen).active), 3.04, 0.005);
}

TEST_F(Inspect, ATiedHeadIsCountedOnceAndActive) {
  ModelSpec tied = qwen;
  tied.tied_embeddings = true;
  const ParameterCount apart = count_parameters(qwen);
  const ParameterCount one = count_parameters(tied);
  EXPECT_EQ(one.head, 0);
  EXPECT_EQ(one.total, apart.total - apart.head);
  EXPECT_EQ(one.active, apart.active);
}

TEST_F(Inspect, ExpertBytes) {
  EXPECT_EQ(count_parameters(v3).per_expert, 44'040'192);
  EXPECT_EQ(expert_bytes(v3, DType::bf16), 88'080'384u);
  EXPECT_EQ(expert_bytes(v3, DType::f8_e4m3), 44'040'192u + 10'752u);
  EXPECT_EQ(expert_bytes(qwen, DType::bf16), 9'437'184u);
}

TEST_F(Inspect, ExpertRanksShareTheExperts) {
  EXPECT_NEAR(static_cast<double>(expert_rank_bytes(v3, 1, DType::f8_e4m3)) * 1e-9, 654.1, 0.05);
  EXPECT_EQ(expert_rank_bytes(v3, 16, DType::bf16), 58u * 16u * expert_bytes(v3, DType::bf16));
  // 128 experts on 3 ranks: the largest part decides.
  EXPECT_EQ(expert_rank_bytes(qwen, 3, DType::bf16), 48u * 43u * expert_bytes(qwen, DType::bf16));
}

TEST_F(Inspect, AttentionRanksDivideHeadsAndVocabulary) {
  const AttentionRankBytes one = attention_rank_bytes(v32, 1, DType::bf16);
  const AttentionRankBytes four = attention_rank_bytes(v32, 4, DType::bf16);
  const ParameterCount all = count_parameters(v32);
  EXPECT_EQ(one.attention, static_cast<uint64_t>(2 * (all.attention + all.indexer)));
  EXPECT_EQ(one.shared, static_cast<uint64_t>(2 * all.shared));
  EXPECT_EQ(one.norms, static_cast<uint64_t>(4 * all.norms));
  EXPECT_EQ(four.head * 4, one.head);
  EXPECT_EQ(four.embedding, one.embedding);
  EXPECT_EQ(four.dense, one.dense);
  EXPECT_EQ(four.shared, one.shared);
  EXPECT_EQ(four.router, one.router);
  // q_b, kv_b and o are divided; q_a, kv_a and the indexer are not.
  const uint64_t divided = uint64_t{61} * 2 * (128 * 192 * 1536 + 128 * 256 * 512 + 7168 * 16384);
  EXPECT_EQ(one.attention - four.attention, divided / 4 * 3);
}

TEST_F(Inspect, KeyValueHeadsAreSharedByMoreRanks) {
  const uint64_t four = attention_rank_bytes(qwen, 4, DType::bf16).attention;
  const uint64_t eight = attention_rank_bytes(qwen, 8, DType::bf16).attention;
  const uint64_t kv = uint64_t{48} * 2 * 2 * 128 * 2048;  // one k and v head of every layer
  EXPECT_EQ((four - kv) / 2, eight - kv);
}

TEST_F(Inspect, CacheOfAToken) {
  EXPECT_EQ(token_cache_bytes(v32, DType::bf16).keys_values, 70'272u);
  EXPECT_EQ(token_cache_bytes(v32, DType::f8_e4m3).keys_values, 40'016u);
  EXPECT_EQ(token_cache_bytes(v32, DType::f8_e4m3).index, 8'052u);
  EXPECT_EQ(token_cache_bytes(v32, DType::bf16).index, 61u * 256u);
  EXPECT_EQ(token_cache_bytes(v3, DType::bf16).total(), 70'272u);
  EXPECT_EQ(token_cache_bytes(qwen, DType::bf16).total(), 48u * 2u * 4u * 128u * 2u);
}

TEST_F(Inspect, FlopsPerPromptToken) {
  struct Row {
    const ModelSpec& spec;
    double attention[5];  // GFLOP at prompts of 1K, 4K, 16K, 64K, 128K tokens
    double moe;
    double dense;
  };
  const Row rows[] = {
      {v32, {33.7, 52.7, 65.3, 91.5, 124.6}, 46.2, 2.4},
      {v3, {25.4, 33.1, 63.8, 186.6, 350.3}, 46.2, 2.4},
      {qwen, {2.2, 3.4, 8.3, 27.6, 53.4}, 3.6, 0},
  };
  const int64_t prompts[] = {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17};
  for (const Row& row : rows) {
    for (size_t i = 0; i < 5; ++i) {
      const TokenFlops flops = flops_per_token(row.spec, prompts[i]);
      SCOPED_TRACE(testing::Message() << row.spec.model_type << " at " << prompts[i]);
      EXPECT_NEAR(flops.attention * 1e-9, row.attention[i], 0.05);
      EXPECT_NEAR(flops.moe * 1e-9, row.moe, 0.05);
      EXPECT_NEAR(flops.dense * 1e-9, row.dense, 0.05);
    }
  }
  EXPECT_EQ(flops_per_token(v3, 1).head_per_prompt, 2.0 * 7168 * 129280);
}

}  // namespace
}  // namespace asap
