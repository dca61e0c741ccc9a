// The evaluation as a report: the paper's figures, what a simulator gives for them, and what was
// measured here, side by side; every number says which of the three it is.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "asap/base/result.h"
#include "asap/load/html_report.h"
#include "asap/load/sim_point.h"

namespace asap {

struct ReproduceOptions {
  std::string profile = "cm384-deepseek-v3.2";
  // Beside it in the section that compares machines: what holds in one alone is no conclusion.
  std::string second_profile = "cm384-deepseek-v3.2-refg";
  std::string workload = "W0";
  double seconds = 300;                     // of arrivals, per run
  int seeds = 1;                            // repetitions of every run
  int jobs = 1;                             // runs at a time
  bool quick = false;                       // fewer rates, a coarser search
  std::vector<std::string> only;            // sections; empty: all
  std::string comm_file;                    // JSON of asap bench comm
  std::vector<std::string> measured_files;  // JSON of asap bench serve
};

struct ReproduceReport {
  HtmlReport page;
  nlohmann::ordered_json json;
  std::vector<std::pair<std::string, std::string>> charts;  // id, SVG
  std::string text;                                         // the tables, for a terminal
};

// Ids of the sections, in their order.
std::vector<std::string> reproduce_sections();

// `progress` (may be null): a line per finished run. Errors: invalid (options), those of Simulate
// and render_svg(), not_found (a file).
Result<ReproduceReport> reproduce(const ReproduceOptions& options, const Simulate& simulate,
                                  const std::function<void(const std::string&)>& progress);

// report.html, report.json and every chart as ID.svg into `folder`, which is made. Errors:
// internal.
Status write_report(const ReproduceReport& report, const std::string& folder);

}  // namespace asap
