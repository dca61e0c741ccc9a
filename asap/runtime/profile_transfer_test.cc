#include "asap/runtime/profile_transfer.h"

#include <gtest/gtest.h>

#include "asap/model/model_source.h"
#include "asap/runtime/profile.h"

namespace asap {
namespace {

ModelSpec preset(const char* name, const char* overrides = "") {
  ModelSource source;
  source.preset = name;
  source.hf_overrides = overrides;
  auto spec = load_spec(source);
  EXPECT_TRUE(spec) << spec.error().message;
  return *spec;
}

TEST(ProfileTransfer, TheModelThatWasMeasuredKeepsItsPrices) {
  const CostProfile p = *load_profile("cm384-deepseek-v3.2");
  const auto same = profile_for(p, preset("deepseek-v3.2"));
  ASSERT_TRUE(same);
  EXPECT_EQ(profile_text(*same), profile_text(p));
  // Fewer layers are the same layers; without sparse selection, as priced kernels have it, too.
  ModelSpec priced = preset("deepseek-v3.2", R"({"num_hidden_layers": 12})");
  priced.index_topk = 0;
  EXPECT_EQ(profile_text(*profile_for(p, priced)), profile_text(p));
}

TEST(ProfileTransfer, StepsGrowWithTheirWork) {
  const CostProfile p = *load_profile("cm384-deepseek-v3.2");
  const ModelSpec from = preset("deepseek-v3.2");
  const CostProfile wide =
      transfer_profile(p, from, preset("deepseek-v3.2", R"({"moe_intermediate_size": 4096})"));
  EXPECT_DOUBLE_EQ(wide.m, 2 * p.m);
  EXPECT_DOUBLE_EQ(wide.tau, p.tau);  // twice the weights, twice the work
  EXPECT_GT(wide.b, p.b);             // the shared expert has the same width
  EXPECT_DOUBLE_EQ(wide.g, p.g);
  const CostProfile fewer =
      transfer_profile(p, from, preset("deepseek-v3.2", R"({"num_experts_per_tok": 4})"));
  EXPECT_DOUBLE_EQ(fewer.m, p.m / 2);
  EXPECT_DOUBLE_EQ(fewer.tau, 2 * p.tau);  // the same weights for half of the work
  const CostProfile qwen = *profile_for(p, preset("qwen3-30b-a3b"));
  EXPECT_DOUBLE_EQ(qwen.c1, p.c1 * 2048 / 7168);
  EXPECT_DOUBLE_EQ(qwen.m, p.m * (8.0 * 2048 * 768) / (8.0 * 7168 * 2048));
  EXPECT_EQ(qwen.a0, p.a0);
  EXPECT_LT(qwen.b, p.b);
}

TEST(ProfileTransfer, ThereAndBackIsWhereItWas) {
  const CostProfile p = *load_profile("cm384-deepseek-v3.2");
  const ModelSpec from = preset("deepseek-v3.2"), to = preset("gpt-oss-120b");
  const CostProfile back = transfer_profile(transfer_profile(p, from, to), to, from);
  for (const auto field : {&CostProfile::b, &CostProfile::g, &CostProfile::m, &CostProfile::tau,
                           &CostProfile::c1, &CostProfile::launch}) {
    EXPECT_NEAR(back.*field / p.*field, 1, 1e-12);
  }
}

}  // namespace
}  // namespace asap
