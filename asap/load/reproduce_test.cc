// The report over a simulator that is a formula: what is checked is the report, not the numbers.
#include "asap/load/reproduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "asap/load/report_sections.h"
#include "asap/load/test_support.h"

namespace asap {
namespace {

using testing::HasSubstr;
using testing::Not;

double limit_of(const SimPoint& point) {
  if (point.engine == kDefault) return 7.5;
  if (point.engine == kChunked) return 12.3;
  double limit = point.engine == kAsap ? 25 : 20.6;
  if (point.settings.changes.stages) limit += 2 * (*point.settings.changes.stages - 2);
  if (point.settings.changes.refill) limit += 1;
  return limit;
}

Result<LoadReport> formula(const SimPoint& point) {
  if (point.settings.changes.merge_items) return fail(Code::unsupported, "items are not merged");
  const double room = std::max(1e-3, 1 - point.rate / limit_of(point));
  const bool lockstep = point.engine == kDefault || point.engine == kChunked;
  LoadReport out;
  for (int low = 16; low <= 16384; low *= 2) {
    LengthBin bin{low, 2 * low, {}, {}};
    TimeParts& parts = bin.parts.mean;
    parts = {
        60 / room, 10 + low / 20.0, 40, 6, 9, lockstep ? 0.0 : 15.0, lockstep ? 150 / room : 0.0,
        30};
    for (const TimePart& part : kTimeParts) bin.ttft.mean += parts.*part.value;
    bin.ttft.mean *= 1 + 0.05 * point.repeat;
    bin.ttft.count = bin.parts.count = 100;
    out.bins.push_back(bin);
    out.ttft.mean += bin.ttft.mean / 11;
  }
  out.requests = out.finished = 1100;
  out.ttft.count = 1100;
  out.ttft.p50 = out.ttft.mean;
  out.ttft.p90 = 2 * out.ttft.mean;
  out.ttft.p99 = out.ttft.max = 3 * out.ttft.mean;
  return out;
}

std::string file_of(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

ReproduceOptions options() {
  ReproduceOptions out;
  out.seeds = 2;
  out.jobs = 2;
  out.quick = true;
  out.comm_file = file_of("comm.json",
                          R"({"machine": "here", "rows": [
      {"tokens": 512, "sync_us": 210.5, "async_us": 61, "note": "a<b"},
      {"tokens": 8192, "sync_us": 2210, "async_us": 410}]})");
  out.measured_files = {file_of("one.json",
                                R"({"request_rate": 2, "requests": 10, "finished": 10,
      "ttft_ms": {"mean": 40, "p50": 35, "p90": 60, "p99": 80},
      "mean_parts": {"count": 10, "queueing_ms": 5, "attention_ms": 25},
      "ttft_ms_by_prompt_tokens": [{"low": 64, "high": 128, "ttft_ms": {"count": 10, "mean": 40},
        "mean_parts": {"count": 10, "queueing_ms": 5, "attention_ms": 25}}]})"),
                        file_of("search.json", R"({"slo_request_rate": 12.5, "runs": [
      {"request_rate": 10, "requests": 50, "finished": 50, "ttft_ms": {"mean": 90}},
      {"request_rate": 5, "requests": 25, "finished": 25, "ttft_ms": {"mean": 45}}]})")};
  return out;
}

TEST(Reproduce, TheWholeReport) {
  std::mutex mutex;
  std::set<std::string> points;
  const auto counted = [&](const SimPoint& point) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(points.insert(point.text()).second) << "run twice: " << point.text();
    return formula(point);
  };
  int lines = 0;
  const auto report = reproduce(options(), counted, [&](const std::string&) { ++lines; });
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(lines, static_cast<int>(points.size()));

  const std::string html = html_of(report->page);
  EXPECT_EQ(test::malformed(html), "");
  for (const std::string& id : reproduce_sections()) {
    EXPECT_THAT(html, HasSubstr(fmt::format("<h2 id=\"{}\">", id)));
  }
  EXPECT_THAT(html, HasSubstr("items are not merged"));
  EXPECT_THAT(html, HasSubstr("a&lt;b"));
  std::set<std::string> charts;
  for (const auto& [id, svg] : report->charts) charts.insert(id);
  EXPECT_EQ(charts, (std::set<std::string>{"curves", "parts", "ablations", "comm", "measured",
                                           "measured-parts"}));

  const char* const kept = std::getenv("ASAP_CHARTS");
  const std::string folder =
      kept != nullptr ? std::string(kept) + "/report" : testing::TempDir() + "/asap/report";
  ASSERT_TRUE(write_report(*report, folder));
  std::ifstream file(folder + "/report.json");
  const auto json = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["sections"].size(), reproduce_sections().size());
  EXPECT_GT(json["runs"]["points"].size(), 50u);
  EXPECT_TRUE(std::filesystem::exists(folder + "/curves.svg"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/report.html"));
}

// Each number under a header that says where it is from; the paper's beside ours.
TEST(Reproduce, TheHeadline) {
  ReproduceOptions headline = options();
  headline.only = {"headline"};
  headline.quick = false;
  headline.comm_file.clear();
  headline.measured_files.clear();
  const auto report = reproduce(headline, formula, nullptr);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->page.sections.size(), 1u);
  const auto& table = std::get<HtmlTable>(report->page.sections[0].parts[1]);
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(table.columns[1].origin, Origin::paper);
  EXPECT_EQ(table.columns[2].origin, Origin::simulated);
  EXPECT_EQ(table.rows[0][1].text, "20.0");
  EXPECT_EQ(table.rows[1][1].text, "6.8");
  EXPECT_EQ(table.rows[2][1].text, "10.5");
  EXPECT_EQ(table.rows[3][1].text, "–");  // the paper has none of ours
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size());
  // The formula at its limit: 60 / room and 15 / room more.
  EXPECT_NEAR(std::stod(table.rows[0][2].text), 20.2, 0.4);
  EXPECT_NEAR(std::stod(table.rows[1][2].text), 7.1, 0.3);
  EXPECT_THAT(report->text, HasSubstr("simulated"));
}

TEST(Reproduce, RefusesWhatItDoesNotKnow) {
  ReproduceOptions wrong = options();
  wrong.only = {"headlines"};
  EXPECT_THAT(reproduce(wrong, formula, nullptr).error().message, HasSubstr("policies"));
  wrong = options();
  wrong.comm_file = "/nonexistent.json";
  EXPECT_EQ(reproduce(wrong, formula, nullptr).error().code, Code::not_found);
  for (const char* text :
       {"", "[]", "{}", "{\"runs\": 7}", "{\"runs\": [3]}", "{\"ttft_ms\": 1}"}) {
    wrong = options();
    wrong.only = {"measured"};
    wrong.measured_files = {file_of("bad.json", text)};
    const auto report = reproduce(wrong, formula, nullptr);
    ASSERT_FALSE(report) << text;
    EXPECT_THAT(report.error().message, HasSubstr("bad.json"));
    wrong.only = {"comm"};
    wrong.comm_file = wrong.measured_files[0];
    if (std::string(text) != "{\"runs\": [3]}") {
      EXPECT_FALSE(reproduce(wrong, formula, nullptr)) << text;
    }
  }
  wrong = options();
  wrong.seeds = 0;
  EXPECT_EQ(reproduce(wrong, formula, nullptr).error().code, Code::invalid);
}

TEST(ReportSections, BinsAsThePaperDrawsThem) {
  std::vector<LengthBin> bins;
  for (int low = 128; low <= 1024; low *= 2) {
    LengthBin bin{low, 2 * low, {}, {}};
    bin.ttft.count = bin.parts.count = low == 128 ? 30 : 10;
    bin.ttft.mean = low;
    bin.parts.mean.host = low;
    bins.push_back(bin);
  }
  const std::vector<PaperBin> out = paper_bins(bins);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].label, "< 512");
  EXPECT_EQ(out[0].count, 40u);
  EXPECT_DOUBLE_EQ(out[0].ttft_ms, (30 * 128 + 10 * 256) / 40.0);
  EXPECT_DOUBLE_EQ(out[0].parts.mean.host, (30 * 128 + 10 * 256) / 40.0);
  EXPECT_EQ(out[1].label, "512–1k");
  EXPECT_EQ(out[2].label, "1k–2k");
  EXPECT_TRUE(paper_bins({}).empty());
}

TEST(ReportSections, Numbers) {
  EXPECT_EQ(number_text(12345.678, 1), "12,345.7");
  EXPECT_EQ(number_text(-1234, 0), "-1,234");
  EXPECT_EQ(number_text(0.4512, 3), "0.451");
  EXPECT_EQ(number_text(std::nullopt, 1), "–");
  EXPECT_EQ(number_text(INFINITY, 1), "–");
  EXPECT_EQ(ratio(1, 0), std::nullopt);
  EXPECT_EQ(ratio(1, 4), 0.25);
}

}  // namespace
}  // namespace asap
