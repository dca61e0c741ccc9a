// asap plan: which instance of so many devices serves a demand best (docs/planning.md).
#include "asap/sim/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/validate.h"
#include "asap/cli/validators.h"
#include "asap/cli/workload_flags.h"
#include "asap/runtime/runner.h"

namespace asap {

namespace {

using Json = nlohmann::ordered_json;

struct PlanFlags {
  PlanRequest request;
  WorkloadFlags workload;
  std::string output_file;
  bool validate = false;
  EngineConfig real;  // what --validate runs
};

// A bar on a terminal; elsewhere a line for each quarter.
void show_progress(const std::string& name, int done, int total) {
  constexpr int kWidth = 30, kLines = 4;
  if (::isatty(STDERR_FILENO) == 0) {
    static std::string last;
    const int part = total > 0 ? done * kLines / total : 0;
    const std::string line = fmt::format("{}: {} of {}", name, part * total / kLines, total);
    if (line != last) std::fprintf(stderr, "%s\n", line.c_str());
    last = line;
    return;
  }
  const int filled = total > 0 ? done * kWidth / total : 0;
  std::fprintf(stderr, "\r\033[K[%-*s] %s: %d/%d ", kWidth,
               std::string(static_cast<size_t>(filled), '#').c_str(), name.c_str(), done, total);
}

void end_progress() {
  if (::isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
}

double gb(uint64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

std::string row_of(const std::string& place, const PlannedInstance& p) {
  const Candidate& c = p.candidate;
  const Quantiles& t = p.report.ttft;
  const std::string memory =
      in_lockstep(c.config)
          ? fmt::format("{:.1f}", gb(c.memory()))
          : fmt::format("{:.1f}/{:.1f}", gb(c.attention.total()), gb(c.expert.total()));
  return fmt::format(
      "{:>5}  {:<20}{:>9.0f}{:>8.0f}{:>8.0f}{:>8.0f} {:<6}{:>8.2f}{:>7.0f}{:>7.0f}{:>6.0f}  {:<11}"
      "  {}\n",
      place, c.name(), t.mean, t.p50, t.p90, t.p99,
      p.stopped ? "grows"
      : p.meets ? "meets"
                : "misses",
      p.slo_rate, 100 * p.use.attention, 100 * p.use.experts, 100 * p.use.send, memory, p.limit);
}

std::string verdict(const PlanRequest& request, const PlanResult& result) {
  const PlannedInstance& first = result.best.front();
  const std::string slo =
      fmt::format("{} TTFT <= {:.0f} ms at {:g} requests/s", request.slo_statistic,
                  request.slo_ttft_ms, request.workload.rate);
  if (first.meets) return fmt::format("best for {}: {}\n", slo, first.candidate.name());
  if (first.slo_rate > 0) {
    return fmt::format(
        "no plan of {} devices meets {}; nearest: {}, which meets it up to {:.2f} requests/s\n",
        request.space.devices, slo, first.candidate.name(), first.slo_rate);
  }
  return fmt::format(
      "no plan of {} devices meets {}, nor at any lower rate; nearest: {} with {:.0f} ms\n",
      request.space.devices, slo, first.candidate.name(),
      statistic_of(first.report.ttft, request.slo_statistic));
}

void print(const PlanRequest& request, const PlanResult& result) {
  std::printf("%s", fmt::format("{} candidates on {} devices: {} need too much memory, {} asked "
                                "too much of a device; {} simulations, {:.0f} virtual seconds\n\n",
                                result.candidates, request.space.devices, result.too_large,
                                result.overloaded, result.simulations, result.virtual_seconds)
                        .c_str());
  std::printf("%s", fmt::format("{:>5}  {:<20}{:>9}{:>8}{:>8}{:>8} {:<6}{:>8}{:>7}{:>7}{:>6}  "
                                "{:<11}  {}\n",
                                "", "D x T + E", "TTFT mean", "p50", "p90", "p99", "SLO", "up to/s",
                                "att %", "exp %", "send", "GB att/exp", "limit")
                        .c_str());
  int place = 0;
  for (const PlannedInstance& p : result.best) {
    std::fputs(row_of(fmt::format("{}", ++place), p).c_str(), stdout);
  }
  for (const PlannedInstance& p : result.reference) {
    std::fputs(row_of("paper", p).c_str(), stdout);
  }
  std::printf("\n%s", verdict(request, result).c_str());
}

Json json_of(const PlannedInstance& p) {
  const Candidate& c = p.candidate;
  const auto memory = [](const DeviceMemory& m) {
    return Json{{"weights", m.weights}, {"kv_cache", m.cache}, {"windows", m.windows}};
  };
  Json out = {
      {"name", c.name()},
      {"scheduler", c.config.scheduler},
      {"data_parallel_size", c.config.data_parallel_size},
      {"tensor_parallel_size", c.config.tensor_parallel_size},
      {"num_moe_ranks", c.config.num_moe_ranks},
      {"stages", c.config.stages},
      {"max_num_batched_tokens", c.config.max_num_batched_tokens},
      {"kv_cache_tokens", c.config.kv_cache_tokens},
      {"meets_slo", p.meets},
      {"stopped", p.stopped},
      {"slo_request_rate", p.slo_rate},
      {"utilisation",
       {{"attention", p.use.attention}, {"experts", p.use.experts}, {"send", p.use.send}}},
      {"analytic_load",
       {{"attention", c.load.attention}, {"experts", c.load.experts}, {"send", c.load.send}}},
      {"memory_bytes",
       {{"attention_device", memory(c.attention)}, {"expert_device", memory(c.expert)}}},
      {"limit", p.limit}};
  out["at_demand"] = asap::json_of(p.report);
  return out;
}

Json json_of(const PlanRequest& request, const PlanResult& result) {
  Json out = {{"profile", request.shared.profile},        {"num_devices", request.space.devices},
              {"request_rate", request.workload.rate},    {"slo_ttft_ms", request.slo_ttft_ms},
              {"slo_statistic", request.slo_statistic},   {"meets_slo", result.best.front().meets},
              {"candidates", result.candidates},          {"too_large", result.too_large},
              {"overloaded", result.overloaded},          {"simulations", result.simulations},
              {"virtual_seconds", result.virtual_seconds}};
  for (const PlannedInstance& p : result.best) out["best"].push_back(json_of(p));
  for (const PlannedInstance& p : result.reference) out["paper_geometry"].push_back(json_of(p));
  return out;
}

// The best plan for real; its row in the output.
Result<Json> validate(const PlanFlags& flags, const PlannedInstance& best) {
  EngineConfig real = flags.real;
  if (real.model.empty()) {
    real.preset = best.candidate.config.preset;
    real.hf_overrides = best.candidate.config.hf_overrides;
  }
  ASAP_ASSIGN(const std::vector<Arrival> workload, make_workload(flags.request.workload));
  std::printf("\nvalidating %s with %s, %.0f s of load\n", best.candidate.name().c_str(),
              source_of(real).name().c_str(), flags.request.workload.seconds);
  std::fflush(stdout);
  const auto measured =
      measure_for_real(best.candidate.config, real, workload, [](const LoadProgress& p) {
        show_progress("requests", p.done, p.total);
        return !interrupted();
      });
  end_progress();
  if (interrupted()) return fail(Code::unavailable, "interrupted");
  if (!measured) return tl::unexpected<Error>(measured.error());
  Json out = asap::json_of(*measured);
  std::printf("%8s %12s %12s %9s\n", "TTFT ms", "predicted", "measured", "error");
  for (const char* name : {"mean", "p50", "p90", "p99"}) {
    const double predicted = statistic_of(best.report.ttft, name);
    const double real_ms = statistic_of(measured->ttft, name);
    const double error = 100 * (predicted - real_ms) / std::max(1e-6, real_ms);
    std::printf("%8s %12.1f %12.1f %+8.1f%%\n", name, predicted, real_ms, error);
    out["error_percent"][name] = error;
  }
  if (measured->finished < measured->requests) {
    std::printf("%d of %d requests did not finish\n", measured->requests - measured->finished,
                measured->requests);
  }
  return out;
}

Status check(const PlanFlags& flags) {
  const PlanRequest& r = flags.request;
  if (r.space.devices < 2 || r.space.devices > 256) {
    return fail(Code::invalid, "--num-devices is {}; it must be between 2 and 256",
                r.space.devices);
  }
  if (r.slo_ttft_ms <= 0) {
    return fail(Code::invalid, "--slo-ttft-ms is {}; a plan needs a goal above 0", r.slo_ttft_ms);
  }
  if (flags.workload.spec.native_rate) {
    return fail(Code::invalid,
                "--native-rate: a plan varies the rate; give the demand as --request-rate");
  }
  for (const std::string& engine : r.space.engines) {
    if (engine == "asap" || engine == "paper" || engine == "default" || engine == "chunked") {
      continue;
    }
    return fail(Code::invalid, "--engines {}: it must be of asap, paper, default, chunked", engine);
  }
  for (const int stages : r.space.stages) {
    if (stages < 1 || stages > 8) {
      return fail(Code::invalid, "--stages {}: it must be between 1 and 8", stages);
    }
  }
  if (!flags.real.model.empty() && flags.real.num_hidden_layers > 0) {
    return fail(Code::invalid,
                "--validate-layers reduces a preset with dummy weights; --validate {} is a model",
                flags.real.model);
  }
  return {};
}

Status run(PlanFlags flags) {
  catch_interrupts();
  PlanRequest& request = flags.request;
  ASAP_TRY(check(flags));
  ASAP_ASSIGN(request.workload, workload_spec(flags.workload));
  if (request.jobs == 0) request.jobs = static_cast<int>(available_cpus().size());
  auto planned = plan(request, [](const PlanProgress& p) {
    show_progress(p.round, p.done, p.total);
    return !interrupted();
  });
  end_progress();
  if (!planned) return tl::unexpected<Error>(planned.error());
  print(request, *planned);
  Json out = json_of(request, *planned);
  if (flags.validate) {
    ASAP_ASSIGN(out["validation"], validate(flags, planned->best.front()));
  }
  return write_figures(flags.output_file, out);
}

void add_search_flags(CLI::App& app, PlanRequest& request) {
  const auto option = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  option("--num-devices", request.space.devices, "Devices to give out: D x T + E");
  option("--slo-ttft-ms", request.slo_ttft_ms, "The goal");
  option("--slo-statistic", request.slo_statistic, "What has to meet it")
      ->check(CLI::IsMember({"mean", "p50", "p90", "p99"}));
  option("--slo-tolerance", request.slo_tolerance, "Ratio at which the search for the rate ends")
      ->check(between(1e-3, 1.0));
  option("--engines", request.space.engines, "Schedulers to try")->delimiter(',');
  option("--stages", request.space.stages, "R to try with the asap engine")->delimiter(',');
  option("--device-memory-gb", request.device_memory_gb,
         "Memory of a device, 10^9 bytes; plans that need more are left out; 0: no limit")
      ->check(between(0.0, 1e6));
  option("--keep", request.keep, "Plans to print")->check(CLI::Range(1, 100));
  option("--jobs", request.jobs, "Simulations at the same time; 0: one per core")
      ->check(CLI::Range(0, 1024));
}

}  // namespace

std::function<int()> add_plan(CLI::App& app) {
  auto flags = std::make_shared<PlanFlags>();
  PlanRequest& request = flags->request;
  EngineConfig& config = request.shared;
  config.profile = "cm384-deepseek-v3.2";
  config.max_num_seqs = 256;
  request.jobs = 0;
  flags->workload.spec.seconds = 120;
  const auto option = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  option("--profile", config.profile, "Cost profile: a built-in's name or a file");
  option("--preset", config.preset, "Model; default: the profile's");
  option("--hf-overrides", config.hf_overrides, "With --preset: JSON merged into its config.json");
  option("--num-hidden-layers", config.num_hidden_layers, "Keep only so many layers; 0: all");
  option("--quantization,-q", config.quantization,
         "For memory: weights as stored (none), int8 or fp8");
  option("--max-num-batched-tokens", config.max_num_batched_tokens,
         "S: tokens of one batch; 0: as the scheduler has it");
  option("--max-num-seqs", config.max_num_seqs, "Sequences of one batch");
  option("--kv-cache-tokens", config.kv_cache_tokens, "Per group; 0: as asap serve sizes it");
  add_search_flags(app, request);
  add_workload_flags(app, flags->workload);
  app.add_option("--validate", flags->real.model,
                 "Run the best plan for real on this machine and print the error; MODEL, or "
                 "nothing for the preset with dummy weights")
      ->expected(0, 1);
  app.add_option("--validate-layers", flags->real.num_hidden_layers,
                 "--validate without MODEL: keep only so many layers");
  app.add_option("--output-file", flags->output_file, "JSON with all figures")
      ->check(writable_file());
  return [flags, &app] {
    flags->validate = app.count("--validate") > 0;
    flags->real.quantization = flags->request.shared.quantization;
    const Status status = run(*flags);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
