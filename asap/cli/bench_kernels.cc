// asap bench kernels: what attention and experts of one layer cost by tokens and by the make-up of
// a batch, on the engine's own agents, against the machine's multiply-add ceiling.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "asap/cli/commands.h"
#include "asap/cli/gemm_table.h"
#include "asap/cli/options.h"
#include "asap/cli/rig_flags.h"
#include "asap/model/inspect.h"
#include "asap/policy/fit.h"

namespace asap {

namespace {

constexpr const char* kKernelsPreset = "qwen3-30b-a3b";
constexpr int kMostKernelTokens = 1 << 16;
constexpr int kSmallVocabulary = 1024;  // the head is not measured: it need not be made
constexpr int kQuickKernelTokens = 256;

struct KernelFlags {
  EngineConfig config;
  std::string lengths = "128,256,512,1024,2048,4096";
  std::string tokens = "1,4,16,32,64,128,256,512,1024,2048,4096";
  int batch_tokens = 2048;
  int rounds = 3;
  bool quick = false;
  std::string output_file;
};

// A batch and what its rounds took.
struct Subject {
  std::vector<RigSequence> sequences;
  std::vector<double> attention, attention_share;  // seconds; of the ceiling
  std::vector<double> experts, experts_share;
  std::vector<double> ceilings;  // operations per second
  int expert_rows = 0;
};

double gigaflops(double flops, double seconds) {
  return seconds > 0 ? 1e-9 * flops / seconds : 0;
}

// Operations of the attention rank for one layer, on average over the layers: projections,
// attention, router and shared expert.
double attention_flops(const ModelSpec& spec, std::span<const RigSequence> sequences) {
  const double routed = 6.0 * spec.top_k * spec.hidden * spec.moe_intermediate;
  double sum = 0;
  for (const RigSequence& s : sequences) {
    const TokenFlops flops = flops_per_token(spec, s.tokens);
    const double others = flops.moe / spec.moe_layers() - routed;
    sum += s.tokens * (flops.attention / spec.layers + others);
  }
  return sum;
}

double expert_flops(const ModelSpec& spec, int rows) {
  return 6.0 * spec.hidden * spec.moe_intermediate * rows;
}

void run_once(LayerRig& rig, FmaCeiling& ceiling, Subject* subject) {
  const double before = ceiling.flops_per_second();
  const LayerTimes times = rig.run(subject->sequences);
  const double rate = (before + ceiling.flops_per_second()) / 2;
  subject->ceilings.push_back(rate);
  subject->attention.push_back(times.attention);
  subject->attention_share.push_back(attention_flops(rig.spec(), subject->sequences) /
                                     (times.attention * rate));
  subject->experts.push_back(times.experts);
  subject->experts_share.push_back(expert_flops(rig.spec(), times.expert_rows) /
                                   (std::max(times.experts, 1e-9) * rate));
  subject->expert_rows = times.expert_rows;
}

using Json = nlohmann::ordered_json;

Json spread_json(const std::vector<double>& seconds) {
  const Spread spread = spread_of(seconds);
  return {{"median_ms", 1e3 * spread.median},
          {"low_ms", 1e3 * spread.low},
          {"high_ms", 1e3 * spread.high}};
}

class KernelBench {
 public:
  KernelBench(const KernelFlags& flags, std::vector<int> lengths, std::vector<int> tokens)
      : flags_(flags), lengths_(std::move(lengths)), tokens_(std::move(tokens)) {
    for (const int n : lengths_) single_[n].sequences = {{n, 0}};
    for (const int n : tokens_) single_[n].sequences = {{n, 0}};
    single_[flags_.batch_tokens].sequences = {{flags_.batch_tokens, 0}};
    for (int parts = 2; parts <= 64 && flags_.batch_tokens / parts > 0; parts *= 2) {
      std::vector<RigSequence> equal(static_cast<size_t>(parts), {flags_.batch_tokens / parts, 0});
      split_.push_back({std::move(equal), {}, {}, {}, {}, {}, 0});
    }
  }

  int max_tokens() const { return single_.rbegin()->first; }

  Status measure(LayerRig& rig, FmaCeiling& ceiling) {
    const size_t all = static_cast<size_t>(flags_.rounds) * (single_.size() + split_.size());
    size_t done = 0;
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    const auto turn = [&](Subject* subject) {
      run_once(rig, ceiling, subject);
      ++done;
      if (terminal) std::fprintf(stderr, "\r%zu/%zu batches ", done, all);
    };
    rig.run(single_.begin()->second.sequences);  // first touch of everything
    for (int round = 0; round < flags_.rounds; ++round) {
      for (auto& [tokens, subject] : single_) turn(&subject);
      for (Subject& subject : split_) turn(&subject);
      if (interrupted()) return fail(Code::unavailable, "interrupted");
    }
    if (terminal) std::fputc('\n', stderr);
    return {};
  }

  // Prints the three tables; the same as JSON.
  Json report(const ModelSpec& spec) {
    Json out;
    print_attention(spec, &out);
    print_experts(spec, &out);
    print_composition(&out);
    std::vector<double> ceilings;
    for (const auto& [tokens, s] : single_) {
      ceilings.insert(ceilings.end(), s.ceilings.begin(), s.ceilings.end());
    }
    const double ceiling = 1e-9 * median(ceilings);
    std::printf("\nFMA loop between the batches: %.1f GFLOP/s\n", ceiling);
    out["fma_gflops"] = ceiling;
    return out;
  }

 private:
  void print_attention(const ModelSpec& spec, Json* out) {
    std::printf("\nattention of one layer, one prompt\n%10s %12s %12s %10s %10s\n", "tokens", "ms",
                "us/token", "GFLOP/s", "of FMA");
    for (const int n : lengths_) {
      const Subject& s = single_[n];
      const double seconds = median(s.attention);
      const double rate = gigaflops(attention_flops(spec, s.sequences), seconds);
      const double share = median(s.attention_share);
      std::printf("%10d %12.3f %12.2f %10.1f %10.2f\n", n, 1e3 * seconds, 1e6 * seconds / n, rate,
                  share);
      Json row = {{"tokens", n}, {"gflops", rate}, {"share", share}};
      row.update(spread_json(s.attention));
      (*out)["attention"].push_back(row);
    }
  }

  void print_experts(const ModelSpec& spec, Json* out) {
    std::printf("\nexperts of one layer, 1 of %d expert ranks\n%10s %12s %12s %10s %10s\n",
                flags_.config.num_moe_ranks, "tokens", "rows", "ms", "GFLOP/s", "of FMA");
    std::vector<Point> points;
    Json rows = Json::array();
    for (const int n : tokens_) {
      const Subject& s = single_[n];
      const double seconds = median(s.experts);
      const double rate = gigaflops(expert_flops(spec, s.expert_rows), seconds);
      const double share = median(s.experts_share);
      std::printf("%10d %12d %12.3f %10.1f %10.2f\n", n, s.expert_rows, 1e3 * seconds, rate, share);
      Json row = {{"tokens", n}, {"rows", s.expert_rows}, {"gflops", rate}, {"share", share}};
      row.update(spread_json(s.experts));
      rows.push_back(row);
      // Fewer rows than experts: not all weights are read.
      const int local =
          (spec.experts + flags_.config.num_moe_ranks - 1) / flags_.config.num_moe_ranks;
      if (seconds > 0 && s.expert_rows >= local) {
        points.push_back({static_cast<double>(n), 1e3 * seconds});
      }
    }
    (*out)["experts"] = {{"rows", rows}};
    if (points.size() < 3) return;
    const KneeFit fit = fit_knee(points, false);
    std::printf(
        "fit max(%.3f ms, %.3f ms per 1024 tokens): knee at %.0f tokens; error %.0f %% mean, "
        "%.0f %% max\n",
        fit.slope * fit.knee, 1024 * fit.slope, fit.knee, 100 * fit.mean_error,
        100 * fit.max_error);
    (*out)["experts"].update({{"plateau_ms", fit.slope * fit.knee},
                              {"ms_per_1024_tokens", 1024 * fit.slope},
                              {"knee_tokens", fit.knee},
                              {"mean_error", fit.mean_error},
                              {"max_error", fit.max_error}});
  }

  void print_composition(Json* out) {
    std::printf("\nattention of batches of %d tokens, ratio to the fastest\n%14s %12s %10s\n",
                flags_.batch_tokens, "batch", "ms", "ratio");
    double least = median(single_[flags_.batch_tokens].attention);
    for (const Subject& s : split_) least = std::min(least, median(s.attention));
    const auto print = [&](const Subject& s) {
      const double seconds = median(s.attention);
      const std::string name = fmt::format("{} x {}", s.sequences.size(), s.sequences[0].tokens);
      std::printf("%14s %12.3f %10.2f\n", name.c_str(), 1e3 * seconds, seconds / least);
      Json row = {{"sequences", s.sequences.size()},
                  {"tokens_each", s.sequences[0].tokens},
                  {"ratio", seconds / least}};
      row.update(spread_json(s.attention));
      (*out)["composition"].push_back(row);
    };
    print(single_[flags_.batch_tokens]);
    for (const Subject& s : split_) print(s);
  }

  const KernelFlags& flags_;
  const std::vector<int> lengths_, tokens_;
  std::map<int, Subject> single_;  // by tokens
  std::vector<Subject> split_;     // batch_tokens in equal parts
};

Status make_small(KernelFlags* flags) {
  if (!flags->quick) return {};
  flags->lengths = "16,64,256";
  flags->tokens = "1,16,32,64,128,256";
  flags->batch_tokens = kQuickKernelTokens;
  return {};
}

Status use_small_vocabulary(EngineConfig* config) {
  if (config->load_format != "dummy") return {};
  Json overrides = Json::object();
  if (!config->hf_overrides.empty()) {
    overrides = Json::parse(config->hf_overrides, nullptr, false);
    if (!overrides.is_object()) {
      return fail(Code::invalid, "--hf-overrides {}: not a JSON object", config->hf_overrides);
    }
  }
  if (!overrides.contains("vocab_size")) overrides["vocab_size"] = kSmallVocabulary;
  config->hf_overrides = overrides.dump();
  return {};
}

Status bench(KernelFlags flags, const Platform& platform) {
  ASAP_TRY(make_small(&flags));
  ASAP_ASSIGN(std::vector<int> lengths,
              parse_counts("--lengths", flags.lengths, kMostKernelTokens));
  ASAP_ASSIGN(std::vector<int> tokens, parse_counts("--tokens", flags.tokens, kMostKernelTokens));
  ASAP_TRY(use_small_vocabulary(&flags.config));
  ASAP_TRY(complete_rig_config(kKernelsPreset, &flags.config));
  catch_interrupts();
  KernelBench bench(flags, std::move(lengths), std::move(tokens));
  LayerRig::Options options;
  options.config = flags.config;
  options.max_tokens = options.max_context = bench.max_tokens();
  options.max_sequences = 64;
  options.clock = rig_clock(flags.config);
  options.progress = show_loading();
  ASAP_ASSIGN(const auto rig, LayerRig::open(options, platform));
  FmaCeiling ceiling(rig->team(), rig->ops().isa(), options.clock);
  const std::string model = source_of(flags.config).name();
  const std::string title = fmt::format(
      "{}, one layer, {} activations, quantization {}, isa {}, {} thread(s), {}, median of {}",
      model, dtype_name(rig->plan().geometry.activation), flags.config.quantization,
      rig->ops().isa(), rig->plan().threads, rig_clock_name(flags.config), flags.rounds);
  std::printf("%s\n", title.c_str());
  ASAP_TRY(bench.measure(*rig, ceiling));
  Json out = {{"model", model},
              {"activation", dtype_name(rig->plan().geometry.activation)},
              {"quantization", flags.config.quantization},
              {"isa", rig->ops().isa()},
              {"threads", rig->plan().threads},
              {"clock", rig_clock_name(flags.config)},
              {"num_moe_ranks", flags.config.num_moe_ranks},
              {"rounds", flags.rounds}};
  out.update(bench.report(rig->spec()));
  if (flags.config.ops != "ref") {
    const bool int8 = flags.config.quantization == "int8";
    const auto ops =
        platform.make_ops(flags.config.ops, std::string(rig->ops().isa()), rig->team());
    out["gemm"] = gemm_table(*ops, ceiling, {flags.rounds, flags.quick, int8, options.clock});
  }
  return write_figures(flags.output_file, out);
}

}  // namespace

std::function<int()> add_bench_kernels(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<KernelFlags>();
  flags->config.num_moe_ranks = 4;
  add_rig_flags(app, flags->config);
  app.add_option("--lengths", flags->lengths, "Prompt lengths of the attention table")
      ->capture_default_str();
  app.add_option("--tokens", flags->tokens, "Tokens of a batch in the table of experts")
      ->capture_default_str();
  app.add_option("--batch-tokens", flags->batch_tokens,
                 "Tokens of the batches that are cut into 1, 2, ... 64 equal prompts")
      ->check(CLI::Range(1, kMostKernelTokens))
      ->capture_default_str();
  app.add_flag("--quick", flags->quick,
               "At most 256 tokens; overrides --lengths, --tokens, --batch-tokens");
  add_result_flags(app, flags->rounds, flags->output_file);
  return [flags, &platform] {
    const Status status = bench(*flags, platform);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
