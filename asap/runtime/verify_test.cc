// The verdict of `asap verify`; whole engines are verified by tests/verify_cli_test.py.
#include "asap/runtime/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "asap/compute/attention_side.h"
#include "asap/runtime/run_requests.h"

namespace asap {
namespace {

class Judge : public testing::Test {
 protected:
  Judge() {
    GoldenCase c;
    c.prompt = {1, 2, 3};
    c.logits = {1.0f, -2.0f, 0.5f};
    c.greedy = {0, 2};
    golden_.cases = {c, c};
    golden_.fp32.logits_rel = 1e-3;
    golden_.bf16 = {0.1, 0.05};
    answers_.resize(2);
    for (Answer& answer : answers_) {
      answer.logits = c.logits;
      answer.tokens = c.greedy;
    }
  }
  VerifyOutcome fp32() const { return judge(golden_, Precision::fp32, answers_); }
  VerifyOutcome bf16() const { return judge(golden_, Precision::bf16, answers_); }

  Golden golden_;
  std::vector<Answer> answers_;
};

TEST_F(Judge, EqualAnswersPass) {
  const VerifyOutcome outcome = fp32();
  EXPECT_EQ(outcome.problem, "");
  EXPECT_EQ(outcome.logits_error, 0);
  EXPECT_EQ(outcome.greedy_equal, 4u);
  EXPECT_EQ(outcome.greedy_total, 4u);
  EXPECT_EQ(outcome.greedy_required, 4u);
  EXPECT_EQ(bf16().greedy_required, 0u);
}

TEST_F(Judge, TheWorstPromptCounts) {
  answers_[0].logits[0] += 0.004f;  // of a largest value of 2
  const VerifyOutcome outcome = fp32();
  EXPECT_NEAR(outcome.logits_error, 0.002, 1e-6);
  EXPECT_THAT(outcome.problem, testing::HasSubstr("logits error 0.002 > 0.001"));
  EXPECT_EQ(bf16().problem, "");
}

TEST_F(Judge, RmsIsLimitedToo) {
  for (float& logit : answers_[1].logits) logit *= 1.07f;
  EXPECT_THAT(bf16().problem, testing::HasSubstr("rms logits error 0.07 > 0.05"));
}

TEST_F(Judge, NotANumberFailsWhereverItIs) {
  for (Answer& answer : answers_) {
    const float kept = answer.logits[2];
    answer.logits[2] = NAN;
    EXPECT_NE(fp32().problem, "");
    EXPECT_NE(bf16().problem, "");
    answer.logits[2] = kept;
  }
  EXPECT_EQ(fp32().problem, "");
}

TEST_F(Judge, TokensCountWhereTheGoldenSaysSo) {
  answers_[1].tokens[1] = 1;
  const VerifyOutcome outcome = fp32();
  EXPECT_EQ(outcome.greedy_equal, 3u);
  EXPECT_THAT(outcome.problem, testing::HasSubstr("generated token 1 is 1, expected 2"));
  EXPECT_EQ(bf16().problem, "");
  for (GoldenCase& c : golden_.cases) c.sure_tokens = 1;
  EXPECT_EQ(bf16().problem, "");
  answers_[1].tokens[0] = 1;
  EXPECT_THAT(bf16().problem, testing::HasSubstr("generated token 0 is 1, expected 0"));
}

TEST_F(Judge, MissingTokensAndLogitsFail) {
  answers_[0].tokens.pop_back();
  EXPECT_NE(fp32().problem, "");
  answers_[0].logits.clear();
  EXPECT_THAT(bf16().problem, testing::HasSubstr("0 logits, expected 3"));
}

TEST(VerifyRuns, CoverKernelsTypesAndPlaces) {
  Golden golden;
  golden.alt_configs = {"config_v5.json"};
  ModelSpec spec;
  spec.experts = 8;
  spec.heads = spec.kv_heads = 5;  // two ranks cannot share these heads
  std::set<std::string> kernels;
  int processes = 0;
  int alternatives = 0;
  const std::vector<VerifyRun> runs = verify_runs(golden, spec);
  for (const VerifyRun& run : runs) {
    kernels.insert(run.ops + " " + run.dtype);
    processes += run.in_process ? 0 : 1;
    alternatives += run.config_file == "config_v5.json" ? 1 : 0;
    EXPECT_TRUE(check_tensor_parallel(spec, run.ranks)) << run.geometry();
    EXPECT_LE(run.expert_ranks, spec.experts);
  }
  EXPECT_EQ(runs.size(), 10u);
  EXPECT_EQ(kernels, (std::set<std::string>{"ref float32", "cpu float32", "cpu bfloat16"}));
  EXPECT_EQ(processes, 6);
  EXPECT_EQ(alternatives, 1);
}

}  // namespace
}  // namespace asap
