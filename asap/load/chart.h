// Charts as SVG: lines with error bars, points, bars side by side or stacked. gnuplot draws them,
// as a child process that is fed through a file descriptor: no shell sees a label. The layout
// (ticks, legend, names beside lines) is decided here, so that every chart looks alike.
//
// The picture has no background and takes its ink from the reader's colour scheme, so it can stand
// in a page, light or dark, and as a file of its own.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "asap/base/result.h"

namespace asap {

struct ChartPoint {
  double x = 0;  // bars: the index of a category
  double y = 0;
  // Error bar; NaN: none.
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

enum class ChartStyle : uint8_t { line, points, bars };

struct ChartSeries {
  std::string name;  // series of equal name share a colour and an entry of the legend
  std::vector<ChartPoint> points;
  ChartStyle style = ChartStyle::line;
  bool dashed = false;  // of a line
  // Bars of one category: those of a cluster are stacked in the order of the series, clusters stand
  // side by side.
  int cluster = 0;
};

struct ChartReference {
  double at = 0;
  std::string label;
};

struct Chart {
  std::string id = "chart";  // unique in a page; letters, digits and -
  std::string title;
  std::string x_label, y_label;
  bool log_x = false, log_y = false;
  std::optional<double> y_max;  // of the axis; what is above is cut off
  std::vector<ChartSeries> series;
  std::vector<ChartReference> horizontal, vertical;
  std::vector<std::string> categories;     // of bars
  std::vector<std::string> cluster_names;  // under each bar; may be empty
};

// Errors: invalid (nothing to draw, or a series that makes no sense), not_found (gnuplot is not
// installed), internal (gnuplot failed or did not end).
Result<std::string> render_svg(const Chart& chart);

}  // namespace asap
