#include "asap/cli/rig_flags.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "asap/cli/options.h"
#include "asap/cli/validators.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/runner.h"

namespace asap {

void add_rig_flags(CLI::App& app, EngineConfig& config) {
  config.load_format = "dummy";
  if (config.num_moe_ranks == 0) config.num_moe_ranks = 1;
  add_model_flags(app, config);
  app.add_option("--num-moe-ranks,--num-ffn-ranks", config.num_moe_ranks,
                 "E: devices that share the experts; one of them is measured")
      ->capture_default_str();
  add_kernel_flags(app, config);
}

void add_kernel_flags(CLI::App& app, EngineConfig& config) {
  app.add_option("-t,--threads-per-device", config.threads_per_device, "0: all cores")
      ->capture_default_str();
  app.add_option("--ops", config.ops, "Kernels: cpu, or ref (the scalar oracle)")
      ->capture_default_str();
  add_isa_flag(app, config);
  app.add_option("--dtype", config.dtype, "Activations: auto, bfloat16, float32")
      ->capture_default_str();
  app.add_option("--quantization,-q", config.quantization, "Weights at load: none, int8, fp8")
      ->capture_default_str();
}

void add_result_flags(CLI::App& app, int& rounds, std::string& output_file) {
  app.add_option("--rounds", rounds, "Repetitions; medians are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--output-file", output_file, "JSON with all figures")->check(writable_file());
}

Status complete_rig_config(const std::string& preset, EngineConfig* config) {
  if (config->model.empty() && config->preset.empty()) config->preset = preset;
  ASAP_TRY(check_config(*config));
  if (config->num_hidden_layers == 0) {
    ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(*config)));
    const auto moe = std::find(spec.moe_layer.begin(), spec.moe_layer.end(), 1);
    if (moe == spec.moe_layer.end()) {
      return fail(Code::unsupported, "{} has no MoE layer; nothing to measure",
                  source_of(*config).name());
    }
    config->num_hidden_layers = static_cast<int>(moe - spec.moe_layer.begin()) + 1;
  }
  if (config->threads_per_device == 0) {
    config->threads_per_device = static_cast<int>(available_cpus().size());
  }
  return {};
}

Clock rig_clock(const EngineConfig& config) {
  return config.threads_per_device == 1 ? &cpu_now : &monotonic_now;
}

std::string_view rig_clock_name(const EngineConfig& config) {
  return config.threads_per_device == 1 ? "CPU time" : "wall time";
}

Result<std::vector<int>> parse_counts(const std::string& flag, const std::string& text, int most) {
  std::vector<int> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at <= end) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    const bool ends = next == end || *next == ',';
    if (error != std::errc() || !ends || value < 1 || value > most) {
      return fail(Code::invalid, "{} {}: use numbers from 1 to {} with commas between them", flag,
                  text, most);
    }
    out.push_back(value);
    at = next + 1;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::function<void(int done, int all)> show_loading() {
  return [last = monotonic_now()](int done, int all) mutable {
    const Instant now = monotonic_now();
    if (now - last < Duration::seconds(1)) return;
    last = now;
    std::fprintf(stderr, "loading: %d/%d\n", done, all);
  };
}

}  // namespace asap
