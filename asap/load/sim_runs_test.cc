#include "asap/load/sim_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

namespace asap {
namespace {

using testing::HasSubstr;

LoadReport report(double mean, size_t count = 10) {
  LoadReport out;
  out.requests = out.finished = static_cast<int>(count);
  out.ttft = {count, mean, mean, 2 * mean, 3 * mean, 4 * mean};
  return out;
}

// A server whose mean TTFT is 100 ms at no load and grows without bound towards `limit`.
Result<LoadReport> queue(const SimPoint& point, double limit) {
  const double room = 1 - point.rate / limit;
  return report(room <= 0 ? 1e6 : 100 / room);
}

TEST(SimRuns, AskedThenRunThenKnown) {
  std::atomic<int> calls = 0;
  SimRuns runs(
      [&](const SimPoint& point) {
        ++calls;
        return queue(point, 10);
      },
      {}, nullptr);
  SimPoint point;
  point.rate = 5;
  EXPECT_FALSE(runs.point(point));
  EXPECT_FALSE(runs.point(point));  // asked twice, run once
  EXPECT_TRUE(runs.missing());
  ASSERT_TRUE(runs.work());
  EXPECT_FALSE(runs.missing());
  ASSERT_TRUE(runs.point(point));
  EXPECT_DOUBLE_EQ(runs.point(point)->mean, 200);
  EXPECT_DOUBLE_EQ(runs.point(point)->p99, 600);
  EXPECT_FALSE(runs.missing());
  EXPECT_EQ(calls, 1);
}

TEST(SimRuns, SearchesOnceForEachStatistic) {
  SimRunsOptions options;
  options.jobs = 4;
  options.tolerance = 0.01;
  std::mutex mutex;
  std::multiset<double> rates;
  SimRuns runs(
      [&](const SimPoint& point) {
        const std::lock_guard lock(mutex);
        rates.insert(point.rate);
        return queue(point, 20);
      },
      options, nullptr);
  const SimPoint base;
  EXPECT_FALSE(runs.slo_rate(base, SloStatistic::mean));
  EXPECT_FALSE(runs.slo_rate(base, SloStatistic::p99));
  ASSERT_TRUE(runs.work());
  const auto mean = runs.slo_rate(base, SloStatistic::mean);
  const auto p99 = runs.slo_rate(base, SloStatistic::p99);
  ASSERT_TRUE(mean && p99);
  // 100 / (1 - r/20) = 5000, and three times that for p99.
  EXPECT_NEAR(*mean, 19.6, 0.2);
  EXPECT_NEAR(*p99, 18.8, 0.2);
  for (const double rate : rates) EXPECT_EQ(rates.count(rate), 1u) << rate;
  EXPECT_EQ(runs.json()["slo_rates"].size(), 2u);
}

// A rate at which requests are refused does not count, however fast the others were.
TEST(SimRuns, LossesMissTheLimit) {
  SimRuns runs(
      [](const SimPoint& point) -> Result<LoadReport> {
        LoadReport out = report(10);
        out.refused = point.rate > 3 ? 1 : 0;
        return out;
      },
      {}, nullptr);
  EXPECT_FALSE(runs.slo_rate(SimPoint{}, SloStatistic::mean));
  ASSERT_TRUE(runs.work());
  EXPECT_NEAR(*runs.slo_rate(SimPoint{}, SloStatistic::mean), 3, 0.06);
}

TEST(SimRuns, RepetitionsAreAveraged) {
  SimRunsOptions options;
  options.repeats = 3;
  SimRuns runs(
      [](const SimPoint& point) -> Result<LoadReport> {
        const size_t count = point.repeat == 0 ? 30 : 10;
        LoadReport out = report(100 + 10 * point.repeat, count);
        out.parts.count = count;
        out.parts.mean.queueing = point.repeat == 0 ? 10 : 60;
        out.bins = {{64 << point.repeat, 128 << point.repeat, out.ttft, out.parts},
                    {1024, 2048, out.ttft, out.parts}};
        return out;
      },
      options, nullptr);
  EXPECT_FALSE(runs.point(SimPoint{}));
  ASSERT_TRUE(runs.work());
  const PointStats stats = *runs.point(SimPoint{});
  EXPECT_DOUBLE_EQ(stats.mean, 110);
  EXPECT_DOUBLE_EQ(stats.low, 100);
  EXPECT_DOUBLE_EQ(stats.high, 120);
  EXPECT_EQ(stats.requests, 50);
  EXPECT_DOUBLE_EQ(stats.parts.mean.queueing, 30);  // by requests: 30·10 + 20·60
  ASSERT_EQ(stats.bins.size(), 4u);
  EXPECT_EQ(stats.bins[0].low, 64);
  EXPECT_EQ(stats.bins[3].low, 1024);
  EXPECT_EQ(stats.bins[3].ttft.count, 50u);
  EXPECT_DOUBLE_EQ(stats.bins[3].ttft.mean, (30 * 100 + 10 * 110 + 10 * 120) / 50.0);
  EXPECT_DOUBLE_EQ(stats.bins[3].parts.mean.queueing, 30);
}

TEST(SimRuns, WhatIsUnsupportedIsLeftOutAndTheRestRuns) {
  SimRuns runs(
      [](const SimPoint& point) -> Result<LoadReport> {
        if (point.settings.changes.merge_items) return fail(Code::unsupported, "no merging");
        return queue(point, 10);
      },
      {}, nullptr);
  SimPoint merged;
  merged.settings.changes.merge_items = true;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(runs.point(merged), std::nullopt);
    EXPECT_EQ(runs.slo_rate(merged, SloStatistic::mean), std::nullopt);
    EXPECT_EQ(runs.point(SimPoint{}).has_value(), round == 1);
    EXPECT_EQ(runs.missing(), round == 0);
    if (runs.missing()) {
      ASSERT_TRUE(runs.work());
    }
  }
  EXPECT_THAT(runs.unsupported(), testing::ElementsAre("no merging"));
}

TEST(SimRuns, AnotherErrorEndsTheWork) {
  SimRunsOptions options;
  options.jobs = 3;
  SimRuns runs([](const SimPoint&) -> Result<LoadReport> { return fail(Code::invalid, "bad"); },
               options, nullptr);
  for (double rate = 1; rate < 20; ++rate) {
    SimPoint point;
    point.rate = rate;
    EXPECT_FALSE(runs.point(point));
  }
  const Status status = runs.work();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "bad");
}

TEST(SimPoint, TextsTellPointsApart) {
  SimPoint point;
  std::set<std::string> texts = {point.text()};
  const auto differs = [&](auto change) {
    SimPoint other;
    change(other);
    EXPECT_TRUE(texts.insert(other.text()).second) << other.text();
  };
  differs([](SimPoint& p) { p.engine = kDefault; });
  differs([](SimPoint& p) { p.rate = 1.001; });
  differs([](SimPoint& p) { p.repeat = 1; });
  differs([](SimPoint& p) { p.settings.expert_skew = false; });
  differs([](SimPoint& p) { p.settings.seconds = 60; });
  differs([](SimPoint& p) { p.settings.workload = "W1"; });
  differs([](SimPoint& p) { p.settings.profile = "other"; });
  differs([](SimPoint& p) { p.settings.changes.refill = true; });
  differs([](SimPoint& p) { p.settings.changes.refill = false; });
  differs([](SimPoint& p) { p.settings.changes.stages = 3; });
  SimChanges all;
  all.stages = 3;
  all.overlap = false;
  all.exclusive_tokens = 0;
  EXPECT_EQ(all.text(), "stages=3 overlap=off exclusive-tokens=0");
}

}  // namespace
}  // namespace asap
