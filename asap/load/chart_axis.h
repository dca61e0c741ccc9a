// Axis: the range of a chart's axis and its ticks. Ticks are 1, 2 and 5 times powers of ten.
#pragma once

#include <string>
#include <vector>

namespace asap {

struct Axis {
  struct Tick {
    double at = 0;
    std::string label;
  };
  double low = 0, high = 1;
  bool log = false;
  std::vector<Tick> ticks;

  // Where a value stands between the ends, 0..1 within the range.
  double place(double value) const;
};

// An axis that holds [low, high], widened to whole ticks at the top, and down to 0 if that is near
// or `from_zero`. On a logarithmic axis both must be above 0.
Axis make_axis(double low, double high, bool log, bool from_zero);

// "12,500", "0.25": three significant digits, thousands apart.
std::string tick_label(double value);

}  // namespace asap
