// asap inspect: what a checkpoint is, what it weighs and costs, and what ASAP cannot do with it.
#include "asap/model/inspect.h"

#include <cstdio>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/model/presets.h"
#include "asap/model/safetensors.h"
#include "asap/model/switches.h"
#include "asap/model/weight_values.h"
#include "asap/runtime/memory_plan.h"
#include "asap/runtime/runner.h"

namespace asap {

namespace {

struct InspectFlags {
  EngineConfig config;
  std::string trace_file;
  bool check_config = false;
  bool list_presets = false;
};

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

void print_devices(const EngineConfig& config, const ModelSpec& s, const EnginePlan& plan,
                   const ModelWeights* views) {
  const Geometry& g = plan.geometry;
  const MemoryPlan memory = memory_plan(config, s, plan, kept_type(config, s, views));
  const MachineMemory machine = machine_memory();
  std::printf("  devices at D=%d T=%d E=%d, weights kept as %s\n    %s\n", g.groups, g.ranks,
              g.expert_ranks, std::string(dtype_name(memory.weights)).c_str(),
              memory.text().c_str());
  std::printf("    together %s; %s has %s, %s of it available\n",
              bytes_text(memory.total()).c_str(), machine.owner.c_str(),
              bytes_text(machine.total).c_str(), bytes_text(machine.available).c_str());
}

// Weights are optional here: a config.json alone can be inspected.
Status print_weights(const OpenWeights& weights) {
  const Checkpoint& checkpoint = weights.checkpoint;
  ASAP_TRY(check_values(checkpoint, weights.views));
  std::printf("  weights     %zu tensors in %zu files, %s\n", checkpoint.tensors().size(),
              checkpoint.files().size(), bytes_text(checkpoint.total_bytes()).c_str());
  return {};
}

// Of a folder that is to be served.
Status print_tokenizer(const EngineConfig& config) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(config.model);
  if (tokenizer) {
    std::printf("  tokenizer   %d tokens\n", tokenizer->vocab_size());
    return {};
  }
  if (tokenizer.error().code != Code::not_found) return tl::unexpected<Error>(tokenizer.error());
  std::printf("  tokenizer   none here: asap run takes --tokens, asap serve needs one\n");
  return {};
}

Status inspect(const InspectFlags& flags) {
  ASAP_TRY(check_model(flags.config));
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(flags.config)));
  ASAP_TRY(check_context(flags.config, spec));
  ASAP_ASSIGN(const EnginePlan plan,
              make_plan(flags.config, spec, static_cast<int>(available_cpus().size())));
  print_model(source_of(flags.config).name(), spec);
  if (!flags.config.preset.empty() || !Checkpoint::exists(flags.config.model)) {
    print_devices(flags.config, spec, plan, nullptr);
    std::printf("  weights     none here\n");
    return {};
  }
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(flags.config), spec));
  print_devices(flags.config, spec, plan, &weights.views);
  ASAP_TRY(print_weights(weights));
  ASAP_TRY(print_tokenizer(flags.config));
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
