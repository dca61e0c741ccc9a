#include "asap/load/chart.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "asap/load/chart_axis.h"
#include "asap/load/gnuplot.h"
#include "asap/load/markup.h"

namespace asap {

namespace {

// Legible on white and on near black alike.
constexpr std::array kPalette = {"#2f7ed8", "#e0762a", "#2e9e6b", "#d1495b",
                                 "#8e6bbf", "#c39a0c", "#1b9aaa", "#7d8590"};
// A colour that nobody else uses; it becomes the reader's text colour.
constexpr const char* kInk = "#010203";
constexpr const char* kGrid = "#dd010203";  // the same, hardly visible
constexpr const char* kMuted = "#717982";

// Pixels.
constexpr double kWidth = 680;
constexpr double kPlotHeight = 280;
constexpr double kEdge = 14;      // of the title and the legend
constexpr double kTitleRow = 36;  // with the title
constexpr double kLegendRow = 22;
constexpr double kUnitRow = 30;  // the y axis's name, above it
constexpr double kTickRow = 24;
constexpr double kNameRow = 24;     // of the x axis
constexpr double kCharacter = 7.4;  // on average, of the usual font size
constexpr double kTextHeight = 15;
constexpr double kNameGap = 9;  // between a line and its name

constexpr double kClusterWidth = 0.82;  // of the space of a category
constexpr size_t kValuesUpTo = 12;      // bars that carry their values
constexpr double kValueRoom = 1.07;     // above a bar, for its value
constexpr size_t kNamesUpTo = 4;        // lines that carry their names

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

// In single quotes gnuplot takes everything literally, but cannot read all texts that hold such a
// quote: a private character stands for it until the picture is finished.
constexpr const char* kQuote = "\uE000";
std::string quoted(const std::string& text) {
  std::string out = printable(text);
  replace_all(out, "'", kQuote);
  return "'" + out + "'";
}

double text_width(const std::string& text) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  return kCharacter * static_cast<double>(text.size() - static_cast<size_t>(std::count_if(
                                                            text.begin(), text.end(), continues)));
}

struct Box {
  double left, top, right, bottom;
  bool meets(const Box& o) const {
    return left < o.right && o.left < right && top < o.bottom && o.top < bottom;
  }
};

struct Bar {
  double left, right, low, high;
};

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {}
  Status prepare();
  std::string script();
  // Names of the series, in the order in which the script draws them.
  const std::vector<std::string>& plotted() const { return plotted_; }

 private:
  using Points = std::vector<ChartPoint>;

  bool bars() const { return !chart_.categories.empty(); }
  Status check() const;
  void assign_colours();
  void make_bars();
  void make_axes();
  void lay_out();
  bool names_fit() const;
  Box name_box(const ChartSeries& series) const;
  Points visible(const ChartSeries& series) const;
  double px(double x) const { return left_ + x_.place(x) * (kWidth - right_ - left_); }
  double py(double y) const { return top_ + (1 - y_.place(y)) * kPlotHeight; }

  std::string label(double x, double y, const std::string& text, const char* how) const;
  std::string frame() const;
  std::string ticks() const;
  std::string legend() const;
  std::string references() const;
  bool bars_have_values() const;
  std::string bar_values() const;
  std::string line_names() const;
  std::string curves();

  const Chart& chart_;
  std::map<std::string, const char*> colours_;
  std::vector<std::string> order_;      // of names, as they first occur
  std::vector<std::vector<Bar>> bars_;  // per series
  int clusters_ = 1;
  Axis x_, y_;
  double left_ = 0, right_ = 24, top_ = 0, bottom_ = 0, height_ = 0;
  double cluster_rows_ = 0;
  std::vector<std::pair<double, double>> legend_;  // per name: left end, row
  bool named_lines_ = false;
  std::vector<std::string> plotted_;
};

// The points that can be drawn.
Drawing::Points Drawing::visible(const ChartSeries& series) const {
  Points out;
  for (const ChartPoint& p : series.points) {
    const bool finite = std::isfinite(p.x) && std::isfinite(p.y);
    if (finite && (!chart_.log_x || p.x > 0) && (!chart_.log_y || p.y > 0)) out.push_back(p);
  }
  return out;
}

Status Drawing::check() const {
  size_t points = 0;
  for (const ChartSeries& series : chart_.series) {
    points += visible(series).size();
    if (bars() != (series.style == ChartStyle::bars)) {
      return fail(Code::invalid, "chart {}: series {}: bars and categories go together",
                  chart_.title, series.name);
    }
    for (const ChartPoint& p : visible(series)) {
      const bool good = p.x == std::floor(p.x) && p.x >= 0 &&
                        p.x < static_cast<double>(chart_.categories.size()) && p.y >= 0 &&
                        series.cluster >= 0;
      if (bars() && !good) {
        return fail(Code::invalid, "chart {}: series {}: no bar at category {} of {}, value {}",
                    chart_.title, series.name, p.x, chart_.categories.size(), p.y);
      }
    }
  }
  if (points > 0) return {};
  return fail(Code::invalid, "chart {}: it has nothing to draw", chart_.title);
}

void Drawing::assign_colours() {
  for (const ChartSeries& series : chart_.series) {
    if (colours_.contains(series.name)) continue;
    colours_[series.name] = kPalette[order_.size() % kPalette.size()];
    order_.push_back(series.name);
  }
}

void Drawing::make_bars() {
  for (const ChartSeries& series : chart_.series) {
    clusters_ = std::max(clusters_, series.cluster + 1);
  }
  const double width = kClusterWidth / clusters_;
  std::map<std::pair<int, int>, double> tops;  // of (category, cluster)
  for (const ChartSeries& series : chart_.series) {
    std::vector<Bar>& own = bars_.emplace_back();
    for (const ChartPoint& p : visible(series)) {
      double& top = tops[{static_cast<int>(p.x), series.cluster}];
      const double left = p.x - kClusterWidth / 2 + series.cluster * width;
      own.push_back({left + 0.04 * width, left + 0.96 * width, top, top + p.y});
      top += p.y;
    }
  }
}

void Drawing::make_axes() {
  double low[2] = {INFINITY, INFINITY};
  double high[2] = {-INFINITY, -INFINITY};
  const auto hold = [&](int axis, double value) {
    if (!std::isfinite(value) || ((axis == 0 ? chart_.log_x : chart_.log_y) && value <= 0)) return;
    low[axis] = std::min(low[axis], value);
    high[axis] = std::max(high[axis], value);
  };
  for (const ChartSeries& series : chart_.series) {
    for (const ChartPoint& p : visible(series)) {
      hold(0, p.x);
      for (const double y : {p.y, p.low, p.high}) hold(1, y);
    }
  }
  for (const auto& series : bars_) {
    for (const Bar& bar : series) hold(1, bar.high * (bars_have_values() ? kValueRoom : 1));
  }
  for (const ChartReference& line : chart_.horizontal) hold(1, line.at);
  for (const ChartReference& line : chart_.vertical) hold(0, line.at);
  x_ = make_axis(low[0], high[0], chart_.log_x, false);
  if (chart_.y_max) high[1] = std::max(*chart_.y_max, low[1]);
  y_ = make_axis(low[1], high[1], chart_.log_y, bars());
  if (!bars()) return;
  x_ = {-0.5, static_cast<double>(chart_.categories.size()) - 0.5, false, {}};
}

// Where the name of a line stands: right of its end, or of where it leaves the chart at the top.
Box Drawing::name_box(const ChartSeries& series) const {
  double x = 0;
  double y = 0;
  for (const ChartPoint& p : visible(series)) {
    const bool leaves = p.y > y_.high;
    const double part = leaves ? (y - top_) / (y - py(p.y)) : 1;
    x += part * (px(p.x) - x);
    y = leaves ? top_ + kTextHeight / 2 : py(p.y);
    if (leaves) break;
  }
  x += kNameGap;
  return {x, y - kTextHeight / 2, x + text_width(series.name), y + kTextHeight / 2};
}

// Every name beside its line, and clear of all lines and of the edge.
bool Drawing::names_fit() const {
  if (bars() || order_.size() != chart_.series.size() || order_.size() > kNamesUpTo) return false;
  std::vector<Box> taken;
  for (const ChartSeries& series : chart_.series) {
    const Points points = visible(series);
    if (series.style != ChartStyle::line || points.empty() || points[0].y > y_.high) return false;
    for (size_t i = 1; i < points.size(); ++i) {
      constexpr int kPieces = 24;  // of a segment, looked at as dots
      for (int k = 0; k <= kPieces; ++k) {
        const double part = static_cast<double>(k) / kPieces;
        const double x = px(points[i - 1].x) * (1 - part) + px(points[i].x) * part;
        const double y = py(points[i - 1].y) * (1 - part) + py(points[i].y) * part;
        taken.push_back({x - 2, y - 2, x + 2, y + 2});
      }
    }
  }
  for (const ChartReference& line : chart_.horizontal) {
    taken.push_back({left_, py(line.at) - kTextHeight - 4, kWidth, py(line.at) + 2});
  }
  for (const ChartSeries& series : chart_.series) {
    const Box box = name_box(series);
    if (box.right > kWidth - 4) return false;
    for (const Box& other : taken) {
      if (box.meets(other)) return false;
    }
    taken.push_back(box);
  }
  return true;
}

void Drawing::lay_out() {
  double widest = 0;
  for (const Axis::Tick& tick : y_.ticks) widest = std::max(widest, text_width(tick.label));
  left_ = std::max(44.0, widest + 22);
  if (!x_.ticks.empty()) {
    right_ = std::max(right_, text_width(x_.ticks.back().label) / 2 + 4);
  }
  named_lines_ = names_fit();
  double rows = 0;
  if (!named_lines_ && order_.size() > 1) {
    double x = kEdge;
    rows = 1;
    for (const std::string& name : order_) {
      const double width = text_width(name) + 44;
      if (x + width > kWidth && x > kEdge) {
        x = kEdge;
        ++rows;
      }
      legend_.emplace_back(x, rows - 1);
      x += width;
    }
  }
  for (const std::string& name : chart_.cluster_names) {
    if (bars()) cluster_rows_ = std::max(cluster_rows_, text_width(name) * 0.8 + 6);
  }
  top_ = kTitleRow + kLegendRow * rows + kUnitRow;
  bottom_ = kTickRow + cluster_rows_ + (chart_.x_label.empty() ? 4 : kNameRow);
  height_ = top_ + kPlotHeight + bottom_;
}

Status Drawing::prepare() {
  ASAP_TRY(check());
  assign_colours();
  if (bars()) make_bars();
  make_axes();
  lay_out();
  return {};
}

// At pixels from the upper left corner.
std::string Drawing::label(double x, double y, const std::string& text, const char* how) const {
  return fmt::format("set label {} at screen {:.5f},{:.5f} {}\n", quoted(text), x / kWidth,
                     1 - y / height_, how);
}

std::string Drawing::frame() const {
  std::string out = fmt::format(
      "set terminal svg size {:.0f},{:.0f} noenhanced font 'sans-serif,13' background 'white'\n"
      "set encoding utf8\nunset key\nset border 1 lw 1 lc rgb '{}'\n"
      "set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\n"
      "set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\n",
      kWidth, height_, kMuted, left_ / kWidth, 1 - right_ / kWidth, 1 - top_ / height_,
      bottom_ / height_);
  out += label(kEdge, 22, chart_.title,
               fmt::format("left font 'sans-serif:Bold,15' tc rgb '{}'", kInk).c_str());
  const std::string muted = fmt::format("tc rgb '{}'", kMuted);
  out += label(kEdge, top_ - 19, chart_.y_label, ("left " + muted).c_str());
  out += label((left_ + kWidth - right_) / 2, height_ - 10, chart_.x_label,
               ("center " + muted).c_str());
  return out;
}

std::string Drawing::ticks() const {
  std::string out;
  const auto axis = [&](char name, const Axis& a) {
    out += fmt::format("set {}range [{:.9g}:{:.9g}]\n", name, a.low, a.high);
    if (a.log) out += fmt::format("set logscale {}\n", name);
    std::string list;
    for (const Axis::Tick& tick : a.ticks) {
      list += fmt::format("{}{} {:.9g}", list.empty() ? "" : ", ", quoted(tick.label), tick.at);
    }
    out += fmt::format("set {}tics scale 0 nomirror tc rgb '{}' ({})\n", name, kMuted, list);
  };
  axis('x', x_);
  axis('y', y_);
  if (bars()) out += "unset xtics\n";
  out += fmt::format("set grid {} ytics lt 1 lw 1 dt solid lc rgb '{}'\n", bars() ? "" : "xtics",
                     kGrid);
  const double base = top_ + kPlotHeight;
  for (size_t c = 0; c < chart_.categories.size(); ++c) {
    const auto at = static_cast<double>(c);
    out += label(px(at), base + cluster_rows_ + 16, chart_.categories[c],
                 fmt::format("center tc rgb '{}'", kInk).c_str());
    for (size_t k = 0; k < chart_.cluster_names.size() && cluster_rows_ > 0; ++k) {
      const double x = at + kClusterWidth * ((static_cast<double>(k) + 0.5) / clusters_ - 0.5);
      out +=
          label(px(x), base + 5, chart_.cluster_names[k],
                fmt::format("right rotate by 90 font 'sans-serif,10' tc rgb '{}'", kMuted).c_str());
    }
  }
  return out;
}

std::string Drawing::legend() const {
  std::string out;
  for (size_t i = 0; i < legend_.size(); ++i) {
    const auto [x, row] = legend_[i];
    const double y = kTitleRow + kLegendRow * row + kLegendRow / 2;
    const double half = bars() ? 5 : 1.5;
    out += fmt::format(
        "set object rectangle from screen {:.5f},{:.5f} to screen {:.5f},{:.5f} fc rgb '{}' "
        "fs solid noborder\n",
        x / kWidth, 1 - (y + half) / height_, (x + 16) / kWidth, 1 - (y - half) / height_,
        colours_.at(order_[i]));
    out += label(x + 22, y, order_[i], fmt::format("left tc rgb '{}'", kInk).c_str());
  }
  return out;
}

std::string Drawing::references() const {
  std::string out;
  const std::string line = fmt::format("nohead lw 1.4 dt (6,4) lc rgb '{}' back", kInk);
  const std::string text = fmt::format("tc rgb '{}'", kInk);
  for (const ChartReference& r : chart_.horizontal) {
    out += fmt::format("set arrow from graph 0, first {0:.9g} to graph 1, first {0:.9g} {1}\n",
                       r.at, line);
    // At the left end, where curves that rise leave room.
    out += label(left_ + 6, py(r.at) - 9, r.label, ("left " + text).c_str());
  }
  for (const ChartReference& r : chart_.vertical) {
    out += fmt::format("set arrow from first {0:.9g}, graph 0 to first {0:.9g}, graph 1 {1}\n",
                       r.at, line);
    out += label(px(r.at) + 6, top_ + 9, r.label, ("left " + text).c_str());
  }
  return out;
}

// Where there are few bars, and none on another.
bool Drawing::bars_have_values() const {
  size_t count = 0;
  for (const auto& series : bars_) {
    count += series.size();
    for (const Bar& bar : series) {
      if (bar.low > 0) return false;
    }
  }
  return count <= kValuesUpTo;
}

std::string Drawing::bar_values() const {
  std::string out;
  for (const auto& series : bars_) {
    for (const Bar& bar : series) {
      if (!bars_have_values()) continue;
      out += label(px((bar.left + bar.right) / 2), py(std::min(bar.high, y_.high)) - 9,
                   tick_label(bar.high), fmt::format("center tc rgb '{}'", kInk).c_str());
    }
  }
  return out;
}

std::string Drawing::line_names() const {
  std::string out;
  for (const ChartSeries& series : chart_.series) {
    if (!named_lines_) continue;
    const Box box = name_box(series);
    out += label(box.left, (box.top + box.bottom) / 2, series.name,
                 fmt::format("left font 'sans-serif:Bold,13' tc rgb '{}'", colours_.at(series.name))
                     .c_str());
  }
  return out;
}

std::string Drawing::curves() {
  std::string data;
  std::string plots;
  const auto add = [&](const std::string& series, const std::string& rows, const std::string& how) {
    if (rows.empty()) return;
    const std::string name = fmt::format("$data{}", plotted_.size());
    plotted_.push_back(series);
    data += fmt::format("{} << END\n{}END\n", name, rows);
    plots += fmt::format("{}{} {} notitle", plots.empty() ? "plot " : ", ", name, how);
  };
  for (size_t i = 0; i < chart_.series.size(); ++i) {
    const ChartSeries& series = chart_.series[i];
    const char* const colour = colours_.at(series.name);
    std::string rows;
    std::string errors;
    for (const ChartPoint& p : visible(series)) {
      rows += fmt::format("{:.9g} {:.9g}\n", p.x, p.y);
      if (!std::isfinite(p.low) || !std::isfinite(p.high)) continue;
      errors += fmt::format("{:.9g} {:.9g} 0 {:.9g}\n", p.x, p.low, p.high - p.low);
    }
    if (series.style == ChartStyle::bars) {
      rows.clear();
      for (const Bar& b : bars_[i]) {
        rows += fmt::format("{:.9g} {:.9g} {:.9g} {:.9g} {:.9g} {:.9g}\n", (b.left + b.right) / 2,
                            b.high, b.left, b.right, std::max(b.low, y_.low), b.high);
      }
      add(series.name, rows,
          fmt::format("with boxxyerror fs solid 1 noborder fc rgb '{}'", colour));
    } else if (series.style == ChartStyle::line) {
      add(series.name, rows,
          fmt::format(
              "with {} lc rgb '{}'",
              series.dashed ? "lines lw 2.4 dt (5,4)" : "linespoints lw 2.4 dt solid pt 7 ps 0.45",
              colour));
    } else {
      add(series.name, rows, fmt::format("with points pt 7 ps 0.8 lc rgb '{}'", colour));
    }
    add(series.name, errors,
        fmt::format("with vectors heads nofilled size screen 0.006,90 lw 1.4 lc rgb '{}'", colour));
  }
  return data + plots + "\n";
}

std::string Drawing::script() {
  return frame() + ticks() + legend() + references() + bar_values() + line_names() + curves();
}

// gnuplot's document made one of ours: names of its parts that are unique in a page, the reader's
// ink, no background.
std::string finished(const Chart& chart, const std::vector<std::string>& plotted, std::string svg) {
  std::string id;
  for (const char c : chart.id) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    id += plain ? c : '-';
  }
  const size_t begin = svg.find("<svg");
  const size_t head = svg.find("<title>", begin);
  const size_t canvas = svg.find("<g id=\"gnuplot_canvas\">", head);
  if (begin == std::string::npos || head == std::string::npos || canvas == std::string::npos) {
    return svg;
  }
  const size_t paper = svg.find("<rect", canvas);
  svg.erase(paper, svg.find('\n', paper) - paper);
  svg.replace(head, canvas - head,
              fmt::format("<title>{}</title>\n"
                          "<style>.asap-chart{{color:#1f2328}}@media(prefers-color-scheme:dark)"
                          "{{.asap-chart{{color:#e6edf3}}}}</style>\n",
                          xml_escape(chart.title)));
  svg.insert(begin + 4, " class=\"asap-chart\" role=\"img\"");
  replace_all(svg, kQuote, "'");
  for (size_t i = 0; i < plotted.size(); ++i) {  // what browsers show over a curve
    replace_all(svg, fmt::format("<title>gnuplot_plot_{}</title>", i + 1),
                fmt::format("<title>{}</title>", xml_escape(plotted[i])));
  }
  replace_all(svg, "\"sans-serif:Bold\"", "\"sans-serif\" font-weight=\"600\"");
  for (const char* ink : {"rgb(  1,   2,   3)", "rgb(1,2,3)"})
    replace_all(svg, ink, "currentColor");
  replace_all(svg, " color=\"black\"", "");
  for (const char* quote : {"\"", "'"}) {
    replace_all(svg, fmt::format("={0}black{0}", quote), fmt::format("={0}currentColor{0}", quote));
    replace_all(svg, fmt::format("id={}gp", quote), fmt::format("id={}{}-gp", quote, id));
  }
  replace_all(svg, "'#gp", "'#" + id + "-gp");
  for (const char* name : {"gnuplot_", "textbox", "greybox"}) {
    replace_all(svg, fmt::format("id=\"{}", name), fmt::format("id=\"{}-{}", id, name));
    replace_all(svg, fmt::format("id='{}", name), fmt::format("id='{}-{}", id, name));
  }
  return svg;
}

}  // namespace

Result<std::string> render_svg(const Chart& chart) {
  Drawing drawing(chart);
  ASAP_TRY(drawing.prepare());
  ASAP_ASSIGN(std::string svg, run_gnuplot(drawing.script()));
  return finished(chart, drawing.plotted(), std::move(svg));
}

}  // namespace asap
