#include "asap/policy/fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr double kSingular = 1e-12;  // of a pivot, relative to its column
constexpr int kKneeSteps = 200;      // knees tried, evenly spaced on a logarithmic scale

double product(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Solves the normal equations of the columns that `chosen` has; false if they depend on each other.
// Rows are divided by y, so the right side is 1 everywhere.
bool solve(std::span<const Sample> samples, const std::vector<size_t>& chosen,
           std::vector<double>* out) {
  const size_t n = chosen.size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0));
  for (const Sample& s : samples) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) a[i][j] += s.x[chosen[i]] * s.x[chosen[j]] / (s.y * s.y);
      a[i][n] += s.x[chosen[i]] / s.y;
    }
  }
  std::vector<double> scale(n);
  for (size_t i = 0; i < n; ++i) scale[i] = a[i][i];
  // Gauss-Jordan; the matrix is positive definite, so no pivoting is needed.
  for (size_t i = 0; i < n; ++i) {
    if (!(a[i][i] > kSingular * scale[i])) return false;
    for (size_t row = 0; row < n; ++row) {
      if (row == i) continue;
      const double factor = a[row][i] / a[i][i];
      for (size_t j = i; j <= n; ++j) a[row][j] -= factor * a[i][j];
    }
  }
  for (size_t i = 0; i < n; ++i) (*out)[chosen[i]] = a[i][n] / a[i][i];
  return true;
}

double squares(std::span<const Sample> samples, std::span<const double> coefficients) {
  double sum = 0;
  for (const Sample& s : samples) {
    const double error = product(coefficients, s.x) / s.y - 1;
    sum += error * error;
  }
  return sum;
}

// Mean and largest relative error of a fit.
template <typename Points, typename At>
void set_errors(const Points& points, At&& at, double* mean, double* most) {
  *mean = *most = 0;
  for (const auto& point : points) {
    const double error = std::abs(at(point) / point.y - 1);
    *mean += error / static_cast<double>(points.size());
    *most = std::max(*most, error);
  }
}

}  // namespace

double LinearFit::at(std::span<const double> x) const {
  return product(coefficients, x);
}

LinearFit fit_nonnegative(std::span<const Sample> samples) {
  CHECK(!samples.empty());
  const size_t n = samples[0].x.size();
  CHECK(n >= 1 && n <= 8);
  for (const Sample& s : samples) CHECK(s.x.size() == n && s.y > 0, "a sample of {}", s.y);
  LinearFit best;
  best.coefficients.assign(n, 0);
  double least = squares(samples, best.coefficients);
  for (unsigned subset = 1; subset < 1u << n; ++subset) {
    std::vector<size_t> chosen;
    for (size_t j = 0; j < n; ++j) {
      if ((subset >> j & 1) != 0) chosen.push_back(j);
    }
    std::vector<double> coefficients(n, 0);
    if (!solve(samples, chosen, &coefficients)) continue;
    if (*std::min_element(coefficients.begin(), coefficients.end()) < 0) continue;
    const double sum = squares(samples, coefficients);
    if (sum >= least) continue;
    least = sum;
    best.coefficients = coefficients;
  }
  set_errors(
      samples, [&](const Sample& s) { return best.at(s.x); }, &best.mean_error, &best.max_error);
  return best;
}

double KneeFit::at(double x) const {
  return offset + slope * std::max(knee, x);
}

KneeFit fit_knee(std::span<const Point> points, bool offset) {
  CHECK(!points.empty());
  double low = std::numeric_limits<double>::max();
  double high = 0;
  for (const Point& p : points) {
    low = std::min(low, p.x);
    high = std::max(high, p.x);
  }
  CHECK(low > 0);
  KneeFit best;
  double least = std::numeric_limits<double>::max();
  for (int step = 0; step <= kKneeSteps; ++step) {
    const double knee = low * std::pow(high / low, static_cast<double>(step) / kKneeSteps);
    std::vector<Sample> samples;
    for (const Point& p : points) {
      samples.push_back({{std::max(knee, p.x)}, p.y});
      if (offset) samples.back().x.push_back(1);
    }
    const LinearFit fit = fit_nonnegative(samples);
    const double sum = squares(samples, fit.coefficients);
    if (sum >= least) continue;
    least = sum;
    best = {offset ? fit.coefficients[1] : 0, fit.coefficients[0], knee};
  }
  set_errors(
      points, [&](const Point& p) { return best.at(p.x); }, &best.mean_error, &best.max_error);
  return best;
}

}  // namespace asap
