#include "asap/runtime/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/compute/attention_side.h"
#include "asap/compute/isa.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/expert_rows.h"
#include "asap/runtime/placement.h"
#include "asap/runtime/profile.h"
#include "asap/runtime/profile_transfer.h"
#include "asap/runtime/scheduling.h"
#include "asap/wire/layout.h"

namespace asap {

// Names of config_to_json; the same names as the flags.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    EngineConfig, model, config_file, preset, hf_overrides, num_hidden_layers, load_format, seed,
    data_parallel_size, tensor_parallel_size, num_moe_ranks, stages, regions,
    max_num_batched_tokens, max_num_seqs, max_model_len, kv_cache_tokens, scheduler,
    chunked_prefill_size, pairing, queue_order, queue_kappa, expert_order, batch_wait_ms,
    partner_wait_ms, exclusive_tokens, max_shared_batch_tokens, chain_prefill, split_lone_tokens,
    length_aware_batching, max_num_queued_reqs, max_num_queued_tokens, max_queued_s,
    threads_per_device, cpu_bind, watchdog_timeout_s, max_restarts, restart_window_s, crash_dir,
    link, overlap, super_kernel, ops, isa, profile, time_scale, expert_skew, dtype, quantization,
    return_logits, trace, trace_events)

namespace {

// Rows per expert from which its GEMM is compute-bound rather than bound by reading the weights
// (docs/performance.md).
constexpr int kKneeRowsPerExpert = 32;

struct Range {
  const char* flag;
  int value, low, high;
};

}  // namespace

ModelSource source_of(const EngineConfig& config) {
  return {config.model,        config.config_file,       config.preset,
          config.hf_overrides, config.num_hidden_layers, config.load_format,
          config.seed,         quantization_of(config)};
}

bool in_lockstep(const EngineConfig& config) {
  return config.scheduler == "default" || config.scheduler == "chunked";
}

Status check_config(const EngineConfig& config) {
  const Range ranges[] = {
      {"--data-parallel-size", config.data_parallel_size, 1, 64},
      {"--tensor-parallel-size", config.tensor_parallel_size, 1, 64},
      {"--num-moe-ranks", config.num_moe_ranks, 0, 256},
      {"--stages", config.stages, 0, 8},
      {"--regions", config.regions, 0, 8},
      {"--chunked-prefill-size", config.chunked_prefill_size, 0, 1 << 18},
      {"--chain-prefill", config.chain_prefill, -1, 1},
      {"--max-num-batched-tokens", config.max_num_batched_tokens, 0, 1 << 18},
      {"--max-num-seqs", config.max_num_seqs, 1, 4096},
      {"--max-model-len", config.max_model_len, 0, 1 << 22},
      {"--kv-cache-tokens", config.kv_cache_tokens, 0, 1 << 28},
      {"--batch-wait-ms", config.batch_wait_ms, -1, 60'000},
      {"--partner-wait-ms", config.partner_wait_ms, -1, 60'000},
      {"--exclusive-tokens", config.exclusive_tokens, -1, 1 << 22},
      {"--max-shared-batch-tokens", config.max_shared_batch_tokens, -1, 1 << 22},
      {"--split-lone-tokens", config.split_lone_tokens, -1, 1 << 22},
      {"--max-num-queued-reqs", config.max_num_queued_reqs, 1, 1 << 20},
      {"--max-num-queued-tokens", config.max_num_queued_tokens, -1, 1 << 30},
      {"--threads-per-device", config.threads_per_device, 0, 1024},
      {"--watchdog-timeout", config.watchdog_timeout_s, 1, 86'400},
      {"--max-restarts", config.max_restarts, 0, 1'000'000},
      {"--restart-window-s", config.restart_window_s, 1, 1'000'000},
      {"--num-hidden-layers", config.num_hidden_layers, 0, 1024},
  };
  for (const Range& range : ranges) {
    if (range.value < range.low || range.value > range.high) {
      return fail(Code::invalid, "{} is {}; it must be between {} and {}", range.flag, range.value,
                  range.low, range.high);
    }
  }
  if (!(config.queue_kappa >= -1 && config.queue_kappa <= 1e6)) {
    return fail(Code::invalid, "--queue-kappa is {}; it must be between 0 and 1e6",
                config.queue_kappa);
  }
  if (!(config.max_queued_s >= 0 && config.max_queued_s <= 86'400)) {
    return fail(Code::invalid, "--max-queued-s is {}; it must be between 0 (no limit) and 86400",
                config.max_queued_s);
  }
  if (std::find(std::begin(kLoadFormats), std::end(kLoadFormats), config.load_format) ==
      std::end(kLoadFormats)) {
    return fail(Code::invalid, "--load-format is \"{}\"; it must be one of {}", config.load_format,
                fmt::join(kLoadFormats, ", "));
  }
  if (config.ops != "cpu" && config.ops != "ref" && config.ops != "priced") {
    return fail(Code::invalid, "--ops is \"{}\"; it must be cpu, ref or priced", config.ops);
  }
  if (config.ops == "priced" && config.profile.empty()) {
    return fail(Code::invalid,
                "--ops priced needs a cost profile: --profile NAME or FILE; {} are "
                "built in, asap calibrate makes one of this machine",
                fmt::join(builtin_profiles(), ", "));
  }
  if (!(config.time_scale >= 0.01 && config.time_scale <= 1000)) {
    return fail(Code::invalid, "--time-scale is {}; it must be between 0.01 and 1000",
                config.time_scale);
  }
  ASAP_TRY(check_cpu_bind(config.cpu_bind));
  if (config.dtype != "auto" && config.dtype != "bfloat16" && config.dtype != "float32") {
    return fail(Code::invalid, "--dtype is \"{}\"; it must be auto, bfloat16 or float32",
                config.dtype);
  }
  if (config.quantization != "none" && config.quantization != "int8" &&
      config.quantization != "fp8") {
    return fail(Code::invalid, "--quantization is \"{}\"; it must be none, int8 or fp8",
                config.quantization);
  }
  return {};
}

Status check_context(const EngineConfig& config, const ModelSpec& spec) {
  if (config.max_model_len == 1) {
    return fail(Code::invalid,
                "--max-model-len is 1; a prompt and the token that follows it are 2 at least");
  }
  if (config.max_model_len <= spec.max_positions) return {};
  return fail(
      Code::invalid,
      "--max-model-len {} exceeds the {} positions that the model was made for "
      "(max_position_embeddings of its configuration), and beyond them it answers nonsense; "
      "lower it, or if the model is known to go further, raise that with --hf-overrides "
      "'{{\"max_position_embeddings\": {}}}'",
      config.max_model_len, spec.max_positions, config.max_model_len);
}

Quantization quantization_of(const EngineConfig& config) {
  if (config.quantization == "fp8") return Quantization::fp8;
  return config.quantization == "int8" ? Quantization::int8 : Quantization::none;
}

std::string config_to_json(const EngineConfig& config) {
  return nlohmann::json(config).dump();
}

Result<EngineConfig> config_from_json(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<EngineConfig>();
  } catch (const nlohmann::json::exception& error) {
    return fail(Code::internal, "the front's configuration is unreadable: {}", error.what());
  }
}

namespace {

DType activation_type(const EngineConfig& config, const ModelSpec& spec) {
  if (config.ops == "ref" || config.dtype == "float32") return DType::f32;
  if (config.dtype == "bfloat16") return DType::bf16;
  return spec.stored_dtype == DType::f32 ? DType::f32 : DType::bf16;
}

}  // namespace

Status resolve_isa(const ModelSpec& spec, EngineConfig* config) {
  if (config->ops != "cpu") return {};
  const bool bf16_rows = activation_type(*config, spec) == DType::bf16;
  ASAP_ASSIGN(config->isa, choose_isa(config->isa, bf16_rows, &monotonic_now));
  return {};
}

namespace {

// Tokens of one batch. A prompt of the default engine runs whole, beside one token of everybody who
// generates.
int batch_tokens(const EngineConfig& config, int max_model_len) {
  if (config.scheduler == "chunked") return config.chunked_prefill_size;
  if (!in_lockstep(config)) return config.max_num_batched_tokens;
  return std::max(config.max_num_batched_tokens, max_model_len + config.max_num_seqs);
}

Geometry make_geometry(const EngineConfig& config, const ModelSpec& spec, int max_model_len) {
  Geometry g;
  g.groups = config.data_parallel_size;
  g.ranks = config.tensor_parallel_size;
  g.expert_ranks = config.num_moe_ranks;
  g.stages = config.stages;
  g.regions = config.regions;
  g.max_batch_tokens = batch_tokens(config, max_model_len);
  g.max_batch_seqs = std::min(config.max_num_seqs, g.max_batch_tokens);
  g.lockstep = in_lockstep(config);
  g.max_seq_blocks = (max_model_len + kKvBlock - 1) / kKvBlock;
  g.hidden = spec.hidden;
  g.layers = spec.layers;
  g.moe_layers = spec.moe_layers();
  g.experts = spec.experts;
  g.top_k = spec.top_k;
  g.vocab = spec.vocab;
  g.gather_width = AttentionSide::gather_width(spec);
  g.index_topk = spec.index_topk;
  g.logits_rows = config.return_logits ? g.max_batch_seqs : 0;
  g.activation = activation_type(config, spec);
  if (config.ops == "priced") {  // no rows, so windows have no room for any
    g.hidden = 1;
    g.gather_width = 1;
    g.top_k = 1;
  }
  return g;
}

}  // namespace

Result<ModelSpec> load_engine_spec(const EngineConfig& config) {
  ASAP_ASSIGN(ModelSpec spec, load_spec(source_of(config)));
  if (config.ops == "priced") spec.index_topk = 0;
  return spec;
}

Result<EnginePlan> make_plan(const EngineConfig& given, const ModelSpec& spec, int cores) {
  ASAP_TRY(check_config(given));
  ASAP_ASSIGN(const EngineConfig config, resolve_scheduling(given));
  ASAP_TRY(check_tensor_parallel(spec, config.tensor_parallel_size));
  if (spec.moe_layers() == 0) {
    return fail(Code::unsupported, "{} has no MoE layer; ASAP serves Mixture-of-Experts models",
                source_of(config).name());
  }
  if (config.num_moe_ranks > spec.experts) {
    return fail(Code::invalid, "--num-moe-ranks {} exceeds the model's {} experts; lower it",
                config.num_moe_ranks, spec.experts);
  }
  EnginePlan plan;
  plan.max_model_len = config.max_model_len > 0 ? config.max_model_len : spec.max_positions;
  plan.geometry = make_geometry(config, spec, plan.max_model_len);
  const int64_t wanted =
      config.kv_cache_tokens > 0
          ? config.kv_cache_tokens
          : std::max<int64_t>(2 * int64_t{plan.max_model_len},
                              int64_t{config.stages} * plan.geometry.max_batch_tokens * 2);
  plan.kv_blocks = static_cast<int>((wanted + kKvBlock - 1) / kKvBlock);
  if (plan.kv_blocks < plan.geometry.max_seq_blocks) {
    return fail(Code::invalid,
                "--kv-cache-tokens {} cannot hold one sequence of --max-model-len {}; raise the "
                "first or lower the second",
                config.kv_cache_tokens, plan.max_model_len);
  }
  plan.knee_tokens = kKneeRowsPerExpert * spec.experts / std::max(1, spec.top_k);
  plan.cost = cost_of(spec);
  if (!config.profile.empty()) {
    ASAP_ASSIGN(const CostProfile measured, load_profile(config.profile));
    ASAP_ASSIGN(plan.profile, profile_for(measured, spec));
    if (!config.expert_skew) plan.profile.expert_skew_cv = 0;
    plan.knee_tokens = plan.profile.knee_tokens();
    plan.cost = plan.profile.cost_model(config.tensor_parallel_size);
  }
  plan.knee_tokens = std::min(plan.geometry.max_batch_tokens, plan.knee_tokens);
  const bool lockstep = plan.geometry.lockstep;  // the items of all groups are one
  plan.queue = {
      plan.geometry.groups, plan.geometry.stages,
      config.expert_order == "oldest" ? ExpertOrder::oldest_first : ExpertOrder::round_robin,
      lockstep || config.expert_order == "merge", lockstep};
  const int devices = plan.geometry.lockstep ? config.num_moe_ranks : plan.geometry.devices() - 1;
  // Twice the even share: while the other side waits, a device uses its cores too.
  plan.threads = config.threads_per_device > 0
                     ? config.threads_per_device
                     : std::clamp(2 * cores / std::max(1, devices), 1, std::max(1, cores));
  // An expert rank's receive and send agents need a core each beside its team, but in lockstep; the
  // front one more.
  const int streams = plan.geometry.lockstep ? 0 : 2 * config.num_moe_ranks;
  plan.cores_short = cores < devices * plan.threads + streams + 1;
  plan.limits = {plan.geometry.max_batch_tokens, plan.max_model_len, piece_rows(plan.geometry)};
  return plan;
}

std::string describe_plan(const EngineConfig& given, const ModelSpec& spec,
                          const EnginePlan& plan) {
  const EngineConfig config = *resolve_scheduling(given);  // make_plan did it too
  const Geometry& g = plan.geometry;
  std::string out = fmt::format(
      "{} ({}): D={} groups x T={} ranks, E={} expert ranks, R={} stages; S={} tokens per batch, "
      "context {}, activations {}\n",
      source_of(config).name(), spec.model_type, g.groups, g.ranks, g.expert_ranks, g.stages,
      g.max_batch_tokens, plan.max_model_len, dtype_name(g.activation));
  for (int device = 0; device < g.devices(); ++device) {
    const std::string name = device_name(g, device);
    out += fmt::format("  {:16} window {:>12} bytes", name, window_bytes(g, device));
    if (device > 0 && device < expert_device(g, 0)) {
      out += fmt::format(", KV cache {} bytes",
                         static_cast<uint64_t>(plan.kv_blocks) * kKvBlock *
                             cache_bytes_per_token(spec, g.ranks, g.activation));
    } else if (device >= expert_device(g, 0)) {
      const Part own = part_of(g.experts, g.expert_ranks, device - expert_device(g, 0));
      out += fmt::format(", experts [{}, {}) of {} layers", own.begin, own.end, g.moe_layers);
    }
    out += "\n";
  }
  if (g.lockstep) {
    out += fmt::format(
        "scheduler {}: all groups in step, attention rank i and expert rank i in one worker; {}\n",
        config.scheduler,
        config.scheduler == "chunked"
            ? fmt::format("at most {} tokens of a group in a step", g.max_batch_tokens)
            : fmt::format("prompts share a batch up to {} tokens, a longer one runs alone",
                          config.max_num_batched_tokens));
  }
  out += fmt::format("{} threads per device, {}\n", plan.threads,
                     plan.cores_short ? "agents share cores and never spin"
                                      : "one core per agent, spinning before sleep");
  out += "window of an expert rank (offset, slots x bytes):\n" + ExpertLayout(g).picture();
  out += "window of an attention rank:\n" + AttentionLayout(g).picture();
  out += "window of the front:\n" + FrontLayout(g).picture();
  return out;
}

}  // namespace asap
