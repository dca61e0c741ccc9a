// Fits of measured costs to the few shapes that a CostProfile knows. Errors are relative: a
// microsecond counts as much in a step of ten as a millisecond in one of ten thousand.
#pragma once

#include <span>
#include <vector>

namespace asap {

// y ≈ Σ coefficients[j]·x[j], no coefficient below 0.
struct Sample {
  std::vector<double> x;
  double y = 0;  // above 0
};
struct LinearFit {
  std::vector<double> coefficients;
  double mean_error = 0, max_error = 0;  // |fit - y| / y

  double at(std::span<const double> x) const;
};
// The least sum of squared relative errors. At least one sample; at most 8 coefficients, since all
// subsets are tried that may be above 0.
LinearFit fit_nonnegative(std::span<const Sample> samples);

// y ≈ offset + slope·max(knee, x).
struct KneeFit {
  double offset = 0, slope = 0, knee = 0;
  double mean_error = 0, max_error = 0;

  double at(double x) const;
};
struct Point {
  double x = 0, y = 0;  // above 0
};
// With `offset` false it is max(plateau, slope·x) with the plateau slope·knee.
KneeFit fit_knee(std::span<const Point> points, bool offset);

}  // namespace asap
