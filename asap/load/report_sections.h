// The sections of the evaluation's report. A section is written from what SimRuns knows so far; it
// is written again, from the start, until nothing it asked for is missing.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "asap/load/chart.h"
#include "asap/load/html_report.h"
#include "asap/load/reproduce.h"
#include "asap/load/sim_runs.h"

namespace asap {

struct DraftFigure {
  Chart chart;  // without anything to draw: left out
  std::string caption;
  Origin origin = Origin::none;
};

struct Draft {
  std::vector<std::variant<HtmlText, HtmlTable, DraftFigure>> parts;
};

struct Asking {
  SimRuns& runs;
  const ReproduceOptions& options;

  SimPoint point(const std::string& engine, double rate = 1) const;
};

struct SectionMaker {
  const char* id;
  const char* title;
  Result<Draft> (*make)(const Asking& asking);
};

Result<Draft> headline_section(const Asking& asking);
Result<Draft> curves_section(const Asking& asking);
Result<Draft> parts_section(const Asking& asking);
Result<Draft> ablations_section(const Asking& asking);
Result<Draft> policies_section(const Asking& asking);
Result<Draft> limits_section(const Asking& asking);
Result<Draft> profiles_section(const Asking& asking);
Result<Draft> comm_section(const Asking& asking);      // empty without a file
Result<Draft> measured_section(const Asking& asking);  // empty without files

// "ASAP (our policy)" for "asap", and so on.
std::string engine_label(const std::string& engine);
// With so many digits after the point; a dash if it is not known.
std::string number_text(std::optional<double> value, int digits);
// a / b, "0.451"; a dash if either is not known or b is 0.
std::optional<double> ratio(std::optional<double> a, std::optional<double> b);

// Bins as the paper draws them: everything below 512 tokens is one.
struct PaperBin {
  std::string label;
  size_t count = 0;
  double ttft_ms = 0;
  MeanParts parts;
};
std::vector<PaperBin> paper_bins(const std::vector<LengthBin>& bins);
// Stacked bars of the parts, one stack per bin and engine. `names` of the engines.
Chart parts_chart(const std::string& id, const std::string& title,
                  const std::vector<std::string>& names,
                  const std::vector<std::vector<PaperBin>>& engines);

}  // namespace asap
