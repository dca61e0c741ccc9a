// asap simulate: a workload through an instance of any size, in virtual time.
#include "asap/sim/simulate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/slo_flags.h"
#include "asap/cli/validators.h"
#include "asap/cli/workload_flags.h"
#include "asap/load/report.h"

namespace asap {

namespace {

struct SimulateFlags {
  EngineConfig config;
  WorkloadFlags workload;
  SimulationLimits limits;
  std::string output_file;
  SloFlags slo;
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

Status run(SimulateFlags flags) {
  catch_interrupts();
  EngineConfig& config = flags.config;
  const bool lockstep = in_lockstep(config);
  if (config.data_parallel_size == 0) config.data_parallel_size = lockstep ? 8 : 4;
  if (config.num_moe_ranks == 0 && !lockstep) config.num_moe_ranks = 16;
  nlohmann::ordered_json out = {{"profile", flags.config.profile},
                                {"scheduler", flags.config.scheduler}};
  if (flags.slo.ttft_ms > 0) {
    const auto at = [&](double rate) -> Result<LoadReport> {
      ASAP_ASSIGN(const SimulationResult result, run_once(flags, rate));
      return make_report(result.load);
    };
    ASAP_TRY(search_rate(flags.slo, flags.workload.spec.rate, at, &out));
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
  return write_figures(flags.output_file, out);
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
                 "Write a Chrome/Perfetto trace in virtual time (--trace is the workload)")
      ->check(writable_file());
  flags->slo.tolerance = 0.02;
  add_slo_flags(app, flags->slo);
  app.add_option("--output-file", flags->output_file, "JSON with all figures")
      ->check(writable_file());
  return [flags] {
    const Status status = run(*flags);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
