// The strongest test: a prompt's logits and tokens have the same bits whatever the schedule. At
// equal T and E they do not depend on D, R, what shares the batches, how a prompt is cut, or on
// delays and order of messages and agents.
#include <gtest/gtest.h>

#include "tests/golden_support.h"

namespace asap::test {
namespace {

struct Model {
  std::string golden;
  const char* dtype;
  int t, e;
  const char* quantization = "none";
};

// Every golden, so every family and weight format; types and geometries take turns.
std::vector<Model> models() {
  constexpr std::pair<int, int> kShapes[] = {{2, 2}, {1, 3}, {2, 3}, {1, 1}};
  std::vector<Model> out;
  for (const std::string& name : golden_names()) {
    const auto [t, e] = kShapes[out.size() % std::size(kShapes)];
    out.push_back({name, out.size() % 3 == 0 ? "float32" : "bfloat16", t, e});
  }
  for (const char* name : {"deepseek_v32_fp8", "glm4_moe", "gpt_oss"}) {
    out.push_back({name, "bfloat16", 2, 2, "int8"});
  }
  return out;
}

void PrintTo(const Model& model, std::ostream* out) {
  *out << model.golden << "_" << model.dtype << "_T" << model.t << "E" << model.e
       << (model.quantization == std::string("int8") ? "_int8" : "");
}

class InvarianceTest : public testing::TestWithParam<Model> {
 protected:
  InvarianceTest()
      : golden_(golden_named(GetParam().golden)),
        bench_({.model = golden_directory(GetParam().golden),
                .d = 1,
                .t = GetParam().t,
                .e = GetParam().e,
                .dtype = GetParam().dtype,
                .quantization = GetParam().quantization,
                .max_batch_tokens = 128}) {
    const std::vector<int32_t>& longest = golden_.cases.back().prompt;
    subject_ = {longest, 6, 0.7, 42};
    alone_ = bench_.run({subject_}, {}).front();
    EXPECT_EQ(alone_.logits.size(), static_cast<size_t>(bench_.spec().vocab));
    EXPECT_EQ(alone_.tokens.size(), 6u);
  }

  // The subject among 20 prompts of mixed lengths, in the middle of them.
  std::vector<Prompt> crowd(uint64_t seed) const {
    Prng prng(seed + 1);
    std::vector<Prompt> out;
    for (int i = 0; i < 20; ++i) {
      Prompt prompt;
      const uint64_t length = 1 + prng.below(60);
      for (uint64_t j = 0; j < length; ++j) {
        prompt.tokens.push_back(
            static_cast<int32_t>(prng.below(static_cast<uint64_t>(bench_.spec().vocab))));
      }
      prompt.max_tokens = 1 + static_cast<int>(prng.below(4));
      out.push_back(std::move(prompt));
    }
    out.insert(out.begin() + 7, subject_);
    return out;
  }

  Golden golden_;
  Bench bench_;
  Prompt subject_;
  Outcome alone_;
};

TEST_P(InvarianceTest, AloneOrAmongTwentyForEveryDAndR) {
  for (const int d : {1, 3}) {
    for (const int r : {1, 2, 3}) {
      EXPECT_EQ(bench_.run({subject_}, {.d = d, .r = r}).front(), alone_)
          << "D " << d << " R " << r;
      EXPECT_EQ(bench_.run(crowd(3), {.d = d, .r = r})[7], alone_) << "D " << d << " R " << r;
    }
  }
}

TEST_P(InvarianceTest, WholeOrInPiecesOverTheCache) {
  for (const int piece : {1, 3, 16, 37, 64}) {
    EXPECT_EQ(bench_.run({subject_}, {.max_batch_tokens = piece}).front(), alone_)
        << "pieces of " << piece;
  }
}

TEST_P(InvarianceTest, SeedsOfDelayAndReordering) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Bench::Run run{.d = 1 + static_cast<int>(seed % 3),
                         .r = 1 + static_cast<int>(seed / 3 % 3),
                         .seed = seed,
                         .max_delay = Duration::micros(static_cast<int64_t>(seed % 50))};
    ASSERT_EQ(bench_.run(crowd(seed % 5), run)[7], alone_) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, InvarianceTest, testing::ValuesIn(models()),
                         [](const auto& param) { return testing::PrintToString(param.param); });

// Threads of a device are no part of the result either.
TEST(Invariance, ThreadsOfADevice) {
  const Golden golden = golden_named("deepseek_v32_bf16");
  const Prompt prompt{golden.cases.back().prompt, 4};
  std::vector<Outcome> outcomes;
  for (const int threads : {1, 2, 5}) {
    Bench bench({.model = golden_directory("deepseek_v32_bf16"), .threads = threads});
    outcomes.push_back(bench.run({prompt}, {}).front());
  }
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(outcomes[0], outcomes[2]);
}

// An item larger than one call of the super kernel is answered in pieces; the bits stay.
TEST(Invariance, AnItemLargerThanOneKernelCallIsServedInPieces) {
  Bench bench({.model = std::string(ASAP_SOURCE_DIR) + "/models/asap-tiny-moe",
               .max_batch_tokens = 3 * kPieceTokens,
               .max_model_len = 4 * kPieceTokens});
  Prompt prompt;
  for (int i = 0; i < kPieceTokens + 300; ++i) prompt.tokens.push_back(2 + i * 7 % 4000);
  const Outcome whole = bench.run({prompt}, {}).front();
  EXPECT_EQ(bench.run({prompt}, {.max_batch_tokens = 1000}).front(), whole);
}

}  // namespace
}  // namespace asap::test
