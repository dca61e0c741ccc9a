// The synchronous engines compute what the asynchronous one computes: a prompt's logits and tokens
// have the same bits at equal T and E, whatever shares its step, however it is cut, whoever runs
// empty batches beside it, and for any delays and order of messages and agents.
#include <gtest/gtest.h>

#include "tests/golden_support.h"

namespace asap::test {
namespace {

struct Model {
  std::string golden;
  const char* dtype;
  int d, t;  // E = D·T
};

void PrintTo(const Model& model, std::ostream* out) {
  *out << model.golden << "_" << model.dtype << "_D" << model.d << "T" << model.t;
}

class LockstepTest : public testing::TestWithParam<Model> {
 protected:
  LockstepTest()
      : golden_(golden_named(GetParam().golden)),
        bench_({.model = golden_directory(GetParam().golden),
                .t = GetParam().t,
                .e = GetParam().d * GetParam().t,
                .dtype = GetParam().dtype,
                .max_batch_tokens = 128}) {
    subject_ = {golden_.cases.back().prompt, 6, 0.7, 42};
    alone_ = bench_.run({subject_}, {}).front();
  }

  Bench::Run run_of(const char* scheduler, int tokens) const {
    return {.d = GetParam().d, .r = 1, .max_batch_tokens = tokens, .scheduler = scheduler};
  }

  // The subject among 20 prompts of mixed lengths that arrive one after another.
  std::vector<Prompt> crowd(uint64_t seed) const {
    Prng prng(seed + 1);
    std::vector<Prompt> out;
    Instant at{0};
    for (int i = 0; i < 21; ++i) {
      at = at + Duration::micros(prng.chance(0.5) ? static_cast<int64_t>(prng.below(200)) : 0);
      Prompt prompt = subject_;
      if (i != 7) {
        prompt = {};
        for (uint64_t left = 1 + prng.below(60); left > 0; --left) {
          prompt.tokens.push_back(
              static_cast<int32_t>(prng.below(static_cast<uint64_t>(bench_.spec().vocab))));
        }
        prompt.max_tokens = 1 + static_cast<int>(prng.below(4));
      }
      prompt.at = at;
      out.push_back(std::move(prompt));
    }
    return out;
  }

  Golden golden_;
  Bench bench_;
  Prompt subject_;
  Outcome alone_;
};

// All groups but one run empty batches.
TEST_P(LockstepTest, AloneTheBitsAreThoseOfTheAsynchronousEngine) {
  for (const char* scheduler : {"default", "chunked"}) {
    for (const int tokens : {3, 16, 64, 256}) {
      EXPECT_EQ(bench_.run({subject_}, run_of(scheduler, tokens)).front(), alone_)
          << scheduler << " " << tokens;
    }
  }
}

TEST_P(LockstepTest, AmongTwentyWithSeedsOfDelayAndReordering) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Bench::Run run = run_of(seed % 2 == 0 ? "default" : "chunked", 8 << seed % 5);
    run.seed = seed;
    run.max_delay = Duration::micros(static_cast<int64_t>(seed % 50));
    run.max_stall = Duration::micros(seed % 3 == 0 ? 300 : 0);
    ASSERT_EQ(bench_.run(crowd(seed), run)[7], alone_) << "seed " << seed;
  }
}

// The items of all groups together exceed one call of the kernel: a call ends within an item.
TEST(Lockstep, ItemsOfAllGroupsInPieces) {
  constexpr int kTokens = kPieceTokens * 3 / 4;
  Bench bench({.model = std::string(ASAP_SOURCE_DIR) + "/models/asap-tiny-moe",
               .e = 2,
               .max_batch_tokens = kTokens,
               .max_model_len = 2 * kTokens});
  std::vector<Prompt> prompts(2);
  for (int i = 0; i < 2 * kTokens; ++i) {
    prompts[static_cast<size_t>(i % 2)].tokens.push_back(2 + i * 7 % 4000);
  }
  EXPECT_EQ(bench.run(prompts, {.d = 2, .r = 1, .scheduler = "default"}), bench.run(prompts, {}));
}

INSTANTIATE_TEST_SUITE_P(Models, LockstepTest,
                         testing::Values(Model{"deepseek_v32", "bfloat16", 2, 2},
                                         Model{"deepseek_v32_fp8", "bfloat16", 3, 1},
                                         Model{"kimi_k2", "float32", 1, 2},
                                         Model{"gpt_oss", "bfloat16", 2, 2},
                                         Model{"qwen3_moe", "bfloat16", 4, 1},
                                         Model{"glm4_moe", "float32", 2, 1}),
                         [](const auto& param) { return testing::PrintToString(param.param); });

}  // namespace
}  // namespace asap::test
