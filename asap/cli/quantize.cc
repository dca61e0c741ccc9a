// asap quantize: writes the W8A8 form of a checkpoint.
#include "asap/model/quantize.h"

#include <cstdio>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"

namespace asap {

namespace {

struct QuantizeFlags {
  QuantizeOptions options;
  std::string quantization = "int8";
};

double gigabytes(uint64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

int run(QuantizeFlags& flags) {
  if (flags.quantization != "int8") {
    return report({Code::invalid,
                   fmt::format("--quantization is \"{}\"; it must be int8", flags.quantization)});
  }
  catch_interrupts();
  uint64_t shown = 0;  // tenths
  flags.options.on = [&shown](uint64_t done, uint64_t total) {
    if (total > 0 && done * 10 / total > shown) {
      shown = done * 10 / total;
      std::fprintf(stderr, "%3d %% of %.2f GB written\n", static_cast<int>(shown) * 10,
                   gigabytes(total));
    }
    return !interrupted();
  };
  const auto summary = quantize_checkpoint(flags.options);
  if (!summary) return report(summary.error());
  std::printf(
      "%s: %d matrices in int8, %d tensors kept, %d without use left out; %.3f GB -> %.3f "
      "GB in %d files\n",
      flags.options.output.c_str(), summary->quantized, summary->copied, summary->left_out,
      gigabytes(summary->bytes_before), gigabytes(summary->bytes_after), summary->files);
  return 0;
}

}  // namespace

std::function<int()> add_quantize(CLI::App& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  app.add_option("model,--model", flags->options.model,
                 "Checkpoint directory: config.json, *.safetensors")
      ->required();
  app.add_option("--output,-o", flags->options.output,
                 "Directory to write; must not exist or be empty")
      ->required();
  app.add_option("--quantization,-q", flags->quantization,
                 "int8: weights per output channel, activations per token when they are multiplied "
                 "(W8A8)")
      ->capture_default_str();
  return [flags] { return run(*flags); };
}

}  // namespace asap
