#include "asap/cli/options.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "asap/cli/validators.h"
#include "asap/model/byte_tokenizer.h"
#include "asap/runtime/placement.h"

namespace asap {

int exit_code(Code code) {
  switch (code) {
    case Code::invalid: return 2;
    case Code::not_found: return 3;
    case Code::unsupported: return 4;
    case Code::overloaded:
    case Code::deadline: return 5;
    case Code::unavailable: return 6;
    case Code::internal: return 1;
  }
  return 1;
}

int report(const Error& error) {
  std::fprintf(stderr, "asap: %s\n", error.message.c_str());
  return exit_code(error.code);
}

void add_model_flags(CLI::App& app, EngineConfig& config) {
  app.add_option("model,--model", config.model,
                 "Checkpoint directory: config.json, *.safetensors, tokenizer.json")
      ->check(not_empty());
  app.add_option("--preset", config.preset,
                 "In place of MODEL: a built-in configuration (asap inspect --list-presets)")
      ->check(not_empty());
  app.add_option("--load-format", config.load_format,
                 "auto, safetensors: the checkpoint's weights; dummy: random ones, from the "
                 "configuration alone")
      ->capture_default_str();
  app.add_option("--seed", config.seed, "Of dummy weights, and of the sampler of asap run")
      ->check(unsigned_number())
      ->capture_default_str();
  app.add_option("--num-hidden-layers", config.num_hidden_layers,
                 "Keep only so many of the model's layers; 0: all");
  app.add_option("--hf-overrides", config.hf_overrides, "JSON object merged into config.json");
}

void add_scheduling_flags(CLI::App& app, EngineConfig& config) {
  const std::string group = "Scheduling (what is not given follows from --scheduler)";
  const auto option = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->group(group);
  };
  option(
      "--scheduler", config.scheduler,
      "asap; paper: asap with the paper's settings; in lockstep, to compare with: default (whole "
      "prompts), chunked");
  option("--chunked-prefill-size", config.chunked_prefill_size,
         "--scheduler chunked: tokens of a group in a step; 0: 8192");
  option("--pairing", config.pairing,
         "refill: a free stage gets its next batch at once; paper: stages start together");
  option("--queue-order", config.queue_order, "aged: short prompts first, aging; fcfs");
  option("--queue-kappa", config.queue_kappa,
         "--queue-order aged: seconds of age that one second of a prompt's own cost weighs");
  option("--expert-order", config.expert_order,
         "Items on expert ranks: round_robin, oldest, merge (items of equal layer together)");
  option("--batch-wait-ms", config.batch_wait_ms,
         "Longest wait of a small batch for more tokens while its group is busy");
  option("--partner-wait-ms", config.partner_wait_ms,
         "--pairing paper: longest wait of a batch for its partners");
  option("--exclusive-tokens", config.exclusive_tokens,
         "--pairing paper: longer prompts have a group for themselves; 0: none");
  option("--max-shared-batch-tokens", config.max_shared_batch_tokens,
         "A batch of several prompts takes no more; 0: --max-num-batched-tokens");
  option("--chain-prefill", config.chain_prefill,
         "1: parts of a prompt ride on several stages at once; 0: one after another");
  option("--split-lone-tokens", config.split_lone_tokens,
         "A prompt of so many tokens that is alone is spread over the free stages; 0: never");
  option("--regions", config.regions,
         "Items of a group that may lie at the experts at once; 0: one for each stage; 1: the "
         "paper's single region");
  option("--link", config.link,
         "onesided; p2p: blocking messages with a handshake, between processes");
  const auto off = [&](const char* name, bool& value, const char* help) {
    app.add_flag_callback(
           name, [&value] { value = false; }, help)
        ->group(group);
  };
  off("--no-length-aware-batching", config.length_aware_batching,
      "Batches take prompts as they came until they are full");
  off("--no-overlap", config.overlap, "An expert rank receives, computes and sends in turn");
  off("--no-super-kernel", config.super_kernel, "A kernel call per expert instead of one per item");
}

void add_isa_flag(CLI::App& app, EngineConfig& config) {
  app.add_option(
         "--isa", config.isa,
         "Kernels of --ops cpu: auto; measure (also avx512bf16 if it is fast here); scalar, "
         "avx2, avx512, avx512vnni, avx512bf16, amx. Results differ in rounding")
      ->capture_default_str();
}

void add_engine_flags(CLI::App& app, EngineConfig& config, std::string& trace_file,
                      bool& check_config) {
  add_model_flags(app, config);
  const auto option = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  option("--data-parallel-size,--dp", config.data_parallel_size, "D: attention groups");
  option("--tensor-parallel-size,--tp", config.tensor_parallel_size, "T: ranks of a group");
  option("--num-moe-ranks,--num-ffn-ranks", config.num_moe_ranks,
         "E: devices that hold experts; 0: one, or with --scheduler default and chunked every "
         "attention device");
  option("--stages", config.stages,
         "R: batches alive in a group at once; 1: no interleaving, 0: as the scheduler has it");
  option("--max-num-batched-tokens", config.max_num_batched_tokens,
         "S: tokens of one batch; longer prompts are cut over the KV cache, or run alone with "
         "--scheduler default; 0: 2048, there 3072");
  option("--max-num-seqs", config.max_num_seqs, "Sequences of one batch");
  option("--max-model-len", config.max_model_len,
         "Tokens of prompt and output; 0: the model's own limit");
  option("--kv-cache-tokens", config.kv_cache_tokens,
         "KV cache per group, tokens; 0: two of the longest sequences, or two batches for each "
         "stage if that is more");
  option("--max-num-queued-reqs", config.max_num_queued_reqs,
         "Waiting requests; more are refused with 429");
  option("--max-num-queued-tokens", config.max_num_queued_tokens,
         "Their prompt tokens, likewise; 0: as 64 of the longest sequences for each group, -1: no "
         "limit");
  option("--max-queued-s", config.max_queued_s,
         "Their work in seconds, at the speed that the instance shows under load, likewise; 0: no "
         "limit");
  option("--threads-per-device", config.threads_per_device, "0: twice an even share of the cores");
  option("--cpu-bind", config.cpu_bind,
         "Cores of the devices. auto: on several NUMA nodes each device gets one; nobind; or lists "
         "for attention ranks, then expert ranks, as in VLLM_CPU_OMP_THREADS_BIND: 0-7|8-15");
  option("--watchdog-timeout", config.watchdog_timeout_s,
         "Seconds without a sign of life after which a worker is killed and started again; longer "
         "than the longest step of a layer");
  option("--max-restarts", config.max_restarts,
         "Deaths of a group or an expert rank within --restart-window-s; one more, and it stays "
         "out of service");
  option("--restart-window-s", config.restart_window_s, "See --max-restarts");
  option("--crash-dir,--crash-dump-folder", config.crash_dir,
         "Folder for reports about workers that died; default: in the user's runtime folder");
  add_scheduling_flags(app, config);
  app.add_option("--ops", config.ops,
                 "Kernels: cpu; ref (scalar oracle, float32 throughout); priced (none, only the "
                 "time that --profile says)")
      ->capture_default_str();
  add_isa_flag(app, config);
  app.add_option("--profile", config.profile,
                 "Cost profile, for the scheduler and --ops priced: a built-in's name or a file");
  app.add_option("--time-scale", config.time_scale, "--ops priced: slow down so many times")
      ->capture_default_str();
  app.add_option("--dtype", config.dtype,
                 "Activations, also on the wire: auto (the checkpoint's), bfloat16, float32")
      ->capture_default_str();
  app.add_option("--quantization,-q", config.quantization,
                 "Weights at load: none (as the checkpoint stores them), int8 (W8A8), fp8 (stored "
                 "FP8, activations "
                 "rounded to FP8)")
      ->capture_default_str();
  app.add_option("--trace", trace_file, "Write a Chrome/Perfetto trace to this file at the end")
      ->check(writable_file());
  app.add_flag("--check-config", check_config, "Print topology and window sizes, then exit");
}

int print_config(const EngineConfig& config) {
  if (const Status status = check_model(config); !status) return report(status.error());
  const auto spec = load_spec(source_of(config));
  if (!spec) return report(spec.error());
  if (const Status status = check_context(config, *spec); !status) return report(status.error());
  const Topology topology = Topology::system();
  const auto plan = make_plan(config, *spec, topology.cores());
  if (!plan) return report(plan.error());
  const auto placement = place_devices(config.cpu_bind, topology, plan->geometry);
  if (!placement) return report(placement.error());
  std::fputs(describe_plan(config, *spec, *plan).c_str(), stdout);
  std::printf("%s\n", placement->describe(plan->geometry).c_str());
  return 0;
}

Status check_context(const EngineConfig& config) {
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(config)));
  return check_context(config, spec);
}

Status check_model(const EngineConfig& config) {
  if (!config.model.empty() || !config.preset.empty()) return {};
  return fail(Code::invalid,
              "no model: name a checkpoint directory, or a preset (asap inspect --list-presets)");
}

Result<Tokenizer> load_tokenizer(const EngineConfig& config) {
  const ModelSource source = source_of(config);
  if (!source.preset.empty()) return byte_tokenizer();
  auto tokenizer = Tokenizer::load(source.directory);
  if (!tokenizer && tokenizer.error().code == Code::not_found && source.dummy()) {
    return byte_tokenizer();
  }
  return tokenizer;
}

Status write_figures(const std::string& file, const nlohmann::ordered_json& figures) {
  if (file.empty()) return {};
  std::ofstream out(file);
  out << figures.dump(1) << "\n";
  out.close();
  if (!out) return fail(Code::internal, "--output-file {}: cannot be written", file);
  return {};
}

namespace {

std::atomic<int> signals{0};

// The second Ctrl-C does not wait for anything.
void on_signal(int) {
  if (signals.fetch_add(1) > 0) _exit(130);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() {
  return signals.load() > 0;
}

}  // namespace asap
