// The planner on a small machine: that its answers follow the demand.
#include "asap/sim/plan.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

PlanRequest request(int devices, double rate, const std::string& lengths) {
  PlanRequest out;
  out.shared.profile = "cm384-deepseek-v3.2";
  out.shared.num_hidden_layers = 6;  // the shape of the answers does not need 61
  out.shared.preset = "deepseek-v3.2";
  out.shared.hf_overrides = R"({"first_k_dense_replace": 0})";
  out.workload.lengths = parse_length_law(lengths).value();
  out.workload.rate = rate;
  out.workload.seconds = 4;
  out.space.devices = devices;
  out.space.engines = {"asap"};
  out.space.stages = {3};
  out.slo_ttft_ms = 500;
  out.slo_tolerance = 0.2;
  out.keep = 2;
  return out;
}

PlanResult planned(const PlanRequest& r) {
  auto result = plan(r, nullptr);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *std::move(result) : PlanResult{};
}

int attention_devices(const PlannedInstance& p) {
  return p.candidate.config.data_parallel_size * p.candidate.config.tensor_parallel_size;
}

// A search of minutes must not go on to the end of a round.
TEST(Plan, StopsInTheMidstOfASimulation) {
  PlanRequest r = request(6, 1, "constant:1024");
  r.workload.seconds = 100;
  int calls = 0, done = 0;
  const auto result = plan(r, [&](const PlanProgress& p) {
    done = p.done;
    return ++calls < 2;
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::unavailable);
  EXPECT_EQ(done, 0) << "two calls during the first simulation";
  EXPECT_EQ(calls, 2) << "nothing is asked once it has been stopped";
}

TEST(Candidates, UseAllDevicesAndFitTheModel) {
  const PlanRequest r = request(6, 1, "constant:1024");
  CandidateSpace space = r.space;
  space.engines = {"asap", "default"};
  const auto all = make_candidates(r.shared, space, make_workload(r.workload).value()).value();
  int lockstep = 0;
  for (const Candidate& c : all) {
    const EngineConfig& config = c.config;
    const int attention = config.data_parallel_size * config.tensor_parallel_size;
    EXPECT_EQ(128 % config.tensor_parallel_size, 0) << c.name();
    EXPECT_GT(c.attention.weights, 0u);
    EXPECT_GT(c.expert.weights, 0u);
    EXPECT_GT(c.load.attention, 0);
    if (in_lockstep(config)) {
      ++lockstep;
      EXPECT_EQ(config.num_moe_ranks, attention);
      EXPECT_EQ(c.memory(), c.attention.total() + c.expert.total());
    } else {
      EXPECT_EQ(attention + config.num_moe_ranks, 6) << c.name();
    }
  }
  EXPECT_EQ(lockstep, 3);          // T = 1, 2, 4
  EXPECT_EQ(all.size(), 8u + 3u);  // T = 1: D 1-5, T = 2: D 1-2, T = 4: D 1
}

// What the arithmetic says of a device's load is what the simulator measures, less the constants:
// of the profile's model and of another, for which its prices are transferred.
TEST(Candidates, TheAnalyticLoadIsALowerBoundOfTheBusyShare) {
  for (const bool other : {false, true}) {
    PlanRequest r = request(8, 20, "constant:4096");
    r.workload.seconds = 20;
    if (other) {
      r.shared.preset = "qwen3-235b-a22b";
      r.shared.hf_overrides = "{}";
    }
    const PlannedInstance& best = planned(r).best.front();
    EXPECT_LE(best.candidate.load.attention, 1.05 * best.use.attention) << r.shared.preset;
    EXPECT_GE(best.candidate.load.attention, 0.3 * best.use.attention) << r.shared.preset;
    EXPECT_LE(best.candidate.load.experts, 1.05 * best.use.experts) << r.shared.preset;
    EXPECT_GE(best.candidate.load.experts, 0.3 * best.use.experts) << r.shared.preset;
  }
}

// Attention grows with the square of the length, the experts' work does not.
TEST(Plan, LongerPromptsGetMoreAttentionDevices) {
  const PlanResult brief = planned(request(8, 500, "constant:512"));
  PlanRequest r = request(8, 8, "constant:24576");  // more than T = 4 can do
  r.slo_ttft_ms = 5000;
  const PlanResult long_ones = planned(r);
  EXPECT_GT(attention_devices(long_ones.best.front()), attention_devices(brief.best.front()))
      << long_ones.best.front().candidate.name() << " and " << brief.best.front().candidate.name();
}

TEST(Plan, TheBestIsNoWorseThanThePapersGeometry) {
  const PlanResult result = planned(request(8, 20, "constant:4096"));
  ASSERT_EQ(result.reference.size(), 1u);
  EXPECT_EQ(result.reference[0].candidate.name(), "asap 1x4+4 R=3");
  EXPECT_LE(result.best[0].report.ttft.mean, result.reference[0].report.ttft.mean);
  EXPECT_TRUE(result.best[0].meets);
  EXPECT_GE(result.best[0].slo_rate, 20);
  EXPECT_GT(result.simulations, 0);
}

TEST(Plan, AnImpossibleGoalNamesWhatIsNearest) {
  PlanRequest r = request(4, 400, "constant:4096");
  const PlanResult result = planned(r);
  const PlannedInstance& nearest = result.best.front();
  EXPECT_FALSE(nearest.meets);
  EXPECT_GT(nearest.slo_rate, 0);
  EXPECT_LT(nearest.slo_rate, 400);
  for (const PlannedInstance& other : result.best) {
    EXPECT_LE(other.slo_rate, nearest.slo_rate);
  }
  EXPECT_TRUE(nearest.limit == "attention" || nearest.limit == "experts") << nearest.limit;
}

TEST(Plan, MoreThreadsFindTheSame) {
  PlanRequest r = request(6, 10, "lognormal:7:1:64:8192");
  const PlanResult one = planned(r);
  r.jobs = 4;
  const PlanResult four = planned(r);
  ASSERT_EQ(one.best.size(), four.best.size());
  for (size_t i = 0; i < one.best.size(); ++i) {
    EXPECT_EQ(one.best[i].candidate.name(), four.best[i].candidate.name());
    EXPECT_EQ(one.best[i].report.ttft.mean, four.best[i].report.ttft.mean);
    EXPECT_EQ(one.best[i].slo_rate, four.best[i].slo_rate);
  }
}

TEST(Plan, MemoryLeavesOutWhatDoesNotFit) {
  PlanRequest r = request(8, 5, "constant:1024");
  const PlanResult all = planned(r);
  uint64_t least = UINT64_MAX;
  for (const PlannedInstance& p : all.best) least = std::min(least, p.candidate.memory());
  r.device_memory_gb = 1;
  const auto none = plan(r, nullptr);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::invalid);
  EXPECT_NE(none.error().message.find("--device-memory-gb 1: no instance of 8 devices fits"),
            std::string::npos)
      << none.error().message;
  r.device_memory_gb = static_cast<double>(least) * 1e-9 + 0.001;
  const PlanResult some = planned(r);
  EXPECT_GT(some.too_large, 0);
  for (const PlannedInstance& p : some.best) {
    EXPECT_LE(static_cast<double>(p.candidate.memory()), r.device_memory_gb * 1e9);
  }
}

TEST(Plan, StopsWhenAsked) {
  const auto result =
      plan(request(6, 5, "constant:1024"), [](const PlanProgress&) { return false; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::unavailable);
}

TEST(Plan, WhatLimits) {
  LoadReport report;
  report.parts.mean = {.queueing = 1, .attention = 8, .experts = 4, .barrier = 0};
  EXPECT_EQ(limit_of({0.9, 0.8, 0.1}, report), "attention");
  EXPECT_EQ(limit_of({0.2, 0.8, 0.1}, report), "experts");
  EXPECT_EQ(limit_of({0.2, 0.3, 0.75}, report), "combine send");
  EXPECT_EQ(limit_of({0.2, 0.3, 0.2}, report), "latency");
  report.parts.mean.queueing = 20;
  EXPECT_EQ(limit_of({0.2, 0.3, 0.2}, report), "queue");
  report.parts.mean.barrier = 30;
  EXPECT_EQ(limit_of({0.2, 0.3, 0.2}, report), "barrier");
}

}  // namespace
}  // namespace asap
