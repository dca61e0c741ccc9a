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
  for (const char* seconds : {"4.1", "12", "0.25"}) {
    result.requests.push_back(record(6, -1, 6.1, 700, RequestEnd::refused));
    result.requests.back().error = fmt::format("HTTP 429: {} s of work are waiting", seconds);
  }
  ASSERT_EQ(report.errors.size(), 1u);
  EXPECT_EQ(report.errors[0], "1 x HTTP 429: full");
  const auto errors = make_report(result).errors;
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0], "3 x HTTP 429: 4.1 s of work are waiting");
  EXPECT_NE(text_of(report).find("1 unfinished"), std::string::npos);
  EXPECT_EQ(json_of(report)["ttft_ms"]["count"], 2);
  EXPECT_EQ(report.parts.count, 0u);
  EXPECT_EQ(text_of(report).find("barrier"), std::string::npos);
  EXPECT_FALSE(json_of(report).contains("mean_parts"));
}

TEST(Report, GoodputCountsWhatCameInTime) {
  LoadResult result;
  result.seconds = 10;
  result.requests.push_back(record(1, 1.5, 2, 100, RequestEnd::finished));
  result.requests.push_back(record(1, 3.5, 4, 100, RequestEnd::finished));
  result.requests.push_back(record(5, -1, 5.004, 700, RequestEnd::refused));
  result.requests.back().sent = 5;
  const LoadReport report = make_report(result, 1000);
  EXPECT_DOUBLE_EQ(report.goodput, 0.1);
  EXPECT_NEAR(report.refusal.p99, 4, 1e-6);
  EXPECT_NE(text_of(report).find("goodput    0.10"), std::string::npos) << text_of(report);
  EXPECT_NE(text_of(report).find("refused after"), std::string::npos);
  EXPECT_FALSE(json_of(make_report(result)).contains("goodput"));
}

// Means are over the requests that say their parts; others do not count as zeros.
TEST(Report, MeanPartsByLength) {
  LoadResult result;
  result.seconds = 10;
  for (const int tokens : {100, 100, 100, 5000}) {
    result.requests.push_back(record(1, 2, 2, tokens, RequestEnd::finished));
  }
  TimeParts parts;
  parts.queueing = 10;
  parts.barrier = 4;
  result.requests[0].parts = parts;
  parts.queueing = 20;
  result.requests[1].parts = parts;
  parts.queueing = 90;
  parts.host = 3;
  result.requests[3].parts = parts;
  const LoadReport report = make_report(result);
  EXPECT_EQ(report.parts.count, 3u);
  EXPECT_DOUBLE_EQ(report.parts.mean.queueing, 40);
  EXPECT_DOUBLE_EQ(report.parts.mean.barrier, 4);
  EXPECT_DOUBLE_EQ(report.parts.mean.host, 1);
  ASSERT_EQ(report.bins.size(), 2u);
  EXPECT_EQ(report.bins[0].parts.count, 2u);
  EXPECT_DOUBLE_EQ(report.bins[0].parts.mean.queueing, 15);
  EXPECT_DOUBLE_EQ(report.bins[1].parts.mean.queueing, 90);
  const std::string text = text_of(report);
  for (const TimePart& part : kTimeParts) EXPECT_NE(text.find(part.name), std::string::npos);
  const auto json = json_of(report);
  EXPECT_DOUBLE_EQ(json["mean_parts"]["queueing_ms"], 40);
  EXPECT_DOUBLE_EQ(json["ttft_ms_by_prompt_tokens"][1]["mean_parts"]["host_ms"], 3);
}

}  // namespace
}  // namespace asap
