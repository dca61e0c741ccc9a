// The sampler against the definitions of its parameters: sets by enumeration, probabilities by
// counting draws.
#include "asap/runtime/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "asap/runtime/sampling.h"

namespace asap {
namespace {

// Probabilities 0.5, 0.25, 0.125, ...: logits are their logarithms.
std::vector<float> halves(int n) {
  std::vector<float> logits;
  for (int i = 1; i <= n; ++i) logits.push_back(static_cast<float>(-i * std::log(2.0)));
  return logits;
}

std::map<int32_t, int> draw(std::span<const float> logits, SampleParams params, int times) {
  std::map<int32_t, int> seen;
  params.temperature = 1;
  for (int i = 0; i < times; ++i) {
    params.seed = static_cast<uint64_t>(i);
    ResultEntry entry{};
    sample(logits, params, &entry);
    ++seen[entry.token];
  }
  return seen;
}

std::set<int32_t> drawn(std::span<const float> logits, const SampleParams& params) {
  std::set<int32_t> ids;
  for (const auto& [id, times] : draw(logits, params, 3000)) ids.insert(id);
  return ids;
}

int32_t greedy(std::span<const float> logits, SampleParams params = {}) {
  params.temperature = 0;
  ResultEntry entry{};
  sample(logits, params, &entry);
  return entry.token;
}

SampleParams with(auto set) {
  SampleParams params;
  set(params);
  return params;
}
SampleParams top_k(int k) {
  return with([&](auto& p) { p.top_k = k; });
}
SampleParams top_p(float share) {
  return with([&](auto& p) { p.top_p = share; });
}
SampleParams min_p(float share) {
  return with([&](auto& p) { p.min_p = share; });
}
SampleParams biased(std::span<const LogitBias> biases) {
  return with([&](auto& p) { p.biases = biases; });
}

using Ids = std::set<int32_t>;

TEST(Sampler, TopKKeepsTheLikeliest) {
  const auto logits = halves(6);
  EXPECT_EQ(drawn(logits, top_k(1)), (Ids{0}));
  EXPECT_EQ(drawn(logits, top_k(3)), (Ids{0, 1, 2}));
  EXPECT_EQ(drawn(logits, top_k(100)), (Ids{0, 1, 2, 3, 4, 5}));
  const std::vector<float> equal(5, 1.0f);  // the lower ids of a tie
  EXPECT_EQ(drawn(equal, top_k(2)), (Ids{0, 1}));
}

TEST(Sampler, TopPKeepsTheSmallestSetWithThatProbability) {
  const auto logits = halves(12);
  EXPECT_EQ(drawn(logits, top_p(0.4f)), (Ids{0}));
  EXPECT_EQ(drawn(logits, top_p(0.6f)), (Ids{0, 1}));
  EXPECT_EQ(drawn(logits, top_p(0.8f)), (Ids{0, 1, 2}));
  EXPECT_EQ(drawn(logits, top_p(1e-9f)), (Ids{0}));
  // Of what top_k left: token 0 has two thirds of it.
  SampleParams both = top_k(2);
  both.top_p = 0.6f;
  EXPECT_EQ(drawn(logits, both), (Ids{0}));
  both.top_p = 0.7f;
  EXPECT_EQ(drawn(logits, both), (Ids{0, 1}));
}

TEST(Sampler, TopPOfAFlatDistributionSortsAsFarAsItMust) {
  const std::vector<float> flat(1000, 0.5f);
  const auto ids = drawn(flat, top_p(0.25f));
  EXPECT_EQ(*ids.begin(), 0);
  EXPECT_GE(*ids.rbegin(), 230);
  EXPECT_LE(*ids.rbegin(), 250);
}

TEST(Sampler, MinPIsAShareOfTheLikeliest) {
  const auto logits = halves(6);
  EXPECT_EQ(drawn(logits, min_p(0.9f)), (Ids{0}));
  EXPECT_EQ(drawn(logits, min_p(0.2f)), (Ids{0, 1, 2}));
}

TEST(Sampler, DrawsWithTheProbabilitiesOfWhatIsLeft) {
  const auto seen = draw(halves(8), top_k(2), 30000);
  EXPECT_NEAR(seen.at(0) / 30000.0, 2.0 / 3, 0.01);
  EXPECT_NEAR(seen.at(1) / 30000.0, 1.0 / 3, 0.01);
}

TEST(Sampler, FiltersThatKeepAllChangeNothing) {
  const auto logits = halves(9);
  const auto plain = draw(logits, {}, 500);
  EXPECT_EQ(draw(logits, top_k(9), 500), plain);
  EXPECT_EQ(draw(logits, min_p(1e-9f), 500), plain);
  EXPECT_EQ(draw(logits, top_p(0.9999999f), 500), plain);
}

TEST(Sampler, BiasesAddAndForbid) {
  const auto logits = halves(6);
  const LogitBias up[] = {{4, 10.0f}};
  EXPECT_EQ(greedy(logits, biased(up)), 4);
  const LogitBias ban[] = {{0, -INFINITY}, {1, -INFINITY}};
  EXPECT_EQ(greedy(logits, biased(ban)), 2);
  EXPECT_EQ(drawn(logits, biased(ban)).count(0), 0u);
}

TEST(Sampler, PenaltiesCountTheOutputAndRepetitionThePromptToo) {
  const std::vector<float> logits{2.0f, 1.9f, -1.0f, 0.0f};
  const int32_t history[] = {0, 1, 1, 1};  // prompt 0; output 1 1 1
  SampleParams p;
  p.history = history;
  p.prompt = 1;
  EXPECT_EQ(greedy(logits, p), 0);
  p.presence_penalty = -0.2f;  // 1.9 + 0.2 for token 1, nothing for the prompt's
  EXPECT_EQ(greedy(logits, p), 1);
  p.presence_penalty = 0;
  p.frequency_penalty = -0.05f;  // three times
  EXPECT_EQ(greedy(logits, p), 1);
  p.frequency_penalty = 0;
  p.repetition_penalty = 100;  // 0.02 and 0.019; what was not seen before keeps its logit
  EXPECT_EQ(greedy(logits, p), 0);
  const std::vector<float> fresh{2.0f, 1.9f, -1.0f, 0.5f};
  EXPECT_EQ(greedy(fresh, p), 3);
}

TEST(Sampler, LogprobsAreTheModels) {
  const auto logits = halves(4);
  const LogitBias up[] = {{3, 50.0f}};
  SampleParams p = biased(up);
  p.logprobs = 2;
  ResultEntry entry{};
  sample(logits, p, &entry);
  EXPECT_EQ(entry.token, 3);
  const double sum = 0.5 + 0.25 + 0.125 + 0.0625;
  EXPECT_NEAR(static_cast<double>(entry.logprob), std::log(0.0625 / sum), 1e-5);
  EXPECT_EQ(entry.top_ids[0], 0);
}

TEST(Sampling, ForbidsEarlyEnds) {
  SamplingParams p;
  p.max_tokens = 10;
  p.min_tokens = 3;
  p.stop_token_ids = {7};
  p.logit_bias = {{1, 2.0f}};
  const std::vector<int> eos{5, 6};
  SequenceCommand command{};
  std::vector<LogitBias> biases;
  put_sampling(p, eos, 2, &command, &biases);
  EXPECT_EQ(command.biases, 4);
  put_sampling(p, eos, 3, &command, &biases);
  EXPECT_EQ(command.biases, 1);
  EXPECT_EQ(biases.size(), 5u);
  EXPECT_TRUE(ends_output(p, eos, 6) && ends_output(p, eos, 7) && !ends_output(p, eos, 8));
  p.ignore_eos = true;
  EXPECT_TRUE(!ends_output(p, eos, 6) && ends_output(p, eos, 7));
}

void expect_refused(const char* name, const std::function<void(SamplingParams&)>& set) {
  SamplingParams p;
  set(p);
  const Status status = check_sampling(p, 100);
  ASSERT_FALSE(status) << name;
  EXPECT_EQ(status.error().code, Code::invalid);
  EXPECT_NE(status.error().message.find(name), std::string::npos) << status.error().message;
}

TEST(Sampling, ErrorsNameTheField) {
  expect_refused("top_p", [](auto& p) { p.top_p = 0; });
  expect_refused("top_p", [](auto& p) { p.top_p = NAN; });
  expect_refused("top_k", [](auto& p) { p.top_k = -2; });
  expect_refused("min_p", [](auto& p) { p.min_p = 1.5; });
  expect_refused("presence_penalty", [](auto& p) { p.presence_penalty = 3; });
  expect_refused("frequency_penalty", [](auto& p) { p.frequency_penalty = NAN; });
  expect_refused("repetition_penalty", [](auto& p) { p.repetition_penalty = 0; });
  expect_refused("min_tokens", [](auto& p) { p.min_tokens = 17; });
  expect_refused("logit_bias", [](auto& p) { p.logit_bias = {{100, 1.0f}}; });
  expect_refused("logit_bias", [](auto& p) { p.logit_bias.resize(400); });
  expect_refused("stop_token_ids", [](auto& p) { p.stop_token_ids = {-1}; });
  EXPECT_TRUE(check_sampling({}, 100));
}

}  // namespace
}  // namespace asap
