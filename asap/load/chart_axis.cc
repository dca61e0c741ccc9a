#include "asap/load/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace asap {

namespace {

constexpr double kSteps = 5;    // aimed at, on a linear axis
constexpr double kNear = 0.35;  // a linear axis starts at 0 if its least value is below this part
constexpr double kFineDecades = 3;   // up to which a logarithmic axis has ticks at 2 and 5
constexpr double kSlack = 1 + 1e-9;  // against rounding at the ends

// The smallest of 1, 2, 5 times a power of ten that is at least `value`.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power * kSlack >= value) return digit * power;
  }
  return 10 * power;
}

double round_down(double value) {
  const double power = std::pow(10, std::floor(std::log10(value) + 1e-9));
  for (const double digit : {5.0, 2.0}) {
    if (digit * power <= value * kSlack) return digit * power;
  }
  return power;
}

void add_log_ticks(Axis& axis) {
  const double decades = std::log10(axis.high / axis.low);
  for (double power = std::pow(10, std::floor(std::log10(axis.low) + 1e-9));
       power <= axis.high * kSlack; power *= 10) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double at = digit * power;
      if (at * kSlack < axis.low || at > axis.high * kSlack) continue;
      if (digit == 1 || decades <= kFineDecades) axis.ticks.push_back({at, tick_label(at)});
    }
  }
}

}  // namespace

double Axis::place(double value) const {
  if (!log) return (value - low) / (high - low);
  return std::log(std::max(value, low * 1e-6) / low) / std::log(high / low);
}

Axis make_axis(double low, double high, bool log, bool from_zero) {
  Axis axis;
  axis.log = log;
  if (log) {
    axis.low = round_down(low);
    axis.high = std::max(round_up(high), 10 * axis.low);
    add_log_ticks(axis);
    return axis;
  }
  if (from_zero || (low >= 0 && low < kNear * high)) low = std::min(low, 0.0);
  if (high <= low) high = low + 1;
  const double step = round_up((high - low) / kSteps / kSlack);
  const double first = std::floor(low / step * kSlack);
  const double last = std::ceil(high / step / kSlack);
  axis.low = first * step;
  axis.high = last * step;
  for (double k = first; k <= last; ++k) axis.ticks.push_back({k * step, tick_label(k * step)});
  return axis;
}

std::string tick_label(double value) {
  if (std::abs(value) < 1e-12) return "0";
  std::string text;
  if (std::abs(value) >= 1000) {
    text = fmt::format("{:.0f}", value);
    const size_t sign = value < 0 ? 1 : 0;
    for (size_t at = text.size(); at > sign + 3;) text.insert(at -= 3, ",");
  } else {
    text = fmt::format("{:.3g}", value);
  }
  return text;
}

}  // namespace asap
