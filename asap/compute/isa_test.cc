// The choice of a table of kernels.
#include "asap/compute/isa.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "asap/compute/kernels/table.h"

namespace asap {
namespace {

// A clock that jumps by what a test says per look.
int64_t now_ns = 0, step_ns = 1;
Instant stepping_clock() {
  return Instant{now_ns += step_ns};
}

bool here(const std::string& isa) {
  const auto isas = machine_isas();
  return std::find(isas.begin(), isas.end(), isa) != isas.end();
}

TEST(Isa, TablesSayTheirNames) {
  EXPECT_TRUE(here("scalar"));
  for (const std::string& isa : machine_isas()) EXPECT_EQ(find_kernels(isa)->isa, isa);
  EXPECT_EQ(find_kernels("sse9"), nullptr);
}

TEST(Isa, AutoTakesTheWidestThatNeedsNoMeasurement) {
  const std::string auto_isa = *choose_isa("auto", false, &stepping_clock);
  EXPECT_EQ(auto_isa, find_kernels("")->isa);
  EXPECT_NE(auto_isa, "avx512bf16");
  EXPECT_NE(auto_isa, "amx");
  EXPECT_EQ(here("avx2"), auto_isa != "scalar");
}

// The two loops take equally long by this clock, and vdpbf16ps does twice the work in its own.
TEST(Isa, MeasuresOnlyWhereAskedAndRowsMayBeRounded) {
  step_ns = 1000;
  EXPECT_DOUBLE_EQ(bf16_dot_speedup(&stepping_clock), here("avx512bf16") ? 2 : 0);
  const std::string want = here("avx512bf16") ? "avx512bf16" : find_kernels("")->isa;
  EXPECT_EQ(*choose_isa("measure", true, &stepping_clock), want);
  EXPECT_EQ(*choose_isa("measure", false, &stepping_clock), find_kernels("")->isa);
  EXPECT_EQ(*choose_isa("auto", true, &stepping_clock), find_kernels("")->isa);
}

TEST(Isa, ANameIsTakenOrRefused) {
  for (const std::string& isa : machine_isas()) {
    EXPECT_EQ(*choose_isa(isa, false, &stepping_clock), isa);
  }
  for (const std::string isa : {"sse9", ""}) {
    const auto refused = choose_isa(isa, false, &stepping_clock);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("this machine has auto, measure, scalar"),
              std::string::npos)
        << refused.error().message;
  }
}

}  // namespace
}  // namespace asap
