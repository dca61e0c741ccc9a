#include "asap/policy/fit.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "asap/base/prng.h"

namespace asap {
namespace {

TEST(Fit, FindsTheCoefficientsOfExactData) {
  std::vector<Sample> samples;
  for (const double t : {1.0, 2.0, 4.0, 8.0}) {
    for (const double w : {0.5, 3.0})
      samples.push_back({{1, t, w * t}, 0.25 + 3 * t + 0.5 * w * t});
  }
  const LinearFit fit = fit_nonnegative(samples);
  EXPECT_NEAR(fit.coefficients[0], 0.25, 1e-9);
  EXPECT_NEAR(fit.coefficients[1], 3, 1e-9);
  EXPECT_NEAR(fit.coefficients[2], 0.5, 1e-9);
  EXPECT_LT(fit.max_error, 1e-9);
}

TEST(Fit, NoCoefficientIsNegative) {
  // y = 2t - 0.5: the line through the origin is the best that is allowed.
  std::vector<Sample> samples;
  for (const double t : {1.0, 2.0, 4.0}) samples.push_back({{1, t}, 2 * t - 0.5});
  const LinearFit fit = fit_nonnegative(samples);
  EXPECT_EQ(fit.coefficients[0], 0);
  EXPECT_GT(fit.coefficients[1], 1.5);
  EXPECT_GT(fit.max_error, 0.05);
  EXPECT_LE(fit.mean_error, fit.max_error);
}

TEST(Fit, ColumnsThatAreAlikeAreNoError) {
  const Sample samples[] = {{{2, 2}, 4}, {{3, 3}, 6}};
  const LinearFit fit = fit_nonnegative(samples);
  EXPECT_NEAR(fit.coefficients[0] + fit.coefficients[1], 2, 1e-9);
}

TEST(Fit, NoiseMovesTheKneeLittle) {
  Prng prng(5);
  std::vector<Point> points;
  for (double t = 16; t <= 16384; t *= 2) {
    const double noise = 0.97 + 0.06 * prng.uniform();
    points.push_back({t, 0.01 * std::max(512.0, t) * noise});
  }
  const KneeFit fit = fit_knee(points, false);
  EXPECT_NEAR(fit.knee, 512, 60);
  EXPECT_NEAR(fit.slope, 0.01, 0.0005);
  EXPECT_LT(fit.max_error, 0.05);
}

TEST(Fit, AnOffsetBesideTheKnee) {
  std::vector<Point> points;
  for (double t = 64; t <= 8192; t *= 1.5) points.push_back({t, 3 + 0.02 * std::max(700.0, t)});
  const KneeFit fit = fit_knee(points, true);
  EXPECT_NEAR(fit.knee, 700, 40);
  EXPECT_NEAR(fit.slope, 0.02, 0.0005);
  EXPECT_NEAR(fit.offset, 3, 0.6);
  EXPECT_LT(fit.max_error, 0.02);
}

// Where time is linear from the first point on, the knee is there.
TEST(Fit, WithoutPlateauTheKneeIsTheFirstPoint) {
  std::vector<Point> points;
  for (double t = 8; t <= 512; t *= 2) points.push_back({t, 0.5 * t});
  EXPECT_LE(fit_knee(points, false).knee, 9);
}

}  // namespace
}  // namespace asap
