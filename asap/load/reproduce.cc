#include "asap/load/reproduce.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "asap/load/paper_figures.h"
#include "asap/load/report_sections.h"

namespace asap {

namespace {

constexpr SectionMaker kSections[] = {
    {"headline", "Throughput and TTFT", headline_section},
    {"curves", "TTFT as load grows", curves_section},
    {"parts", "Where the time goes", parts_section},
    {"ablations", "What each mechanism is worth", ablations_section},
    {"policies", "Past the paper", policies_section},
    {"limits", "Where asynchrony does not pay", limits_section},
    {"profiles", "Two sets of costs", profiles_section},
    {"comm", "Communication", comm_section},
    {"measured", "The real engine", measured_section},
};

constexpr int kMostRounds = 16;  // of writing; a section asks for more only by what it has learnt

Status check(const ReproduceOptions& options) {
  for (const std::string& id : options.only) {
    const std::vector<std::string> known = reproduce_sections();
    if (std::find(known.begin(), known.end(), id) == known.end()) {
      return fail(Code::invalid, "--only {}: no such section; there are {}", id,
                  fmt::join(known, ", "));
    }
  }
  if (options.seconds <= 0 || options.seeds < 1 || options.jobs < 1) {
    return fail(Code::invalid, "--seconds {}, --seeds {}, --jobs {}: all must be above 0",
                options.seconds, options.seeds, options.jobs);
  }
  return {};
}

struct Written {
  const SectionMaker* maker;
  Draft draft;
};

Result<std::vector<Written>> write_once(const Asking& asking) {
  std::vector<Written> out;
  for (const SectionMaker& maker : kSections) {
    const std::vector<std::string>& only = asking.options.only;
    if (!only.empty() && std::find(only.begin(), only.end(), maker.id) == only.end()) continue;
    ASAP_ASSIGN(Draft draft, maker.make(asking));
    if (!draft.parts.empty()) out.push_back({&maker, std::move(draft)});
  }
  return out;
}

bool has_points(const Chart& chart) {
  return std::any_of(chart.series.begin(), chart.series.end(),
                     [](const ChartSeries& series) { return !series.points.empty(); });
}

nlohmann::ordered_json json_of(const HtmlTable& table) {
  nlohmann::ordered_json out = {{"caption", table.caption}};
  for (const HtmlColumn& column : table.columns) {
    out["columns"].push_back({{"name", column.name}, {"origin", origin_name(column.origin)}});
  }
  for (const auto& row : table.rows) {
    nlohmann::ordered_json cells = nlohmann::ordered_json::array();
    for (const HtmlCell& cell : row) cells.push_back(cell.text);
    out["rows"].push_back(std::move(cells));
  }
  return out;
}

Status add_section(const Written& written, ReproduceReport& out) {
  HtmlSection& section =
      out.page.sections.emplace_back(HtmlSection{written.maker->id, written.maker->title, {}});
  nlohmann::ordered_json json = {{"id", section.id}, {"title", section.title}};
  out.text += fmt::format("\n== {}\n", section.title);
  for (const auto& part : written.draft.parts) {
    if (const auto* text = std::get_if<HtmlText>(&part)) {
      section.parts.emplace_back(*text);
    } else if (const auto* table = std::get_if<HtmlTable>(&part)) {
      section.parts.emplace_back(*table);
      json["tables"].push_back(json_of(*table));
      out.text += "\n" + text_of(*table);
    } else {
      const auto& figure = std::get<DraftFigure>(part);
      if (!has_points(figure.chart)) continue;
      ASAP_ASSIGN(std::string svg, render_svg(figure.chart));
      section.parts.emplace_back(HtmlFigure{svg, figure.caption, figure.origin});
      json["charts"].push_back(figure.chart.id + ".svg");
      out.charts.emplace_back(figure.chart.id, std::move(svg));
    }
  }
  out.json["sections"].push_back(std::move(json));
  return {};
}

void add_head(const ReproduceOptions& options, const SimRuns& runs, ReproduceReport& out) {
  out.page.title = "ASAP: the paper's evaluation, simulated and measured";
  out.page.summary =
      "Every number says where it comes from. Paper: printed in the text of the ASAP paper. "
      "Simulated: the engine's own scheduler and agents under a virtual clock, their kernels "
      "priced by a cost profile; it is a model of the machine that the profile describes, not a "
      "measurement of it. Measured here: the real engine on this machine.";
  out.page.facts = {{"cost profile", options.profile},
                    {"workload", options.workload},
                    {"arrivals per run", fmt::format("{:g} s", options.seconds)},
                    {"repetitions", fmt::format("{}", options.seeds)},
                    {"simulated runs", fmt::format("{}", runs.runs())},
                    {"search ends within", fmt::format("{:g} %", 100 * runs.options().tolerance)}};
  for (const std::string& what : runs.unsupported()) {
    out.page.facts.emplace_back("left out", what);
  }
  for (const auto& [name, value] : out.page.facts) out.json["facts"].push_back({name, value});
}

}  // namespace

std::vector<std::string> reproduce_sections() {
  std::vector<std::string> out;
  for (const SectionMaker& maker : kSections) out.emplace_back(maker.id);
  return out;
}

Result<ReproduceReport> reproduce(const ReproduceOptions& options, const Simulate& simulate,
                                  const std::function<void(const std::string&)>& progress) {
  ASAP_TRY(check(options));
  SimRunsOptions run_options;
  run_options.repeats = options.seeds;
  run_options.jobs = options.jobs;
  run_options.slo_ms = paper::kSloMs;
  if (options.quick) run_options.tolerance = 0.1;
  SimRuns runs(simulate, run_options, progress);
  const Asking asking{runs, options};
  ASAP_ASSIGN(std::vector<Written> sections, write_once(asking));
  for (int round = 0; runs.missing(); ++round) {
    if (round == kMostRounds) {
      return fail(Code::internal, "the report asks for ever more runs; {} are done", runs.runs());
    }
    ASAP_TRY(runs.work());
    ASAP_ASSIGN(sections, write_once(asking));
  }
  ReproduceReport out;
  add_head(options, runs, out);
  for (const Written& written : sections) ASAP_TRY(add_section(written, out));
  out.json["runs"] = runs.json();
  return out;
}

Status write_report(const ReproduceReport& report, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail(Code::internal, "--output {}: {}", folder, error.message());
  const auto write = [&](const std::string& name, const std::string& text) -> Status {
    const std::string path = (std::filesystem::path(folder) / name).string();
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) return fail(Code::internal, "{}: cannot be written", path);
    return {};
  };
  ASAP_TRY(write("report.html", html_of(report.page)));
  ASAP_TRY(write("report.json", report.json.dump(1) + "\n"));
  for (const auto& [id, svg] : report.charts) ASAP_TRY(write(id + ".svg", svg));
  return {};
}

}  // namespace asap
