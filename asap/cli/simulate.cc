// asap simulate: a workload through an instance of any size, in virtual time.
#include "asap/sim/simulate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/workload_flags.h"
#include "asap/load/report.h"
#include "asap/load/slo_search.h"

namespace asap {

namespace {

struct SimulateFlags {
  EngineConfig config;
  WorkloadFlags workload;
  SimulationLimits limits;
  std::string output_file;
  double slo_ttft_ms = 0;
  std::string slo_statistic = "mean";
  double slo_tolerance = 0.02;
};

Result<SimulationResult> run_once(const SimulateFlags& flags, double rate) {
  ASAP_ASSIGN(WorkloadSpec spec, workload_spec(flags.workload));
  spec.rate = rate;
  ASAP_ASSIGN(const std::vector<Arrival> workload, make_workload(spec));
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto progress = [&](double at, int done) {
    if (terminal) {
      std::fprintf(stderr, "\r%.2f requests/s: %.0f virtual s, %d/%zu requests ", rate, at, done,
                   workload.size());
    }
    return !interrupted();
  };
  auto result = simulate(flags.config, workload, flags.limits, progress);
  if (terminal) std::fputs("\r\033[K", stderr);
  if (interrupted()) return fail(Code::unavailable, "interrupted");
  return result;
}

std::string use_text(const SimulationResult& r) {
  const Utilisation use = utilisation_of(r);
  return fmt::format("busy: attention {:.1f} %, experts {:.1f} % computing, {:.1f} % sending\n",
                     100 * use.attention, 100 * use.experts, 100 * use.send);
}

void print(const SimulationResult& r, const LoadReport& report) {
  std::fputs(text_of(report).c_str(), stdout);
  std::fputs(use_text(r).c_str(), stdout);
  std::printf(
      "%s",
      fmt::format("{:.1f} virtual seconds in {:.2f} s: {:.0f} times real time, {:.2f} M "
                  "events, {:.2f} M steps; hash {:016x}\n",
                  r.virtual_seconds, r.wall_seconds, r.virtual_seconds / r.wall_seconds,
                  static_cast<double>(r.events) * 1e-6, static_cast<double>(r.steps) * 1e-6, r.hash)
          .c_str());
}

Status search(const SimulateFlags& flags, nlohmann::ordered_json* out) {
  SloSearch search(flags.workload.spec.rate, flags.slo_tolerance);
  std::printf("%10s %10s %10s %10s %10s %12s\n", "rate/s", "mean", "p50", "p90", "p99", "verdict");
  while (const auto rate = search.next()) {
    ASAP_ASSIGN(const SimulationResult result, run_once(flags, *rate));
    const LoadReport report = make_report(result.load);
    const bool met = statistic_of(report.ttft, flags.slo_statistic) <= flags.slo_ttft_ms &&
                     report.finished == report.requests;
    std::printf("%10.3f %10.1f %10.1f %10.1f %10.1f %12s\n", *rate, report.ttft.mean,
                report.ttft.p50, report.ttft.p90, report.ttft.p99, met ? "met" : "missed");
    std::fflush(stdout);
    nlohmann::ordered_json row = json_of(report);
    row["request_rate"] = *rate;
    row["met"] = met;
    (*out)["runs"].push_back(row);
    search.record(met);
  }
  std::printf("highest rate with %s TTFT <= %.0f ms: %.3f requests/s\n",
              flags.slo_statistic.c_str(), flags.slo_ttft_ms, search.best());
  (*out)["slo_request_rate"] = search.best();
  return {};
}

Status run(SimulateFlags flags) {
  catch_interrupts();
  EngineConfig& config = flags.config;
  const bool lockstep = in_lockstep(config);
  if (config.data_parallel_size == 0) config.data_parallel_size = lockstep ? 8 : 4;
  if (config.num_moe_ranks == 0 && !lockstep) config.num_moe_ranks = 16;
  nlohmann::ordered_json out = {{"profile", flags.config.profile},
                                {"scheduler", flags.config.scheduler}};
  if (flags.slo_ttft_ms > 0) {
    ASAP_TRY(search(flags, &out));
  } else {
    ASAP_ASSIGN(const SimulationResult result, run_once(flags, flags.workload.spec.rate));
    const LoadReport report = make_report(result.load);
    print(result, report);
    out["request_rate"] = flags.workload.spec.rate;
    out["hash"] = fmt::format("{:016x}", result.hash);
    out["virtual_seconds"] = result.virtual_seconds;
    out["wall_seconds"] = result.wall_seconds;
    out.update(json_of(report));
  }
  if (flags.output_file.empty()) return {};
  std::ofstream file(flags.output_file);
  file << out.dump(1) << "\n";
  if (!file) return fail(Code::internal, "--output-file {}: cannot be written", flags.output_file);
  return {};
}

}  // namespace

std::function<int()> add_simulate(CLI::App& app) {
  auto flags = std::make_shared<SimulateFlags>();
  EngineConfig& config = flags->config;
  config.profile = "cm384-deepseek-v3.2";
  config.data_parallel_size = 0;
  config.tensor_parallel_size = 4;
  config.max_num_batched_tokens = 0;
  config.max_num_seqs = 256;
  const auto option = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  option("--profile", config.profile, "Cost profile: a built-in's name or a file");
  option("--preset", config.preset, "Model; default: the profile's");
  option("--data-parallel-size,--dp", config.data_parallel_size,
         "D: attention groups; 0: 4, in lockstep 8 (the paper's 32 devices)");
  option("--tensor-parallel-size,--tp", config.tensor_parallel_size, "T: ranks of a group");
  option("--num-moe-ranks,--num-ffn-ranks", config.num_moe_ranks,
         "E: devices that hold experts; 0: 16, in lockstep D x T");
  option("--stages", config.stages,
         "R: batches alive in a group at once; 0: as the scheduler has it");
  option("--max-num-batched-tokens", config.max_num_batched_tokens,
         "S: tokens of one batch; 0: as the scheduler has it");
  option("--max-num-seqs", config.max_num_seqs, "Sequences of one batch");
  option("--kv-cache-tokens", config.kv_cache_tokens, "Per group; 0: two million");
  add_scheduling_flags(app, config);
  add_workload_flags(app, flags->workload);
  option("--grace", flags->limits.grace_seconds, "Virtual seconds after the last arrival");
  option("--max-waiting", flags->limits.max_waiting,
         "Stop once so many requests wait: beyond capacity; 0: never");
  app.add_option("--trace-file", flags->limits.trace_file,
                 "Write a Chrome/Perfetto trace in virtual time (--trace is the workload)");
  option("--slo-ttft-ms", flags->slo_ttft_ms,
         "Search for the highest rate whose TTFT meets this; starts at --request-rate");
  app.add_option("--slo-statistic", flags->slo_statistic, "What has to meet it")
      ->check(CLI::IsMember({"mean", "p50", "p90", "p99"}))
      ->capture_default_str();
  option("--slo-tolerance", flags->slo_tolerance, "Ratio at which the search ends");
  app.add_option("--output-file", flags->output_file, "JSON with all figures");
  return [flags] {
    const Status status = run(*flags);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
