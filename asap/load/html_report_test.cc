#include "asap/load/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "asap/load/chart.h"
#include "asap/load/test_support.h"

namespace asap {
namespace {

using testing::HasSubstr;
using testing::Not;

HtmlTable table() {
  HtmlTable out;
  out.caption = "Highest rate with mean TTFT <= 5 s";
  out.columns = {{"engine", Origin::none, false},
                 {"requests/s", Origin::paper},
                 {"requests/s", Origin::simulated},
                 {"remark", Origin::none, false}};
  out.rows = {{"ASAP", "20", "20.3", "D=4 & T=4"},
              {"Default", "6.8", HtmlCell("7.5", Origin::measured), "<none>"}};
  return out;
}

HtmlReport report() {
  HtmlReport out;
  out.title = "A < B & \"C\"";
  out.summary = "What <b>this</b> is.";
  out.facts = {{"profile", "x&y"}, {"seconds", "300"}};
  Chart chart;
  chart.id = "first";
  chart.title = "lines";
  chart.series = {{"one", {{1, 2}, {2, 4}, {3, 3}}}, {"two", {{1, 1}, {2, 2}, {3, 5}}}};
  const auto svg = render_svg(chart);
  EXPECT_TRUE(svg) << svg.error().message;
  out.sections.push_back({"tables", "Tables & text", {HtmlText{"1 < 2"}, table()}});
  out.sections.push_back(
      {"charts", "Charts", {HtmlFigure{svg.value_or(""), "A <caption>", Origin::simulated}}});
  return out;
}

TEST(HtmlReport, IsOneWellFormedPageThatFetchesNothing) {
  const std::string html = html_of(report());
  if (const char* folder = std::getenv("ASAP_CHARTS")) {
    std::ofstream(std::string(folder) + "/page.html") << html;
  }
  EXPECT_EQ(test::malformed(html), "");
  EXPECT_THAT(html, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(html, Not(HasSubstr("<?xml")));
  for (const char* fetched : {"<script", "<link", "<img", "@import", "url(", "src="}) {
    EXPECT_THAT(html, Not(HasSubstr(fetched)));
  }
  EXPECT_THAT(html, HasSubstr("<svg class=\"asap-chart\""));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(html, HasSubstr("<a href=\"#charts\">Charts</a>"));
  EXPECT_THAT(html, HasSubstr("<h2 id=\"charts\">"));
}

TEST(HtmlReport, EscapesEverything) {
  const std::string html = html_of(report());
  for (const char* text : {"<title>A &lt; B &amp; &quot;C&quot;</title>",
                           "What &lt;b&gt;this&lt;/b&gt; is.", "x&amp;y", "Tables &amp; text",
                           "1 &lt; 2", "D=4 &amp; T=4", "&lt;none&gt;", "A &lt;caption&gt;"}) {
    EXPECT_THAT(html, HasSubstr(text));
  }
}

TEST(HtmlReport, NumbersSayWhereTheyComeFrom) {
  const std::string html = html_of(report());
  EXPECT_THAT(html, HasSubstr("requests/s <span class=\"o o-paper\">paper</span></th>"));
  EXPECT_THAT(html, HasSubstr("requests/s <span class=\"o o-simulated\">simulated</span></th>"));
  EXPECT_THAT(
      html,
      HasSubstr("<td class=\"n\">7.5 <span class=\"o o-measured\">measured here</span></td>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">ASAP</th><td class=\"n\">20</td>"));
  EXPECT_THAT(html, HasSubstr("<td>&lt;none&gt;</td>"));
}

TEST(HtmlReport, TablesFoldedAndOnATerminal) {
  HtmlTable folded = table();
  folded.folded = true;
  const std::string html = html_of({"t", "", {}, {{"s", "S", {folded}}}});
  EXPECT_EQ(test::malformed(html), "");
  EXPECT_THAT(html, HasSubstr("<details><summary>Highest rate with mean TTFT &lt;= 5 s</summary>"));
  EXPECT_EQ(text_of(folded), text_of(table()));
  EXPECT_EQ(text_of(table()),
            "Highest rate with mean TTFT <= 5 s\n"
            "engine   requests/s  requests/s  remark\n"
            "              paper   simulated\n"
            "ASAP             20        20.3  D=4 & T=4\n"
            "Default         6.8         7.5  <none>\n");
}

}  // namespace
}  // namespace asap
