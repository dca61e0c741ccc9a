#include "asap/compute/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace asap {
namespace {

// Every E4M3 magnitude: subnormals in steps of 2^-9, then 8 to 15 eighths of a power of two.
std::vector<float> e4m3_values() {
  std::vector<float> out;
  for (int m = 0; m < 8; ++m) out.push_back(std::ldexp(static_cast<float>(m), -9));
  for (int e = -6; e <= 8; ++e) {
    for (int m = 8; m < 16; ++m) {
      const float value = std::ldexp(static_cast<float>(m), e - 3);
      if (value <= 448) out.push_back(value);
    }
  }
  return out;
}

TEST(Fp8, RoundsToTheNearestTiesToEven) {
  const std::vector<float> values = e4m3_values();
  ASSERT_EQ(values.back(), 448.0f);
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const float low = values[i];
    const float high = values[i + 1];
    const float middle = (low + high) / 2;
    EXPECT_EQ(round_to_e4m3(low), low);
    EXPECT_EQ(round_to_e4m3(-high), -high);
    EXPECT_EQ(round_to_e4m3(std::nextafter(middle, 0.0f)), low);
    EXPECT_EQ(round_to_e4m3(std::nextafter(middle, 1e3f)), high);
    EXPECT_EQ(round_to_e4m3(middle), i % 2 == 0 ? low : high)
        << "between " << low << " and " << high;
  }
  EXPECT_EQ(round_to_e4m3(1e9f), 448.0f);
  EXPECT_EQ(round_to_e4m3(-std::numeric_limits<float>::infinity()), -448.0f);
  EXPECT_TRUE(std::isnan(round_to_e4m3(NAN)));
}

TEST(Fp8, RoundTripScalesEachGroupByAPowerOfTwo) {
  std::vector<float> x(300, 0.0f);
  x[0] = 448.0f;    // scale 1
  x[1] = 17.0f;     // between 16 and 18: to even
  x[128] = 449.0f;  // scale 2
  x[129] = 34.5f;   // 17.25 becomes 18
  x[256] = 1e-6f;   // below the floor: scale 2^-22
  fp8_round_trip(x.data(), 1, 300, 300);
  EXPECT_EQ(x[0], 448.0f);
  EXPECT_EQ(x[1], 16.0f);
  EXPECT_EQ(x[128], 448.0f);
  EXPECT_EQ(x[129], 36.0f);
  EXPECT_NEAR(x[256], 1e-6f, 0.07e-6f);
  EXPECT_EQ(x[299], 0.0f);
}

TEST(Fp8, RoundTripWithAnyScaleAndAShorterFirstGroup) {
  std::vector<float> x = {3.0f, 1.0f, 0.1f, 7.0f, 100.0f};
  fp8_round_trip(x.data(), 1, 5, 5, false, 3);
  EXPECT_EQ(x[0], 3.0f);  // the largest of a group is 448 times its scale
  EXPECT_NEAR(x[1], 1.0f, 0.04f);
  EXPECT_EQ(x[4], 100.0f);
  EXPECT_NEAR(x[3], 7.0f, 0.25f);
  EXPECT_NE(x[3], 7.0f);
}

// H·H = width·1, so twice the normalised transform is the identity; a unit vector spreads evenly.
TEST(Fp8, HadamardIsOrthogonalInSylvestersOrder) {
  std::vector<float> x(16, 0.0f);
  x[5] = 2.0f;
  hadamard(x.data(), 1, 16, 16);
  for (int i = 0; i < 16; ++i) {
    const int parity = __builtin_popcount(static_cast<unsigned>(i & 5)) % 2;
    EXPECT_EQ(x[static_cast<size_t>(i)], parity == 0 ? 0.5f : -0.5f) << i;
  }
  hadamard(x.data(), 1, 16, 16);
  EXPECT_EQ(x[5], 2.0f);
  EXPECT_EQ(x[4], 0.0f);
}

}  // namespace
}  // namespace asap
