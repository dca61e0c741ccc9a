// asap verify: engines against golden checkpoints, one table of verdicts.
#include "asap/runtime/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/model/model_source.h"

namespace asap {

namespace {

struct VerifyFlags {
  std::string directory;
  std::string filter;
  std::string format = "table";
};

// One engine on one golden.
struct Line {
  std::string checkpoint, family, weights, ops, dtype, geometry, config;
  double limit = 0, rms_limit = 0;
  VerifyOutcome outcome;

  bool passed() const { return outcome.problem.empty(); }
  std::string error_text() const {
    return std::isnan(outcome.logits_error)
               ? fmt::format("- / {:.2g}", limit)
               : fmt::format("{:.2e} / {:.2g}", outcome.logits_error, limit);
  }
  // Where not all tokens are required, it says how many are.
  std::string greedy_text() const {
    const VerifyOutcome& o = outcome;
    std::string out = fmt::format("{}/{}", o.greedy_equal, o.greedy_total);
    if (o.greedy_required < o.greedy_total) out += fmt::format(" ({} needed)", o.greedy_required);
    return out;
  }
  std::string verdict() const { return passed() ? "pass" : "FAIL: " + outcome.problem; }
};

constexpr const char* kHeadings[] = {"checkpoint", "family",       "weights", "ops",    "dtype",
                                     "geometry",   "logits error", "greedy",  "verdict"};
constexpr size_t kColumns = std::size(kHeadings);

std::vector<std::string> cells(const Line& line) {
  const std::string name = line.config.empty() || line.config == "config.json"
                               ? line.checkpoint
                               : line.checkpoint + " " + line.config;
  return {name,          line.family,       line.weights,       line.ops,      line.dtype,
          line.geometry, line.error_text(), line.greedy_text(), line.verdict()};
}

std::string summary(const std::vector<Line>& lines) {
  const auto passed = std::count_if(lines.begin(), lines.end(), std::mem_fn(&Line::passed));
  return fmt::format("{} of {} passed", passed, lines.size());
}

std::string table_text(const std::vector<Line>& lines) {
  std::vector<std::vector<std::string>> rows = {{std::begin(kHeadings), std::end(kHeadings)}};
  for (const Line& line : lines) rows.push_back(cells(line));
  std::vector<size_t> widths(kColumns, 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < kColumns; ++i) out += fmt::format("{:{}}  ", row[i], widths[i]);
    out += row.back() + "\n";
  }
  return out + summary(lines) + "\n";
}

std::string markdown_text(const std::vector<Line>& lines) {
  std::string out = fmt::format("| {} |\n|", fmt::join(kHeadings, " | "));
  for (size_t i = 0; i < kColumns; ++i) out += "---|";
  out += "\n";
  for (const Line& line : lines) out += fmt::format("| {} |\n", fmt::join(cells(line), " | "));
  return out + "\n" + summary(lines) + "\n";
}

std::string json_text(const std::vector<Line>& lines) {
  nlohmann::json out = nlohmann::json::array();
  for (const Line& line : lines) {
    const VerifyOutcome& o = line.outcome;
    nlohmann::json row = {{"checkpoint", line.checkpoint},
                          {"config", line.config},
                          {"family", line.family},
                          {"weights", line.weights},
                          {"ops", line.ops},
                          {"dtype", line.dtype},
                          {"geometry", line.geometry},
                          {"logits_error", o.logits_error},  // null if nothing ran
                          {"logits_limit", line.limit},
                          {"logits_rms_error", o.logits_rms_error},
                          {"greedy_equal", o.greedy_equal},
                          {"greedy_total", o.greedy_total},
                          {"greedy_required", o.greedy_required},
                          {"passed", line.passed()}};
    if (std::isfinite(line.rms_limit)) row["logits_rms_limit"] = line.rms_limit;
    if (!line.passed()) row["problem"] = o.problem;
    out.push_back(std::move(row));
  }
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Line line_of(const Golden& golden, const VerifyRun& run) {
  const GoldenLimits& limits = golden.limits(run.precision());
  return {
      golden.name,     golden.family,     golden.storage,        run.ops, run.dtype, run.geometry(),
      run.config_file, limits.logits_rel, limits.logits_rms_rel, {}};
}

// A model that cannot be read at all makes one line.
Line unreadable(const Golden& golden, const Error& error) {
  Line line{golden.name, golden.family,          golden.storage, "-", "-", "-",
            "",          golden.fp32.logits_rel, INFINITY,       {}};
  line.outcome.logits_error = line.outcome.logits_rms_error = NAN;
  line.outcome.problem = error.message;
  return line;
}

void verify_golden(const Golden& golden, const Platform& platform, std::vector<Line>* lines) {
  const auto spec = load_spec(golden.directory);
  if (!spec) {
    lines->push_back(unreadable(golden, spec.error()));
    return;
  }
  for (const VerifyRun& run : verify_runs(golden, *spec)) {
    if (interrupted()) return;
    Line line = line_of(golden, run);
    line.outcome = verify(golden, run, platform, &interrupted);
    std::fprintf(stderr, "%s %s %s, %s, %s: %s\n", golden.name.c_str(), run.config_file.c_str(),
                 run.ops.c_str(), run.dtype.c_str(), run.geometry().c_str(),
                 line.passed() ? "pass" : "FAIL");
    lines->push_back(std::move(line));
  }
}

Result<std::vector<Line>> verify_all(const VerifyFlags& flags, const Platform& platform) {
  ASAP_ASSIGN(const std::vector<std::string> directories, find_goldens(flags.directory));
  std::vector<Golden> goldens;
  for (const std::string& directory : directories) {
    ASAP_ASSIGN(Golden golden, load_golden(directory));
    if (golden.name.find(flags.filter) != std::string::npos) goldens.push_back(std::move(golden));
  }
  if (goldens.empty()) {
    return fail(Code::not_found, "--filter {}: no golden of {} has that in its name", flags.filter,
                flags.directory);
  }
  std::vector<Line> lines;
  for (const Golden& golden : goldens) verify_golden(golden, platform, &lines);
  if (interrupted()) return fail(Code::unavailable, "interrupted");
  return lines;
}

int run(const VerifyFlags& flags, const Platform& platform) {
  catch_interrupts();
  const auto lines = verify_all(flags, platform);
  if (!lines) return report(lines.error());
  const std::string text = flags.format == "json"       ? json_text(*lines)
                           : flags.format == "markdown" ? markdown_text(*lines)
                                                        : table_text(*lines);
  std::fputs(text.c_str(), stdout);
  return std::all_of(lines->begin(), lines->end(), std::mem_fn(&Line::passed)) ? 0 : 1;
}

}  // namespace

std::function<int()> add_verify(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<VerifyFlags>();
  app.add_option("directory", flags->directory,
                 "A golden (checkpoint, golden.json, golden.f32), or a folder of goldens")
      ->required();
  app.add_option("--filter", flags->filter, "Only goldens with this in their name");
  app.add_option("--format", flags->format, "Of the report on standard output")
      ->check(CLI::IsMember({"table", "json", "markdown"}))
      ->capture_default_str();
  return [flags, &platform] { return run(*flags, platform); };
}

}  // namespace asap
