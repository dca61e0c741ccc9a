#include "asap/load/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "asap/load/chart_axis.h"
#include "asap/load/markup.h"
#include "asap/load/test_support.h"

namespace asap {
namespace {

using testing::HasSubstr;
using testing::Not;

// For looking at: with ASAP_CHARTS every picture is also written to that folder.
std::string draw(const Chart& chart) {
  const auto svg = render_svg(chart);
  EXPECT_TRUE(svg) << svg.error().message;
  if (!svg) return "";
  EXPECT_EQ(test::malformed(*svg), "");
  if (const char* folder = std::getenv("ASAP_CHARTS")) {
    std::ofstream(std::string(folder) + "/" + chart.id + ".svg") << *svg;
  }
  return *svg;
}

Chart curves() {
  Chart chart;
  chart.id = "curves";
  chart.title = "Mean time to first token";
  chart.x_label = "requests per second";
  chart.y_label = "milliseconds";
  chart.log_y = true;
  chart.y_max = 20'000;
  chart.horizontal = {{5000, "SLO 5 s"}};
  const auto curve = [&](const char* name, double base, double limit) {
    ChartSeries series;
    series.name = name;
    for (double x = 1; x < 1.15 * limit; x += 1) {
      const double y = base / std::max(0.01, 1 - x / (1.05 * limit));
      series.points.push_back({x, y, 0.85 * y, 1.2 * y});
    }
    chart.series.push_back(series);
  };
  curve("ASAP", 350, 20);
  curve("Default", 533, 6.8);
  curve("Chunked", 388, 10.5);
  return chart;
}

TEST(Chart, LinesCarryTheirNamesAndNothingOfGnuplots) {
  const std::string svg = draw(curves());
  for (const char* text : {"ASAP", "Default", "Chunked", "SLO 5 s", "Mean time to first token",
                           "requests per second", "milliseconds", "10,000"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, HasSubstr("<title>Chunked</title>"));  // of the curve, shown by browsers
  EXPECT_THAT(svg, Not(HasSubstr(">gnuplot_plot")));
  EXPECT_THAT(svg, Not(HasSubstr("Gnuplot")));
  EXPECT_THAT(svg, Not(HasSubstr("\"black\"")));
  EXPECT_THAT(svg, HasSubstr("currentColor"));
  EXPECT_THAT(svg, HasSubstr("class=\"asap-chart\""));
}

TEST(Chart, PartsOfTwoChartsOnAPageDoNotShareNames) {
  Chart chart = curves();
  const auto ids = [](const std::string& svg) {
    std::set<std::string> out;
    for (size_t at = svg.find(" id="); at != std::string::npos; at = svg.find(" id=", at + 1)) {
      out.insert(svg.substr(at + 5, svg.find(svg[at + 4], at + 5) - at - 5));
    }
    return out;
  };
  const std::set<std::string> first = ids(draw(chart));
  chart.id = "other \"chart\"";
  const std::set<std::string> second = ids(*render_svg(chart));
  EXPECT_GT(first.size(), 5u);
  EXPECT_EQ(first.size(), second.size());
  for (const std::string& id : first) EXPECT_FALSE(second.contains(id)) << id;
}

// Nothing in a label is a command of gnuplot's, an entity or an element.
TEST(Chart, LabelsAreTextWhateverTheyHold) {
  const std::string marker = testing::TempDir() + "/chart_marker";
  std::remove(marker.c_str());
  Chart chart;
  chart.id = "labels";
  chart.title = "a < b & \"c\" isn't > d `touch " + marker + "`";
  chart.x_label = "'; system('touch " + marker + "'); '";
  chart.y_label = "\n!touch " + marker + "\nunset output {/Bold x}_2 \\";
  chart.horizontal = {{3, "at <3>"}};
  chart.series.push_back({"x < \"y\" & z", {{1, 2}, {2, 3.5}}});
  chart.series.push_back({"bad \xff\x01 bytes", {{1, 3}, {2, 1}}, ChartStyle::points});
  const std::string svg = draw(chart);
  EXPECT_FALSE(std::ifstream(marker).good());
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; \"c\" isn't > d `touch"));
  EXPECT_THAT(svg, HasSubstr("'; system('touch"));
  EXPECT_THAT(svg, HasSubstr("x &lt; \"y\" &amp; z"));
  EXPECT_THAT(svg, HasSubstr("at &lt;3>"));
  EXPECT_THAT(svg, HasSubstr("{/Bold x}_2 \\"));
  EXPECT_THAT(svg, HasSubstr("bad \xEF\xBF\xBD  bytes"));
}

Chart stacked() {
  Chart chart;
  chart.id = "stacked";
  chart.title = "Where the time goes, 4 requests per second";
  chart.x_label = "prompt tokens";
  chart.y_label = "milliseconds of mean TTFT";
  chart.categories = {"< 512", "512-1k", "1-2k", "2-4k", "4-8k", "8-16k", "16-32k"};
  chart.cluster_names = {"ASAP", "Default", "Chunked"};
  const char* const parts[] = {"queueing", "attention", "expert wait", "dispatch",
                               "combine",  "turn",      "barrier",     "host"};
  for (int cluster = 0; cluster < 3; ++cluster) {
    for (int part = 0; part < 8; ++part) {
      ChartSeries series;
      series.name = parts[part];
      series.style = ChartStyle::bars;
      series.cluster = cluster;
      for (int c = 0; c < 7; ++c) {
        series.points.push_back({static_cast<double>(c), 20.0 * (1 + cluster) + 9.0 * part * c});
      }
      chart.series.push_back(series);
    }
  }
  return chart;
}

TEST(Chart, BarsAreStackedInClusters) {
  const Chart chart = stacked();
  const std::string svg = draw(chart);
  for (const std::string& text : chart.categories) EXPECT_THAT(svg, HasSubstr(xml_escape(text)));
  for (const std::string& text : chart.cluster_names) EXPECT_THAT(svg, HasSubstr(text));
  // A part has one entry in the legend, however many clusters it is in.
  const size_t first = svg.find("<text>expert wait<");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(svg.find("<text>expert wait<", first + 1), std::string::npos);
  // The axis holds the highest stack, not the highest part: 7 categories' sum at the last one.
  EXPECT_THAT(svg, HasSubstr("2,000"));
}

TEST(Chart, FewBarsCarryTheirValues) {
  Chart chart;
  chart.id = "ablations";
  chart.title = "SLO throughput without one mechanism";
  chart.y_label = "requests per second";
  chart.categories = {"full", "no interleaving", "no overlap", "no super kernel"};
  chart.series.push_back({"paper", {{0, 20}, {1, 17.5}, {2, 17.8}, {3, 18.9}}, ChartStyle::bars});
  chart.series.push_back(
      {"simulated", {{0, 20.0}, {1, 16.1}, {2, 18.4}, {3, 19.9}}, ChartStyle::bars, false, 1});
  const std::string svg = draw(chart);
  for (const char* value : {"17.5", "18.9", "16.1"}) EXPECT_THAT(svg, HasSubstr(value));
  EXPECT_THAT(svg, HasSubstr("<text>25<"));  // the highest bar leaves room for its value
}

TEST(Chart, MoreLinesThanNamesGetALegend) {
  Chart chart = curves();
  chart.id = "legend";
  for (int i = 0; i < 4; ++i) {
    ChartSeries series = chart.series[0];
    series.name = fmt::format("variant {} of the scheduler", i);
    series.dashed = i % 2 == 1;
    for (ChartPoint& p : series.points) p = {p.x, p.y * (0.9 - 0.1 * i)};
    chart.series.push_back(series);
  }
  chart.vertical = {{10.5, "10.5"}};
  const std::string svg = draw(chart);
  EXPECT_THAT(svg, HasSubstr("variant 3 of the scheduler"));
}

TEST(Chart, WhatCannotBeDrawnIsRefused) {
  Chart chart;
  chart.title = "empty";
  EXPECT_THAT(render_svg(chart).error().message, HasSubstr("nothing to draw"));
  chart.series.push_back({"nan", {{NAN, 1}, {1, INFINITY}}});
  EXPECT_EQ(render_svg(chart).error().code, Code::invalid);
  chart.log_y = true;
  chart.series[0].points = {{1, 0}, {2, -1}};
  EXPECT_THAT(render_svg(chart).error().message, HasSubstr("nothing to draw"));
  chart.series[0] = {"bars", {{0, 1}}, ChartStyle::bars};
  EXPECT_THAT(render_svg(chart).error().message, HasSubstr("categories"));
  chart.categories = {"one"};
  chart.series[0].points = {{1, 1}};
  EXPECT_THAT(render_svg(chart).error().message, HasSubstr("category 1 of 1"));
}

TEST(Chart, OnePointIsEnough) {
  Chart chart;
  chart.id = "one";
  chart.series.push_back({"one", {{0, 0}}});
  draw(chart);
  chart.log_x = chart.log_y = true;
  chart.series[0].points = {{8192, 5}};
  draw(chart);
}

TEST(Chart, WithoutGnuplotTheErrorNamesThePackage) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  const auto svg = render_svg(curves());
  setenv("PATH", path.c_str(), 1);
  ASSERT_FALSE(svg);
  EXPECT_EQ(svg.error().code, Code::not_found);
  EXPECT_THAT(svg.error().message, HasSubstr("gnuplot-nox"));
}

std::vector<double> ticks_of(const Axis& axis) {
  std::vector<double> out;
  for (const Axis::Tick& tick : axis.ticks) out.push_back(tick.at);
  return out;
}

TEST(ChartAxis, TicksAreRoundAndHoldTheData) {
  const Axis linear = make_axis(1, 22, false, false);
  EXPECT_EQ(ticks_of(linear), (std::vector<double>{0, 5, 10, 15, 20, 25}));
  EXPECT_EQ(linear.low, 0);
  EXPECT_EQ(linear.high, 25);
  EXPECT_EQ(ticks_of(make_axis(90, 100, false, false)),
            (std::vector<double>{90, 92, 94, 96, 98, 100}));
  EXPECT_EQ(make_axis(90, 100, false, true).low, 0);
  EXPECT_EQ(ticks_of(make_axis(350, 20'000, true, false)),
            (std::vector<double>{200, 500, 1000, 2000, 5000, 10'000, 20'000}));
  EXPECT_EQ(ticks_of(make_axis(1, 1e6, true, false)),
            (std::vector<double>{1, 10, 100, 1000, 1e4, 1e5, 1e6}));
  const Axis log = make_axis(1, 100, true, false);
  EXPECT_NEAR(log.place(10), 0.5, 1e-12);
  EXPECT_NEAR(linear.place(5), 0.2, 1e-12);
}

TEST(ChartAxis, Labels) {
  EXPECT_EQ(tick_label(0), "0");
  EXPECT_EQ(tick_label(0.25), "0.25");
  EXPECT_EQ(tick_label(1000), "1,000");
  EXPECT_EQ(tick_label(1234567), "1,234,567");
  EXPECT_EQ(tick_label(-25000), "-25,000");
}

}  // namespace
}  // namespace asap
