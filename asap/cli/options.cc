#include "asap/cli/options.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "asap/model/byte_tokenizer.h"
#include "asap/runtime/runner.h"

namespace asap {

int exit_code(Code code) {
  switch (code) {
    case Code::invalid: return 2;
    case Code::not_found: return 3;
    case Code::unsupported: return 4;
    case Code::overloaded: return 5;
    case Code::unavailable: return 6;
    case Code::internal: return 1;
  }
  return 1;
}

int report(const Error& error) {
  std::fprintf(stderr, "asap: %s\n", error.message.c_str());
  return exit_code(error.code);
}

namespace {

void add_model_flags(CLI::App& app, EngineConfig& config) {
  app.add_option("model,--model", config.model,
                 "Checkpoint directory: config.json, *.safetensors, tokenizer.json");
  app.add_option("--preset", config.preset,
                 "In place of MODEL: a built-in configuration (asap inspect --list-presets)");
  app.add_option("--load-format", config.load_format,
                 "auto, safetensors: the checkpoint's weights; dummy: random ones, from the "
                 "configuration alone")
      ->capture_default_str();
  app.add_option("--seed", config.seed, "Of dummy weights, and of the sampler of asap run")
      ->capture_default_str();
  app.add_option("--num-hidden-layers", config.num_hidden_layers,
                 "Keep only so many of the model's layers; 0: all");
  app.add_option("--hf-overrides", config.hf_overrides, "JSON object merged into config.json");
}

}  // namespace

void add_engine_flags(CLI::App& app, EngineConfig& config, std::string& trace_file,
                      bool& check_config) {
  add_model_flags(app, config);
  const auto option = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  option("--data-parallel-size,--dp", config.data_parallel_size, "D: attention groups");
  option("--tensor-parallel-size,--tp", config.tensor_parallel_size, "T: ranks of a group");
  option("--num-moe-ranks,--num-ffn-ranks", config.num_moe_ranks, "E: devices that hold experts");
  option("--stages", config.stages, "R: batches alive in a group at once");
  option("--max-num-batched-tokens", config.max_num_batched_tokens,
         "S: tokens of one batch; longer prompts are cut over the KV cache");
  option("--max-num-seqs", config.max_num_seqs, "Sequences of one batch");
  option("--max-model-len", config.max_model_len,
         "Tokens of prompt and output; 0: the model's own limit");
  option("--kv-cache-tokens", config.kv_cache_tokens,
         "KV cache per group, tokens; 0: room for two of the longest sequences");
  option("--batch-wait-ms", config.batch_wait_ms,
         "Longest wait of a small batch for more tokens while its group is busy");
  option("--max-num-queued-reqs", config.max_num_queued_reqs,
         "Waiting requests; more are refused with 429");
  option("--threads-per-device", config.threads_per_device, "0: cores / devices, at least 1");
  option("--watchdog-timeout", config.watchdog_timeout_s,
         "Seconds after which a batch without answer is reported and its requests fail");
  app.add_option("--ops", config.ops, "Kernels: cpu, or ref (scalar oracle, float32 throughout)")
      ->capture_default_str();
  app.add_option("--dtype", config.dtype,
                 "Activations, also on the wire: auto (the checkpoint's), bfloat16, float32")
      ->capture_default_str();
  app.add_option("--quantization,-q", config.quantization,
                 "Weights at load: none (as the checkpoint stores them), int8 (W8A8), fp8 (stored "
                 "FP8, activations "
                 "rounded to FP8)")
      ->capture_default_str();
  app.add_option("--trace", trace_file, "Write a Chrome/Perfetto trace to this file at the end");
  app.add_flag("--check-config", check_config, "Print topology and window sizes, then exit");
}

int print_config(const EngineConfig& config) {
  if (const Status status = check_model(config); !status) return report(status.error());
  const auto spec = load_spec(source_of(config));
  if (!spec) return report(spec.error());
  const auto plan = make_plan(config, *spec, static_cast<int>(available_cpus().size()));
  if (!plan) return report(plan.error());
  std::fputs(describe_plan(config, *spec, *plan).c_str(), stdout);
  return 0;
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

Result<std::string> bundled_model() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  const char* const kName = "models/asap-tiny-moe";
  // build/<preset>/asap, an install prefix's bin/asap, or the current directory.
  for (const fs::path& base : {binary.parent_path() / "../..",
                               binary.parent_path() / "../share/asap", fs::current_path(error)}) {
    const fs::path candidate = (base / kName).lexically_normal();
    if (fs::exists(candidate / "config.json", error)) return candidate.string();
  }
  return fail(Code::not_found,
              "no MODEL given and the bundled one ({}) is neither beside {} nor in the current "
              "directory; name a checkpoint directory",
              kName, binary.string());
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
