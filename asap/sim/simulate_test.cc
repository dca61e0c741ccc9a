// The virtual driver: deterministic, loses nothing, and its times are those of the cost profile.
#include "asap/sim/simulate.h"

#include <gmock/gmock.h>

#include "asap/load/report.h"
#include "asap/runtime/profile.h"
#include "asap/sim/sim_point.h"

namespace asap {
namespace {

std::vector<Arrival> poisson(double rate, double seconds, uint64_t seed = 1) {
  WorkloadSpec spec;
  spec.lengths = *parse_length_law("lognormal:7.6:1.4:31:32768");
  spec.rate = rate;
  spec.seconds = seconds;
  spec.seed = seed;
  return *make_workload(spec);
}

std::vector<Arrival> one(double at, int tokens) {
  Arrival arrival;
  arrival.at = at;
  arrival.prompt_tokens = tokens;
  return {arrival};
}

EngineConfig config_for(const std::string& engine) {
  SimPoint point;
  point.engine = engine;
  return *config_of(point);
}

SimulationResult run(const EngineConfig& config, const std::vector<Arrival>& workload) {
  auto result = simulate(config, workload, {}, nullptr);
  EXPECT_TRUE(result) << result.error().message;
  return std::move(*result);
}

double mean_ttft(const SimulationResult& result) {
  return make_report(result.load).ttft.mean;
}

class EveryEngine : public testing::TestWithParam<const char*> {};

TEST_P(EveryEngine, FinishesEveryRequestAndRepeatsItself) {
  const EngineConfig config = config_for(GetParam());
  const auto workload = poisson(6, 10);
  const SimulationResult first = run(config, workload);
  const LoadReport report = make_report(first.load);
  EXPECT_EQ(report.finished, report.requests);
  EXPECT_GT(report.requests, 40);
  for (const RequestRecord& r : first.load.requests) EXPECT_GT(r.first, r.scheduled);
  const SimulationResult again = run(config, workload);
  EXPECT_EQ(first.hash, again.hash);
  EXPECT_EQ(first.events, again.events);
  EXPECT_NE(first.hash, run(config, poisson(6, 10, 2)).hash);
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryEngine,
                         testing::Values("asap", "asap-paper", "default", "chunked"),
                         [](const auto& engine) {
                           std::string name = engine.param;
                           std::erase(name, '-');
                           return name;
                         });

// One prompt of 1024 tokens that nothing overlaps with: the profile's formulas, layer by layer.
TEST(Simulate, OnePromptTakesWhatTheProfileSays) {
  EngineConfig config = config_for("asap");
  config.split_lone_tokens = 0;
  const CostProfile p = *load_profile(config.profile);
  const int n = 1024;
  const double layer = (p.attention(n, double(n) * n, 4) + p.collectives(n, 4) + p.dispatch(n, 4) +
                        p.receive(n, 16) + p.experts(n, 16) + p.combine(n, 4) + p.add(n, 4))
                           .to_millis();
  EXPECT_NEAR(mean_ttft(run(config, one(1.0, n))), p.request + 61 * layer, 0.5);
}

TEST(Simulate, EachMechanismIsWorthSomething) {
  const auto workload = poisson(19, 30);
  const double all = mean_ttft(run(config_for("asap-paper"), workload));
  const auto without = [&](auto change) {
    EngineConfig config = config_for("asap-paper");
    change(config);
    return mean_ttft(run(config, workload));
  };
  EXPECT_GT(without([](EngineConfig& c) { c.stages = 1; }), 1.05 * all);
  EXPECT_GE(without([](EngineConfig& c) { c.regions = 1; }), 0.99 * all);
  EXPECT_GT(without([](EngineConfig& c) { c.overlap = false; }), 1.02 * all);
  EXPECT_GT(without([](EngineConfig& c) { c.super_kernel = false; }), 1.01 * all);
  EXPECT_LT(mean_ttft(run(config_for("asap"), workload)), 0.95 * all);
  EXPECT_GT(mean_ttft(run(config_for("chunked"), workload)), 1.5 * all);
}

TEST(Simulate, PartsAddUpToTheTimeToFirstToken) {
  for (const char* scheduler : {"asap", "asap-paper", "default", "chunked"}) {
    for (const double rate : {1.0, 8.0}) {
      const SimulationResult result = run(config_for(scheduler), poisson(rate, 10));
      ASSERT_GT(result.load.requests.size(), 5u);
      for (const RequestRecord& r : result.load.requests) {
        ASSERT_TRUE(r.parts);
        const TimeParts& p = *r.parts;
        double sum = 0;
        for (const TimePart& part : kTimeParts) {
          EXPECT_GE(p.*part.value, 0) << scheduler << ": " << part.name;
          sum += p.*part.value;
        }
        const double ttft = 1e3 * (r.first - r.scheduled);
        EXPECT_NEAR(sum, ttft, 0.01) << scheduler << " at " << rate << "/s";
        // Its own kernels and the fixed part: whatever else is slow, these are there.
        EXPECT_GT(p.attention, 0);
        EXPECT_GT(p.experts, 0);
        EXPECT_GE(p.host, 29.99) << scheduler;  // the profile's 30 ms per request
        EXPECT_LT(p.host, 35) << scheduler;
      }
    }
  }
}

TEST(Simulate, OnlyLockstepEnginesWaitAtBarriers) {
  EXPECT_EQ(make_report(run(config_for("asap"), poisson(8, 10)).load).parts.mean.barrier, 0);
  EXPECT_GT(make_report(run(config_for("default"), poisson(4, 10)).load).parts.mean.barrier, 1);
}

// A device is never more than fully busy, and does the same work whatever the order.
TEST(Simulate, UseIsAShare) {
  const auto workload = poisson(12, 10);
  const SimulationResult r = run(config_for("asap"), workload);
  for (const DeviceUse& use : r.use) {
    for (const Duration busy : {use.receive, use.compute, use.send}) {
      EXPECT_GE(busy.ns, 0);
      EXPECT_LE(busy.to_seconds(), r.virtual_seconds);
    }
  }
}

TEST(Simulate, ErrorsNameTheRemedy) {
  EngineConfig config = config_for("asap");
  config.profile = "nowhere";
  const auto result = simulate(config, one(0, 10), {}, nullptr);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, testing::HasSubstr("cm384-deepseek-v3.2"));
  SimPoint point;
  point.engine = "fast";
  EXPECT_FALSE(config_of(point));
}

// Beyond capacity nothing is dropped: what waits at the end is counted with its age.
TEST(Simulate, OverloadIsCounted) {
  SimulationLimits limits;
  limits.grace_seconds = 1;
  const auto workload = poisson(60, 10);
  const auto result = simulate(config_for("asap"), workload, limits, nullptr);
  ASSERT_TRUE(result);
  const LoadReport report = make_report(result->load);
  EXPECT_EQ(report.requests, static_cast<int>(workload.size()));
  EXPECT_GT(report.unfinished, 0);
  EXPECT_EQ(report.finished + report.unfinished, report.requests);
}

}  // namespace
}  // namespace asap
