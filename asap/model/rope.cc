// Rotary frequencies, plain and YaRN.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "asap/model/spec.h"

namespace asap {

namespace {

// YaRN blends per pair: below `low` the plain frequency, above `high` the one divided by the
// factor.
struct YarnBounds {
  double low = 0;
  double high = 0;
};

YarnBounds yarn_bounds(const RopeSpec& rope) {
  const double d = rope.dim;
  // The pair whose wave turns `rotations` times within the original context.
  const auto correction = [&](double rotations) {
    return d * std::log(rope.original_max_positions / (2 * std::numbers::pi * rotations)) /
           (2 * std::log(rope.theta));
  };
  YarnBounds bounds{correction(rope.beta_fast), correction(rope.beta_slow)};
  if (rope.truncate) {
    bounds.low = std::floor(bounds.low);
    bounds.high = std::ceil(bounds.high);
  }
  bounds.low = std::max(bounds.low, 0.0);
  bounds.high = std::min(bounds.high, d - 1);
  if (bounds.low == bounds.high) bounds.high += 0.001;
  return bounds;
}

}  // namespace

std::vector<double> rope_frequencies(const RopeSpec& rope) {
  std::vector<double> out(static_cast<size_t>(rope.dim / 2));
  const YarnBounds bounds = rope.yarn ? yarn_bounds(rope) : YarnBounds{};
  for (size_t j = 0; j < out.size(); ++j) {
    const auto pair = static_cast<double>(j);
    const double plain = std::pow(rope.theta, -2.0 * pair / rope.dim);
    out[j] = plain;
    if (rope.yarn) {
      const double ramp = std::clamp((pair - bounds.low) / (bounds.high - bounds.low), 0.0, 1.0);
      out[j] = plain * (1 - ramp) + plain / rope.factor * ramp;
    }
  }
  return out;
}

}  // namespace asap
