// The generator against the real HTTP front over real sockets, with a scripted engine.
#include "asap/load/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "asap/load/report.h"
#include "asap/serve/front.h"
#include "asap/serve/test_support.h"

namespace asap {
namespace {

class GeneratorTest : public testing::Test {
 protected:
  void SetUp() override {
    ServeOptions options;
    options.port = 0;
    options.served_model_name = "tiny";
    auto front = HttpFront::start(options, engine_, test::byte_tokenizer(),
                                  fail(Code::not_found, "no chat template"));
    ASSERT_TRUE(front) << front.error().message;
    front_ = *std::move(front);
    target_.port = front_->port();
    target_.model = "tiny";
    options_.id_low = 1;
    options_.id_high = 200;
  }

  // A script with some fields set.
  void play(const std::function<void(test::Script&)>& set) {
    test::Script script;
    set(script);
    engine_.set_script(script);
  }

  LoadResult run(double rate, double seconds) {
    WorkloadSpec spec;
    spec.rate = rate;
    spec.seconds = seconds;
    spec.lengths.a = 20;
    spec.output_tokens = 2;
    const auto workload = make_workload(spec);
    EXPECT_TRUE(workload);
    const auto result = run_load(target_, *workload, options_, nullptr);
    EXPECT_TRUE(result) << result.error().message;
    return result.value_or(LoadResult{});
  }

  test::FakeEngine engine_;
  std::unique_ptr<HttpFront> front_;
  Target target_;
  LoadOptions options_;
};

TEST_F(GeneratorTest, MeasuresTimeToFirstToken) {
  play([](test::Script& s) {
    s.first_delay = Duration::millis(50);
    s.gap = Duration::millis(30);
  });
  const LoadReport report = make_report(run(40, 1.5));
  EXPECT_GT(report.requests, 20);
  EXPECT_EQ(report.finished, report.requests);
  EXPECT_GE(report.ttft.p50, 50);
  EXPECT_GE(report.e2e.p50, report.ttft.p50 + 29);
  EXPECT_LT(report.ttft.p50, 1000);
}

// The front's names of the parts are those that the generator looks for.
TEST_F(GeneratorTest, SaysWhereTheTimeWent) {
  play([](test::Script& s) {
    s.first_delay = Duration::millis(40);
    s.times = {1'000'000, 2'000'000, 3'000'000, 4'000'000, 5'000'000, 6'000'000, 7'000'000};
  });
  const LoadReport report = make_report(run(40, 0.5));
  ASSERT_GT(report.parts.count, 0u);
  const TimeParts& mean = report.parts.mean;
  EXPECT_NEAR(mean.queueing, 1, 1e-9);
  EXPECT_NEAR(mean.attention, 2, 1e-9);
  EXPECT_NEAR(mean.experts, 3, 1e-9);
  EXPECT_NEAR(mean.dispatch, 4, 1e-9);
  EXPECT_NEAR(mean.combine, 5, 1e-9);
  EXPECT_NEAR(mean.turn, 6, 1e-9);
  EXPECT_NEAR(mean.barrier, 7, 1e-9);
  EXPECT_GE(mean.host, 40 - 28);
}

// Open loop: a slow server does not slow the arrivals down.
TEST_F(GeneratorTest, SendsOnTimeWhateverTheServerDoes) {
  play([](test::Script& s) { s.first_delay = Duration::millis(600); });
  const LoadResult result = run(50, 1);
  for (const RequestRecord& r : result.requests) {
    EXPECT_EQ(r.end, RequestEnd::finished) << r.error;
    EXPECT_GE(r.sent, r.scheduled);
    EXPECT_LT(r.sent, r.scheduled + 0.5);
    EXPECT_EQ(r.output_tokens, 2);
  }
}

TEST_F(GeneratorTest, UnfinishedRefusedAndFailedAreToldApart) {
  play([](test::Script& s) { s.first_delay = Duration::seconds(30); });
  options_.grace_seconds = 0.3;
  for (const RequestRecord& r : run(20, 0.5).requests) EXPECT_EQ(r.end, RequestEnd::unfinished);
  play([](test::Script& s) { s.refuse = Error{Code::overloaded, "the queue is full"}; });
  for (const RequestRecord& r : run(20, 0.5).requests) {
    EXPECT_EQ(r.end, RequestEnd::refused);
    EXPECT_EQ(r.status, 429);
    EXPECT_THAT(r.error, testing::HasSubstr("the queue is full"));
  }
  play([](test::Script& s) {
    s.fail_at = 1;
    s.failure = Error{Code::unavailable, "e0 died"};
  });
  for (const RequestRecord& r : run(20, 0.5).requests) {
    EXPECT_EQ(r.end, RequestEnd::failed) << r.status;
    EXPECT_THAT(r.error, testing::HasSubstr("e0 died"));
  }
}

TEST_F(GeneratorTest, MoreRequestsThanConnectionsWaitTheirTurn) {
  play([](test::Script& s) { s.first_delay = Duration::millis(20); });
  options_.max_connections = 2;
  const LoadReport report = make_report(run(60, 1));
  EXPECT_EQ(report.finished, report.requests);
}

TEST_F(GeneratorTest, StopsWhenAsked) {
  play([](test::Script& s) { s.first_delay = Duration::seconds(30); });
  WorkloadSpec spec;
  spec.rate = 10;
  spec.seconds = 100;
  const auto workload = make_workload(spec);
  const auto result =
      run_load(target_, *workload, options_, [](const LoadProgress& p) { return p.seconds < 0.9; });
  ASSERT_TRUE(result);
  EXPECT_LT(result->seconds, 20);
  // What was not due yet is no part of the run: its age would be below zero.
  EXPECT_LT(result->requests.size(), workload->size());
  ASSERT_FALSE(result->requests.empty());
  EXPECT_LE(result->requests.back().scheduled, result->seconds);
}

TEST(Generator, NoServerIsOneClearError) {
  Target target;
  target.port = 1;
  WorkloadSpec spec;
  const auto workload = make_workload(spec);
  const auto result = run_load(target, *workload, {}, nullptr);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, testing::HasSubstr("127.0.0.1:1"));
}

TEST(Generator, BaseUrls) {
  const auto plain = parse_base_url("http://10.0.0.1:81/v1/");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "10.0.0.1");
  EXPECT_EQ(plain->port, 81);
  EXPECT_EQ(plain->path, "/v1/completions");
  EXPECT_EQ(parse_base_url("localhost")->port, 80);
  EXPECT_EQ(parse_base_url("http://h:1/prefix")->path, "/prefix/v1/completions");
  EXPECT_FALSE(parse_base_url("https://h:1"));
  EXPECT_FALSE(parse_base_url("http://h:99999"));
  EXPECT_FALSE(parse_base_url("http://:80"));
}

}  // namespace
}  // namespace asap
