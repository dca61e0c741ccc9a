#include "asap/load/report.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

RequestRecord record(double scheduled, double first, double finished, int tokens, RequestEnd end) {
  RequestRecord out;
  out.scheduled = out.sent = scheduled;
  out.first = first;
  out.finished = finished;
  out.prompt_tokens = tokens;
  out.end = end;
  return out;
}

TEST(Report, QuantilesAreNearestRanks) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Quantiles q = quantiles(values);
  EXPECT_EQ(q.count, 100u);
  EXPECT_DOUBLE_EQ(q.mean, 50.5);
  EXPECT_EQ(q.p50, 50);
  EXPECT_EQ(q.p90, 90);
  EXPECT_EQ(q.p99, 99);
  EXPECT_EQ(q.max, 100);
  EXPECT_EQ(quantiles({}).count, 0u);
  EXPECT_EQ(quantiles({5}).p99, 5);
}

// What had no token when the run ended waited at least until then; dropping it would make an
// overloaded server look fast.
TEST(Report, UnfinishedRequestsCountWithTheirAge) {
  LoadResult result;
  result.seconds = 10;
  result.requests.push_back(record(1, 1.5, 2, 100, RequestEnd::finished));
  result.requests.push_back(record(4, -1, -1, 100, RequestEnd::unfinished));
  result.requests.push_back(record(5, -1, 5.1, 700, RequestEnd::refused));
  result.requests.back().error = "HTTP 429: full";
  const LoadReport report = make_report(result);
  EXPECT_EQ(report.ttft.count, 2u);
  EXPECT_DOUBLE_EQ(report.ttft.mean, (500 + 6000) / 2.0);
  EXPECT_EQ(report.unfinished, 1);
  EXPECT_EQ(report.refused, 1);
  EXPECT_DOUBLE_EQ(report.request_rate, 0.1);
  ASSERT_EQ(report.bins.size(), 1u);
  EXPECT_EQ(report.bins[0].low, 64);
  EXPECT_EQ(report.bins[0].ttft.count, 2u);
  ASSERT_EQ(report.errors.size(), 1u);
  EXPECT_EQ(report.errors[0], "1 x HTTP 429: full");
  EXPECT_NE(text_of(report).find("1 unfinished"), std::string::npos);
  EXPECT_EQ(json_of(report)["ttft_ms"]["count"], 2);
}

}  // namespace
}  // namespace asap
