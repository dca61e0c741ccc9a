// Sections of what was measured on this machine: JSON files that `asap bench` wrote.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "asap/load/paper_figures.h"
#include "asap/load/report_sections.h"

namespace asap {

namespace {

using Json = nlohmann::ordered_json;

constexpr uintmax_t kMaxFile = uintmax_t{256} << 20;

Result<Json> read_json(const std::string& path) {
  std::error_code error;
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path, error)) {
    return fail(Code::not_found, "{}: no such file", path);
  }
  if (std::filesystem::file_size(path, error) > kMaxFile) {
    return fail(Code::invalid, "{}: too large for a report of a measurement", path);
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(Code::invalid, "{}: not a JSON object", path);
  return json;
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

std::optional<double> number(const Json& object, const char* key) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}

MeanParts mean_parts(const Json& object) {
  MeanParts out;
  const Json* parts = member(object, "mean_parts");
  if (parts == nullptr) return out;
  out.count = static_cast<size_t>(std::clamp(number(*parts, "count").value_or(0), 0.0, 1e12));
  for (const TimePart& part : kTimeParts) {
    out.mean.*part.value = std::max(0.0, number(*parts, part.key).value_or(0));
  }
  return out;
}

std::vector<LengthBin> length_bins(const Json& run) {
  std::vector<LengthBin> out;
  const Json* bins = member(run, "ttft_ms_by_prompt_tokens");
  if (bins == nullptr || !bins->is_array()) return out;
  for (const Json& bin : *bins) {
    LengthBin one;
    constexpr double kMost = 1 << 29;
    one.low = static_cast<int>(std::clamp(number(bin, "low").value_or(0), 0.0, kMost));
    one.high = static_cast<int>(std::clamp(number(bin, "high").value_or(0), 0.0, kMost));
    if (const Json* ttft = member(bin, "ttft_ms")) {
      one.ttft.mean = number(*ttft, "mean").value_or(0);
      one.ttft.count =
          static_cast<size_t>(std::clamp(number(*ttft, "count").value_or(0), 0.0, 1e12));
    }
    one.parts = mean_parts(bin);
    out.push_back(one);
  }
  return out;
}

std::string stem(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

// The runs of a file: of a search many, else itself.
std::vector<Json> runs_of(const Json& file) {
  const Json* runs = member(file, "runs");
  if (runs != nullptr && runs->is_array()) return {runs->begin(), runs->end()};
  return {file};
}

void add_runs(const std::string& name, const Json& file, HtmlTable& table, Chart& chart) {
  ChartSeries series{name, {}};
  for (const Json& run : runs_of(file)) {
    const auto rate = number(run, "request_rate");
    const Json* ttft = member(run, "ttft_ms");
    if (!rate || ttft == nullptr) continue;
    const auto ms = [&](const char* key) { return number_text(number(*ttft, key), 1); };
    table.rows.push_back({name, number_text(rate, 2), number_text(number(run, "requests"), 0),
                          number_text(number(run, "finished"), 0), ms("mean"), ms("p50"), ms("p90"),
                          ms("p99")});
    if (const auto mean = number(*ttft, "mean")) series.points.push_back({*rate, *mean});
  }
  std::sort(series.points.begin(), series.points.end(),
            [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  chart.series.push_back(std::move(series));
}

// The first array of objects in the file: its rows.
const Json* rows_of(const Json& file) {
  for (const auto& [key, value] : file.items()) {
    if (value.is_array() && !value.empty() && value[0].is_object()) return &value;
  }
  return nullptr;
}

std::string cell_text(const Json& value) {
  if (value.is_number_integer()) return number_text(value.get<double>(), 0);
  if (value.is_number()) return number_text(value.get<double>(), 3);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Every column that is a time becomes a curve over the tokens.
Chart comm_chart(const Json& rows) {
  Chart chart;
  chart.id = "comm";
  chart.title = "Latency by tokens";
  chart.x_label = "tokens";
  chart.log_x = chart.log_y = true;
  for (const char* unit : {"_us", "_ms"}) {
    for (const auto& [key, value] : rows[0].items()) {
      if (!key.ends_with(unit) || (!chart.y_label.empty() && chart.y_label != unit)) continue;
      chart.y_label = unit;
      ChartSeries series{key.substr(0, key.size() - 3), {}};
      for (const Json& row : rows) {
        const auto tokens = number(row, "tokens");
        const auto time = number(row, key.c_str());
        if (tokens && time) series.points.push_back({*tokens, *time});
      }
      chart.series.push_back(std::move(series));
    }
  }
  chart.y_label = chart.y_label == "_us" ? "microseconds" : "milliseconds";
  return chart;
}

}  // namespace

Result<Draft> comm_section(const Asking& asking) {
  Draft out;
  if (asking.options.comm_file.empty()) return out;
  ASAP_ASSIGN(const Json file, read_json(asking.options.comm_file));
  const Json* rows = rows_of(file);
  if (rows == nullptr) {
    return fail(Code::invalid, "{}: holds no array of objects; give what asap bench comm wrote",
                asking.options.comm_file);
  }
  HtmlTable said;
  said.columns = {{"", Origin::none, false}, {"", Origin::paper}};
  said.rows = {
      {"synchronous over asynchronous, 1k tokens", number_text(paper::kSyncOverAsync1k, 1)},
      {"synchronous over asynchronous, 8k tokens", number_text(paper::kSyncOverAsync8k, 1)},
      {"asynchronous dispatch of 512 tokens, ms", "< " + number_text(paper::kDispatch512Ms, 1)}};
  HtmlTable table;
  std::vector<std::string> keys;
  for (const auto& [key, value] : (*rows)[0].items()) {
    keys.push_back(key);
    table.columns.push_back({key, keys.size() == 1 ? Origin::none : Origin::measured});
  }
  for (const Json& row : *rows) {
    std::vector<HtmlCell>& cells = table.rows.emplace_back();
    for (const std::string& key : keys) {
      const Json* value = member(row, key.c_str());
      cells.emplace_back(value == nullptr ? "–" : cell_text(*value));
    }
  }
  out.parts.emplace_back(std::move(said));
  out.parts.emplace_back(
      DraftFigure{comm_chart(*rows), "asap bench comm on this machine.", Origin::measured});
  out.parts.emplace_back(std::move(table));
  return out;
}

Result<Draft> measured_section(const Asking& asking) {
  Draft out;
  if (asking.options.measured_files.empty()) return out;
  HtmlTable table;
  table.caption = "TTFT of the real engine, ms";
  table.columns = {{"file", Origin::none, false},  {"requests/s", Origin::measured},
                   {"requests", Origin::measured}, {"finished", Origin::measured},
                   {"mean", Origin::measured},     {"p50", Origin::measured},
                   {"p90", Origin::measured},      {"p99", Origin::measured}};
  HtmlTable limits;
  limits.caption = "Highest rate within the limit that was searched for";
  limits.columns = {{"file", Origin::none, false}, {"requests/s", Origin::measured}};
  DraftFigure curves{{}, "asap bench serve on this machine.", Origin::measured};
  curves.chart.id = "measured";
  curves.chart.title = "Mean TTFT as load grows";
  curves.chart.x_label = "requests per second";
  curves.chart.y_label = "milliseconds";
  curves.chart.log_y = true;
  std::vector<std::string> names;
  std::vector<std::vector<PaperBin>> bins;
  for (const std::string& path : asking.options.measured_files) {
    ASAP_ASSIGN(const Json file, read_json(path));
    const size_t before = table.rows.size();
    add_runs(stem(path), file, table, curves.chart);
    if (table.rows.size() == before) {
      return fail(Code::invalid, "{}: holds no run; give what asap bench serve wrote", path);
    }
    if (const auto limit = number(file, "slo_request_rate")) {
      limits.rows.push_back({stem(path), number_text(limit, 2)});
    }
    if (member(file, "mean_parts") == nullptr) continue;
    names.push_back(stem(path));
    bins.push_back(paper_bins(length_bins(file)));
  }
  out.parts.emplace_back(std::move(curves));
  out.parts.emplace_back(std::move(table));
  if (!limits.rows.empty()) out.parts.emplace_back(std::move(limits));
  out.parts.emplace_back(DraftFigure{
      parts_chart("measured-parts", "Where the time goes", names, bins),
      "Mean parts of TTFT by prompt length, as the server says them.", Origin::measured});
  return out;
}

}  // namespace asap
