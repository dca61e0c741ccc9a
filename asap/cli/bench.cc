// asap bench: its commands, and the first of them, load on any OpenAI-compatible server.
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

struct BenchFlags {
  std::string base_url = "http://127.0.0.1:8000";
  std::string endpoint = "/v1/completions";
  std::string model;
  std::string api_key;
  std::string token_ids = "100:4000";
  std::string output_file;
  WorkloadFlags workload_flags;
  WorkloadSpec workload;  // of them
  LoadOptions options;
  SloFlags slo;
  double goodput_ttft_ms = 0;
};

bool show_progress(const LoadProgress& p) {
  constexpr int kWidth = 30;
  if (interrupted()) return false;
  if (::isatty(STDERR_FILENO) == 0) return true;
  const int filled = p.total > 0 ? p.done * kWidth / p.total : 0;
  std::fprintf(stderr, "\r[%-*s] %d/%d done, %d in flight, %d failed, %.0f s ", kWidth,
               std::string(static_cast<size_t>(filled), '#').c_str(), p.done, p.total,
               p.sent - p.done, p.failed, p.seconds);
  return true;
}

void end_progress() {
  if (::isatty(STDERR_FILENO) != 0) std::fputc('\n', stderr);
}

Result<std::pair<int, int>> id_range(const std::string& text) {
  int low = 0;
  int high = 0;
  char end = 0;
  if (std::sscanf(text.c_str(), "%d:%d%c", &low, &high, &end) != 2 || low < 0 || high <= low) {
    return fail(Code::invalid,
                "--token-ids {}: use LOW:HIGH, ids from LOW up to, not including, "
                "HIGH",
                text);
  }
  return std::pair(low, high);
}

Result<LoadReport> run_once(const BenchFlags& flags, const Target& target, double rate) {
  WorkloadSpec spec = flags.workload;
  spec.rate = rate;
  ASAP_ASSIGN(const std::vector<Arrival> workload, make_workload(spec));
  ASAP_ASSIGN(const LoadResult result, run_load(target, workload, flags.options, show_progress));
  end_progress();
  return make_report(result, flags.goodput_ttft_ms);
}

Status bench(BenchFlags flags) {
  ASAP_ASSIGN(flags.workload, workload_spec(flags.workload_flags));
  ASAP_ASSIGN(Target target, parse_base_url(flags.base_url));
  target.path = target.path.substr(0, target.path.rfind("/v1/")) + flags.endpoint;
  target.api_key = flags.api_key;
  target.model = flags.model;
  if (target.model.empty()) {
    ASAP_ASSIGN(target.model, first_model(target));
  }
  ASAP_ASSIGN(const auto ids, id_range(flags.token_ids));
  flags.options.id_low = ids.first;
  flags.options.id_high = ids.second;
  flags.options.length_divisor = flags.workload.length_divisor;
  flags.options.seed = flags.workload.seed;
  catch_interrupts();
  nlohmann::ordered_json out = {
      {"base_url", flags.base_url},
      {"endpoint", flags.endpoint},
      {"trace", flags.workload.trace_file},
      {"lengths", flags.workload.trace_file.empty() ? flags.workload_flags.lengths : ""},
      {"length_divisor", flags.workload.length_divisor},
      {"row_offset", flags.workload.row_offset},
      {"seed", flags.workload.seed}};
  if (flags.slo.ttft_ms > 0) {
    const auto run = [&](double rate) -> Result<LoadReport> {
      auto report = run_once(flags, target, rate);
      if (interrupted()) return fail(Code::unavailable, "interrupted");
      return report;
    };
    ASAP_TRY(search_rate(flags.slo, flags.workload.rate, run, &out));
  } else {
    ASAP_ASSIGN(const LoadReport report, run_once(flags, target, flags.workload.rate));
    std::printf("%s", text_of(report).c_str());
    out["request_rate"] = flags.workload.rate;
    out.update(json_of(report));
  }
  ASAP_TRY(write_figures(flags.output_file, out));
  if (interrupted()) return fail(Code::unavailable, "interrupted: the figures are of what ran");
  if (flags.slo.ttft_ms <= 0 && out["requests"] != 0 && out["finished"] == 0) {
    return fail(Code::unavailable, "no request was answered; see the errors above");
  }
  return {};
}

std::function<int()> add_bench_serve(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  app.add_option("--base-url", flags->base_url, "Server, http://HOST:PORT");
  app.add_option("--endpoint", flags->endpoint, "Path of the API")
      ->check(CLI::IsMember({"/v1/completions", "/v1/chat/completions"}));
  app.add_option("--model", flags->model,
                 "Name of the model in requests; default: the first that the server lists");
  app.add_option("--api-key", flags->api_key, "Bearer token");
  add_workload_flags(app, flags->workload_flags);
  app.add_option("--token-ids", flags->token_ids, "LOW:HIGH, range of the ids of prompts");
  app.add_flag("--text-prompts", flags->options.text_prompts,
               "Words instead of token ids, for servers that take no ids");
  app.add_option("--grace", flags->options.grace_seconds,
                 "Seconds to wait for answers after the last arrival")
      ->check(between(0.0, 1e5));
  app.add_option("--max-connections", flags->options.max_connections, "Requests in flight")
      ->check(CLI::Range(1, 60000));
  add_slo_flags(app, flags->slo);
  app.add_option("--goodput-ttft-ms", flags->goodput_ttft_ms,
                 "Also report the rate of requests whose first token came within that")
      ->check(between(0.0, 1e7));
  app.add_option("--output-file", flags->output_file, "JSON with all figures")
      ->check(writable_file());
  return [flags] {
    const Status status = bench(*flags);
    return status ? 0 : report(status.error());
  };
}

}  // namespace

std::function<int()> add_bench(CLI::App& app, const Platform& platform) {
  app.require_subcommand(1);
  struct Bench {
    CLI::App* app;
    std::function<int()> action;
  };
  std::vector<Bench> all;
  const auto add = [&](const char* name, const char* help, const auto& make) {
    CLI::App* command = app.add_subcommand(name, help);
    all.push_back({command, make(*command)});
  };
  add("serve", "Open-loop load on an OpenAI-compatible server", add_bench_serve);
  add("kernels", "Attention and experts of one layer by tokens, against the FMA ceiling",
      [&](CLI::App& command) { return add_bench_kernels(command, platform); });
  add("prefill", "Whole prompts by length, against the FMA ceiling, and where the time goes",
      [&](CLI::App& command) { return add_bench_prefill(command, platform); });
  add("load", "How fast a checkpoint becomes packed weights, and how much memory that takes",
      [&](CLI::App& command) { return add_bench_load(command, platform); });
  add("comm", "Latency of dispatch and combine by tokens, one-sided against blocking messages",
      [&](CLI::App& command) { return add_bench_comm(command, platform); });
  return [all] {
    for (const Bench& bench : all) {
      if (bench.app->parsed()) return bench.action();
    }
    return 0;
  };
}

}  // namespace asap
