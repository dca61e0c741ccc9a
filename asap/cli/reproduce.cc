// asap reproduce: the paper's evaluation as a report: its figures, simulated ones, measured ones.
#include "asap/load/reproduce.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <thread>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/shipped_files.h"
#include "asap/cli/validators.h"
#include "asap/sim/sim_point.h"

namespace asap {

namespace {

constexpr double kQuickSeconds = 60;

struct ReproduceFlags {
  ReproduceOptions options;
  std::string output = "asap-report";
};

// On a terminal one line that is rewritten, else a line per run.
void show(const std::string& line) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  std::fprintf(stderr, terminal ? "\r\033[K%.150s" : "%s\n", line.c_str());
}

Status run(const ReproduceFlags& flags) {
  int runs = 0;
  catch_interrupts();
  const Simulate stoppable = [](const SimPoint& point) -> Result<LoadReport> {
    if (interrupted()) return fail(Code::unavailable, "interrupted");
    SimPoint found = point;
    // A trace by its name; what is none is a length law.
    if (auto trace = find_trace(point.settings.workload)) found.settings.workload = *trace;
    return simulate_point(found);
  };
  ASAP_ASSIGN(const ReproduceReport report,
              reproduce(flags.options, stoppable, [&](const std::string& line) {
                show(fmt::format("[{}] {}", ++runs, line));
              }));
  if (::isatty(STDERR_FILENO) != 0) std::fputc('\n', stderr);
  ASAP_TRY(write_report(report, flags.output));
  std::printf("%s\n%s/report.html, report.json and %zu charts\n", report.text.c_str(),
              flags.output.c_str(), report.charts.size());
  return {};
}

}  // namespace

std::function<int()> add_reproduce(CLI::App& app) {
  auto flags = std::make_shared<ReproduceFlags>();
  ReproduceOptions& o = flags->options;
  o.jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto option = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  option("--output", flags->output, "Folder for report.html, report.json and the charts")
      ->check(creatable_path());
  option("--profile", o.profile, "Costs of the machine: a built-in profile or a TOML file");
  option("--second-profile", o.second_profile, "The profile that it is compared with");
  option("--trace", o.workload, "W0, W1, W4 (traces/README.md), or a file");
  CLI::Option* seconds = option("--seconds", o.seconds, "Seconds of arrivals of each run");
  seconds->check(between(0.1, 1e6));
  option("--seeds", o.seeds, "Repetitions of each run, on other rows of the trace")
      ->check(CLI::Range(1, 1000));
  option("--jobs,-j", o.jobs, "Runs at a time")->check(CLI::Range(1, 1024));
  app.add_flag("--quick", o.quick, "Fewer rates, a coarser search, runs of 60 s");
  app.add_option("--only", o.only, "Sections to make; all if not given")
      ->check(CLI::IsMember(reproduce_sections()));
  app.add_option("--comm", o.comm_file, "JSON that asap bench comm wrote");
  app.add_option("--measured", o.measured_files, "JSON files that asap bench serve wrote");
  return [flags, seconds] {
    if (flags->options.quick && seconds->count() == 0) flags->options.seconds = kQuickSeconds;
    const Status status = run(*flags);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
