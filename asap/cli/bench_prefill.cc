// asap bench prefill: tokens per second of whole prompts, against the machine's multiply-add
// ceiling, and where the time goes. In this process on the agents of one attention rank and one
// expert rank, or through worker processes of any geometry.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "asap/base/prng.h"
#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/rig_flags.h"
#include "asap/model/inspect.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/make_engine.h"
#include "asap/runtime/run_requests.h"
#include "asap/runtime/runner.h"

namespace asap {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostPrefillTokens = 1 << 20;
constexpr int kPresetLayers = 4;  // of a preset, unless told otherwise: a whole one needs a farm

struct PrefillFlags {
  EngineConfig config;
  std::string trace_file;
  bool check_config = false;
  std::string lengths = "512,2048,8192";
  int rounds = 3;
  int prompts = 1;
  bool processes = false;
  std::string output_file;
};

// What a length took, round by round.
struct Prefill {
  std::vector<double> seconds, ceilings, shares;
  std::map<std::string, double> parts;  // seconds, all rounds
};

double prompt_flops(const ModelSpec& spec, int tokens) {
  const TokenFlops flops = flops_per_token(spec, tokens);
  return tokens * flops.per_token() + flops.head_per_prompt;
}

// One way to run `prompts` prompts of some tokens; what it spends where is added to `parts`.
using RunOnce = std::function<Status(int tokens, std::map<std::string, double>* parts)>;

class PrefillBench {
 public:
  PrefillBench(const PrefillFlags& flags, const ModelSpec& spec, FmaCeiling& ceiling, Clock clock)
      : flags_(flags), spec_(spec), ceiling_(ceiling), clock_(clock) {}

  Status measure(std::span<const int> lengths, const RunOnce& run) {
    std::map<std::string, double> warm;  // first touch of everything
    ASAP_TRY(run(lengths.front(), &warm));
    for (int round = 0; round < flags_.rounds; ++round) {
      for (const int tokens : lengths) ASAP_TRY(once(tokens, run));
      if (interrupted()) return fail(Code::unavailable, "interrupted");
    }
    return {};
  }

  Json report() const {
    std::printf("%8s %10s %10s %10s %10s  %s\n", "tokens", "ms", "tokens/s", "GFLOP/s", "of FMA",
                "where, % of the time");
    Json rows = Json::array();
    std::vector<double> ceilings;
    for (const auto& [tokens, p] : lengths_) {
      rows.push_back(row(tokens, p));
      ceilings.insert(ceilings.end(), p.ceilings.begin(), p.ceilings.end());
    }
    const double ceiling = 1e-9 * median(ceilings);
    std::printf("FMA loop between the prompts: %.1f GFLOP/s\n", ceiling);
    return {{"fma_gflops", ceiling}, {"rows", rows}};
  }

 private:
  Status once(int tokens, const RunOnce& run) {
    Prefill& p = lengths_[tokens];
    const double before = ceiling_.flops_per_second();
    const Instant begin = clock_();
    ASAP_TRY(run(tokens, &p.parts));
    p.seconds.push_back((clock_() - begin).to_seconds());
    p.ceilings.push_back((before + ceiling_.flops_per_second()) / 2);
    p.shares.push_back(flags_.prompts * prompt_flops(spec_, tokens) /
                       (p.seconds.back() * p.ceilings.back()));
    return {};
  }

  Json row(int tokens, const Prefill& p) const {
    const Spread spread = spread_of(p.seconds);
    const double rate = flags_.prompts * tokens / spread.median;
    const double gflops = 1e-9 * flags_.prompts * prompt_flops(spec_, tokens) / spread.median;
    const double share = median(p.shares);
    double all = 0;
    for (const double seconds : p.seconds) all += seconds;
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [name, seconds] : p.parts) order.push_back({seconds / all, name});
    std::sort(order.rbegin(), order.rend());
    std::string where;
    Json parts = Json::object();
    for (const auto& [part, name] : order) {
      parts[name] = part;
      if (part >= 0.001) where += fmt::format("{} {:.1f}  ", name, 100 * part);
    }
    std::printf("%8d %10.1f %10.1f %10.1f %10.2f  %s\n", tokens, 1e3 * spread.median, rate, gflops,
                share, where.c_str());
    return {{"tokens", tokens},
            {"median_ms", 1e3 * spread.median},
            {"low_ms", 1e3 * spread.low},
            {"high_ms", 1e3 * spread.high},
            {"tokens_per_second", rate},
            {"gflops", gflops},
            {"share", share},
            {"parts", parts}};
  }

  const PrefillFlags& flags_;
  const ModelSpec& spec_;
  FmaCeiling& ceiling_;
  const Clock clock_;
  std::map<int, Prefill> lengths_;  // by tokens
};

Json header(const PrefillFlags& flags, std::string_view isa, int threads, std::string_view how,
            std::string_view clock) {
  const std::string model = source_of(flags.config).name();
  std::printf("%s, %s, quantization %s, isa %s, %d thread(s), %s, %d prompt(s), median of %d\n",
              model.c_str(), std::string(how).c_str(), flags.config.quantization.c_str(),
              std::string(isa).c_str(), threads, std::string(clock).c_str(), flags.prompts,
              flags.rounds);
  return {{"model", model},
          {"mode", how},
          {"isa", isa},
          {"threads", threads},
          {"clock", clock},
          {"quantization", flags.config.quantization},
          {"rounds", flags.rounds},
          {"prompts", flags.prompts}};
}

// Prompts are sequences of one batch, on one attention and one expert rank that this thread steps.
Result<Json> bench_in_process(PrefillFlags& flags, std::span<const int> lengths,
                              const Platform& platform) {
  flags.config.num_moe_ranks = 1;
  ASAP_TRY(complete_rig_config("", &flags.config));
  LayerRig::Options options;
  options.config = flags.config;
  options.max_tokens = lengths.back() * flags.prompts;
  options.max_context = lengths.back();
  options.max_sequences = flags.prompts;
  options.clock = rig_clock(flags.config);
  options.progress = show_loading();
  ASAP_ASSIGN(const auto rig, LayerRig::open(options, platform));
  FmaCeiling ceiling(rig->team(), rig->ops().isa(), options.clock);
  Json out = header(flags, rig->ops().isa(), rig->plan().threads, "in process",
                    rig_clock_name(flags.config));
  PrefillBench bench(flags, rig->spec(), ceiling, options.clock);
  ASAP_TRY(bench.measure(lengths, [&](int tokens, std::map<std::string, double>* parts) -> Status {
    rig->run(std::vector<RigSequence>(static_cast<size_t>(flags.prompts), {tokens, 0}));
    for (const auto& [name, seconds] : rig->op_seconds()) (*parts)[std::string(name)] += seconds;
    return {};
  }));
  out.update(bench.report());
  return out;
}

Status run_prompts(Engine& engine, Prng& prng, int prompts, int tokens,
                   std::map<std::string, double>* parts) {
  std::vector<EngineRequest> requests(static_cast<size_t>(prompts));
  for (EngineRequest& request : requests) {
    request.id = "prefill";
    for (int i = 0; i < tokens; ++i) {
      request.prompt.push_back(
          static_cast<int32_t>(prng.below(static_cast<uint64_t>(engine.vocab()))));
    }
    request.sampling.max_tokens = 1;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
  }
  ASAP_ASSIGN(const auto answers, run_requests(engine, std::move(requests), &interrupted));
  for (const Answer& answer : answers) {
    const RequestTimes& t = answer.times;
    const std::pair<const char*, int64_t> all[] = {
        {"queueing", t.queueing_ns}, {"attention", t.attention_ns}, {"experts", t.experts_ns},
        {"dispatch", t.dispatch_ns}, {"combine", t.combine_ns},     {"turn", t.turn_ns},
        {"barrier", t.barrier_ns}};
    for (const auto& [name, ns] : all) {
      (*parts)[name] += 1e-9 * static_cast<double>(ns) / prompts;
    }
  }
  return {};
}

// The parts are those of a prompt's time to its first token.
Result<Json> bench_processes(PrefillFlags& flags, std::span<const int> lengths,
                             const Platform& platform) {
  flags.config.max_model_len = std::max(flags.config.max_model_len, lengths.back() + 1);
  ASAP_TRY(check_config(flags.config));
  ASAP_ASSIGN(const ModelSpec spec, load_engine_spec(flags.config));
  ASAP_TRY(resolve_isa(spec, &flags.config));
  EngineOptions options;
  options.trace_file = flags.trace_file;
  options.interrupted = &interrupted;
  flags.config.trace = !flags.trace_file.empty();
  ASAP_ASSIGN(const auto engine, make_engine(flags.config, platform, options));
  Team team(static_cast<int>(available_cpus().size()));
  const auto ops = platform.make_ops("cpu", flags.config.isa, team);
  FmaCeiling ceiling(team, ops->isa(), &monotonic_now);
  const EngineConfig& c = flags.config;
  Json out = header(flags, ops->isa(), team.threads(),
                    fmt::format("processes D{} T{} E{}", c.data_parallel_size,
                                c.tensor_parallel_size, std::max(c.num_moe_ranks, 1)),
                    "wall time");
  PrefillBench bench(flags, spec, ceiling, &monotonic_now);
  Prng prng{1};
  ASAP_TRY(bench.measure(lengths, [&](int tokens, std::map<std::string, double>* parts) {
    return run_prompts(*engine, prng, flags.prompts, tokens, parts);
  }));
  out.update(bench.report());
  return out;
}

Status bench(PrefillFlags flags, const Platform& platform) {
  ASAP_TRY(check_model(flags.config));
  ASAP_ASSIGN(const std::vector<int> lengths,
              parse_counts("-p", flags.lengths, kMostPrefillTokens));
  if (!flags.config.preset.empty()) {
    flags.config.load_format = "dummy";
    if (flags.config.num_hidden_layers == 0) flags.config.num_hidden_layers = kPresetLayers;
  }
  catch_interrupts();
  ASAP_ASSIGN(const Json out, flags.processes ? bench_processes(flags, lengths, platform)
                                              : bench_in_process(flags, lengths, platform));
  return write_figures(flags.output_file, out);
}

}  // namespace

std::function<int()> add_bench_prefill(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<PrefillFlags>();
  add_engine_flags(app, flags->config, flags->trace_file, flags->check_config);
  app.add_option("-p,--lengths", flags->lengths, "Prompt lengths")->capture_default_str();
  app.add_option("-t", flags->config.threads_per_device, "The same as --threads-per-device");
  app.add_option("--prompts", flags->prompts, "Prompts at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag("--processes", flags->processes,
               "Worker processes of the geometry given; else one process, which needs none");
  add_result_flags(app, flags->rounds, flags->output_file);
  return [flags, &platform] {
    if (flags->check_config) return print_config(flags->config);
    const Status status = bench(*flags, platform);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
