// asap inspect: what a checkpoint is, what it weighs and costs, and what ASAP cannot do with it.
#include "asap/model/inspect.h"

#include <cstdio>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/model/presets.h"
#include "asap/model/safetensors.h"
#include "asap/model/switches.h"
#include "asap/model/weight_values.h"
#include "asap/runtime/runner.h"

namespace asap {

namespace {

struct InspectFlags {
  EngineConfig config;
  std::string trace_file;
  bool check_config = false;
  bool list_presets = false;
};

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
}

std::string attention_text(const ModelSpec& s) {
  if (s.attention == AttentionKind::gqa) {
    return fmt::format("grouped-query, {} heads, {} key-value heads, head width {}{}", s.heads,
                       s.kv_heads, s.head_dim, s.qk_norm != QkNorm::none ? ", q and k norms" : "");
  }
  std::string out = fmt::format("latent (MLA), {} heads, latent {}, nope {}, rope {}, v {}",
                                s.heads, s.kv_lora, s.qk_nope, s.qk_rope, s.v_head);
  if (s.index_topk > 0) {
    out += fmt::format("; sparse (DSA): {} index heads of {}, {} keys per token", s.index_heads,
                       s.index_dim, s.index_topk);
  }
  return out;
}

std::string router_text(const ModelSpec& s) {
  return fmt::format("{} of {} experts{}, {}{}{}, scale {}", s.top_k, s.experts,
                     s.router.groups > 1
                         ? fmt::format(" in {} of {} groups", s.router.top_groups, s.router.groups)
                         : "",
                     s.router.score == RouterScore::sigmoid ? "sigmoid" : "softmax",
                     s.router.has_bias ? " with selection bias" : "",
                     s.router.normalize ? ", normalised" : "", s.router.scale);
}

void print_sizes(const ModelSpec& s) {
  const ParameterCount p = count_parameters(s);
  const auto each = [&](DType type) { return bytes_text(expert_bytes(s, type)); };
  std::printf("  parameters  %.1f M, %.1f M active per token; %.2f M each expert\n",
              static_cast<double>(p.total) / 1e6, static_cast<double>(p.active) / 1e6,
              static_cast<double>(p.per_expert) / 1e6);
  std::printf("  an expert   bfloat16 %s, fp8 %s, int8 %s, mxfp4 %s\n", each(DType::bf16).c_str(),
              each(DType::f8_e4m3).c_str(), each(DType::i8).c_str(), each(DType::mxfp4).c_str());
  const CacheBytes cache = token_cache_bytes(s, DType::bf16);
  std::printf(
      "  KV cache    %s per token in bfloat16%s, %s in fp8\n", bytes_text(cache.total()).c_str(),
      cache.index > 0 ? fmt::format(" ({} of them index keys)", bytes_text(cache.index)).c_str()
                      : "",
      bytes_text(token_cache_bytes(s, DType::f8_e4m3).total()).c_str());
}

// Per token of prompts of several lengths, up to the model's context.
void print_costs(const ModelSpec& s) {
  std::printf("  GFLOP per prompt token   attention    experts      dense\n");
  for (const int64_t tokens : {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17}) {
    if (tokens > s.max_positions && tokens > 1 << 10) break;
    const TokenFlops f = flops_per_token(s, tokens);
    std::printf("    of %8lld tokens %12.4g %10.4g %10.4g\n", static_cast<long long>(tokens),
                f.attention / 1e9, f.moe / 1e9, f.dense / 1e9);
  }
}

void print_switches(const ModelSpec& s) {
  std::printf("  where implementations differ (docs/models.md)\n");
  for (const Switch& choice : switches_of(s)) {
    const std::string key = choice.key.empty() ? "" : "  [" + choice.key + "]";
    std::printf("    %s: %s%s\n", choice.topic.c_str(), choice.choice.c_str(), key.c_str());
  }
}

void print_model(const std::string& name, const ModelSpec& s) {
  std::printf("%s: %s (%s)\n", name.c_str(), s.model_type.c_str(), s.architecture.c_str());
  std::printf("  layers      %d (%d with experts), hidden %d, vocabulary %d, context %d\n",
              s.layers, s.moe_layers(), s.hidden, s.vocab, s.max_positions);
  std::printf("  attention   %s\n", attention_text(s).c_str());
  std::printf("  router      %s\n", router_text(s).c_str());
  std::printf("  experts     width %d, shared %d, dense layers %d\n", s.moe_intermediate,
              s.shared_intermediate, s.dense_intermediate);
  print_sizes(s);
  print_costs(s);
  print_switches(s);
}

void print_devices(const EngineConfig& config, const ModelSpec& s) {
  const DType type = s.stored_dtype == DType::bf16 ? DType::bf16 : DType::f32;
  const int t = config.tensor_parallel_size;
  const int e = std::max(1, config.num_moe_ranks);
  std::printf("  devices at D=%d T=%d E=%d: attention rank %s of weights, expert rank %s\n",
              config.data_parallel_size, t, e,
              bytes_text(attention_rank_bytes(s, t, type).total()).c_str(),
              bytes_text(expert_rank_bytes(s, e, type)).c_str());
}

// Weights are optional here: a config.json alone can be inspected.
Status inspect(const InspectFlags& flags) {
  ASAP_TRY(check_model(flags.config));
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(flags.config)));
  ASAP_TRY(make_plan(flags.config, spec, static_cast<int>(available_cpus().size())));
  print_model(source_of(flags.config).name(), spec);
  print_devices(flags.config, spec);
  if (!flags.config.preset.empty() || !Checkpoint::exists(flags.config.model)) {
    std::printf("  weights     none here\n");
    return {};
  }
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(flags.config), spec));
  const Checkpoint& checkpoint = weights.checkpoint;
  ASAP_TRY(check_values(checkpoint, weights.views));
  std::printf("  weights     %zu tensors in %zu files, %s\n", checkpoint.tensors().size(),
              checkpoint.files().size(), bytes_text(checkpoint.total_bytes()).c_str());
  std::printf("  supported   yes: every tensor has its place\n");
  return {};
}

int list_presets() {
  for (const Preset& preset : presets()) {
    std::printf("%s\n", std::string(preset.name).c_str());
  }
  return 0;
}

int run(const InspectFlags& flags) {
  if (flags.list_presets) return list_presets();
  if (flags.check_config) return print_config(flags.config);
  const Status status = inspect(flags);
  return status ? 0 : report(status.error());
}

}  // namespace

std::function<int()> add_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  add_engine_flags(app, flags->config, flags->trace_file, flags->check_config);
  app.add_flag("--list-presets", flags->list_presets, "List the built-in configurations");
  return [flags] { return run(*flags); };
}

}  // namespace asap
