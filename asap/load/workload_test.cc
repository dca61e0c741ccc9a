#include "asap/load/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace asap {
namespace {

using testing::HasSubstr;

std::string file_of(const std::string& text) {
  const std::string path = testing::TempDir() + "/trace_" +
                           testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ofstream(path) << text;
  return path;
}

TEST(Workload, PoissonArrivalsHaveTheirRateAndReplay) {
  WorkloadSpec spec;
  spec.rate = 50;
  spec.seconds = 200;
  spec.seed = 3;
  const auto a = make_workload(spec);
  const auto b = make_workload(spec);
  ASSERT_TRUE(a && b);
  EXPECT_NEAR(static_cast<double>(a->size()), 10'000, 400);
  double squares = 0;
  for (size_t i = 1; i < a->size(); ++i) {
    ASSERT_EQ((*a)[i].at, (*b)[i].at);
    squares += std::pow((*a)[i].at - (*a)[i - 1].at, 2);
  }
  // Of an exponential law the mean square is twice the squared mean.
  EXPECT_NEAR(squares / static_cast<double>(a->size()), 2 * 0.02 * 0.02, 1e-4);
}

TEST(Workload, BurstinessSpreadsTheGaps) {
  for (const double shape : {0.25, 4.0}) {
    WorkloadSpec spec;
    spec.rate = 50;
    spec.seconds = 200;
    spec.burstiness = shape;
    const auto rows = make_workload(spec);
    ASSERT_TRUE(rows);
    double squares = 0;
    for (size_t i = 1; i < rows->size(); ++i) {
      squares += std::pow((*rows)[i].at - (*rows)[i - 1].at, 2);
    }
    const double ratio = squares / static_cast<double>(rows->size()) / (0.02 * 0.02);
    EXPECT_NEAR(ratio, 1 + 1 / shape, 0.2 * (1 + 1 / shape)) << "shape " << shape;
  }
}

TEST(Workload, LognormalLengthsStayInTheirBounds) {
  WorkloadSpec spec;
  spec.rate = 100;
  spec.seconds = 100;
  const auto law = parse_length_law("lognormal:7.6206:1.4:31:32768");
  ASSERT_TRUE(law) << law.error().message;
  spec.lengths = *law;
  const auto rows = make_workload(spec);
  ASSERT_TRUE(rows);
  double sum = 0;
  for (const Arrival& row : *rows) {
    ASSERT_GE(row.prompt_tokens, 31);
    ASSERT_LE(row.prompt_tokens, 32768);
    sum += row.prompt_tokens;
  }
  EXPECT_NEAR(sum / static_cast<double>(rows->size()), 4014, 250);
}

TEST(Workload, ReadsCsvAtAnotherRate) {
  WorkloadSpec spec;
  spec.trace_file = file_of(
      "arrival_s,prompt_tokens,output_tokens,hash_ids\n"
      "0,1024,5,1 4-5\n10,512,6,1\n20,40000,7,\n30,64,8,9\n");
  spec.rate = 1;  // own rate: three gaps in 30 s
  spec.output_tokens = 0;
  spec.length_divisor = 32;
  spec.max_prompt_tokens = 1000;
  const auto rows = make_workload(spec);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 3u);  // the long one is left out
  EXPECT_DOUBLE_EQ((*rows)[1].at, 1.0);
  EXPECT_DOUBLE_EQ((*rows)[2].at, 3.0);
  EXPECT_EQ((*rows)[0].prompt_tokens, 32);
  EXPECT_EQ((*rows)[2].prompt_tokens, 2);
  EXPECT_EQ((*rows)[0].output_tokens, 5);
  EXPECT_EQ((*rows)[0].blocks, (std::vector<uint64_t>{1, 4, 5}));
  // Equal blocks give equal tokens, the rest differs.
  const auto a = prompt_ids((*rows)[0], 7, 0, 10, 1000, 32);
  const auto b = prompt_ids((*rows)[1], 7, 1, 10, 1000, 32);
  ASSERT_EQ(a.size(), 32u);
  ASSERT_EQ(b.size(), 16u);
  EXPECT_TRUE(std::equal(b.begin(), b.end(), a.begin()));
  EXPECT_NE(prompt_ids((*rows)[2], 7, 2, 10, 1000, 32)[0], a[0]);
  for (const int32_t id : a) EXPECT_TRUE(id >= 10 && id < 1000);
}

TEST(Workload, ReadsJsonLinesWithTheirOwnTimes) {
  WorkloadSpec spec;
  spec.trace_file = file_of(
      "{\"timestamp\": 2500, \"input_length\": 9, \"output_length\": 3, \"hash_ids\": [1, 2]}\n"
      "\n{\"timestamp\": 500, \"input_length\": 4}\n");
  spec.native_rate = true;
  const auto rows = make_workload(spec);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].prompt_tokens, 4);
  EXPECT_DOUBLE_EQ((*rows)[1].at, 2.0);
}

// What traces/README.md says of them.
TEST(Workload, ShippedTracesAreWhatTheirTableSays) {
  struct Shipped {
    const char* file;
    size_t rows;
    double rate, mean;
    int least, most;
  };
  for (const Shipped& shipped : {Shipped{"asap_lognormal_le32k.csv", 12'000, 1.0, 3981, 31, 32755},
                                 Shipped{"asap_mix_le32k.csv", 12'000, 1.0, 3955, 31, 32768},
                                 Shipped{"azure_2023_conv.csv", 19'366, 5.53, 1155, 2, 14050}}) {
    WorkloadSpec spec;
    spec.trace_file = fmt::format("{}/traces/{}", ASAP_SOURCE_DIR, shipped.file);
    spec.native_rate = true;
    spec.seconds = 1e6;
    const auto rows = make_workload(spec);
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_EQ(rows->size(), shipped.rows);
    double sum = 0;
    int least = 1 << 30;
    int most = 0;
    for (const Arrival& row : *rows) {
      sum += row.prompt_tokens;
      least = std::min(least, row.prompt_tokens);
      most = std::max(most, row.prompt_tokens);
      EXPECT_TRUE(row.blocks.empty());
    }
    const auto count = static_cast<double>(rows->size());
    EXPECT_NEAR(sum / count, shipped.mean, 0.5) << shipped.file;
    EXPECT_NEAR(count / rows->back().at, shipped.rate, 0.02 * shipped.rate) << shipped.file;
    EXPECT_EQ(least, shipped.least) << shipped.file;
    EXPECT_EQ(most, shipped.most) << shipped.file;
  }
}

TEST(Workload, ErrorsNameTheLine) {
  WorkloadSpec spec;
  spec.trace_file = "/nonexistent.csv";
  EXPECT_THAT(make_workload(spec).error().message, HasSubstr("/nonexistent.csv"));
  spec.trace_file = file_of("arrival_s,prompt_tokens\n0,5\n1,x\n");
  EXPECT_THAT(make_workload(spec).error().message, HasSubstr(":3: prompt_tokens is \"x\""));
  spec.trace_file = file_of("arrival_s,tokens\n0,5\n");
  EXPECT_THAT(make_workload(spec).error().message, HasSubstr("no column prompt_tokens"));
  spec.trace_file = file_of("{\"timestamp\": 1}\n");
  EXPECT_THAT(make_workload(spec).error().message, HasSubstr("input_length"));
  spec.trace_file = file_of("");
  EXPECT_THAT(make_workload(spec).error().message, HasSubstr("empty"));
  for (const char* law : {"", "constant", "constant:0", "uniform:5:2", "lognormal:1:1:900:901",
                          "poisson:3", "constant:5x"}) {
    EXPECT_FALSE(parse_length_law(law)) << law;
  }
}

}  // namespace
}  // namespace asap
