// ModelSource: where a model's configuration and weights come from. Every process of an instance
// resolves the same source to the same model.
#pragma once

#include <string>

#include "asap/base/result.h"
#include "asap/model/safetensors.h"
#include "asap/model/spec.h"
#include "asap/model/weights.h"

namespace asap {

inline constexpr uint64_t kMaxConfigBytes = 16 << 20;  // of config.json and its like

struct ModelSource {
  std::string directory;                    // checkpoint directory
  std::string config_file = "config.json";  // in that directory
  std::string preset = {};                  // or a built-in configuration (model/presets.h)
  std::string hf_overrides = {};            // JSON object merged into the configuration, or ""
  int num_hidden_layers = 0;                // layers to keep; 0: all
  std::string load_format = "auto";  // "auto", "safetensors": files; "dummy": dummy_weights.h
  uint64_t seed = 0;                 // of dummy weights
  Quantization quantization = Quantization::none;  // done to the weights at load

  // For messages, and as the served name: the directory, or the preset.
  const std::string& name() const { return preset.empty() ? directory : preset; }
  bool dummy() const { return load_format == "dummy"; }
};

inline constexpr const char* kLoadFormats[] = {"auto", "safetensors", "dummy"};

// As load_spec(directory), of any source. Errors also: invalid for overrides that are no JSON
// object, for more layers than the model has, and for a preset together with a directory.
Result<ModelSpec> load_spec(const ModelSource& source);

// Weights of a source, bound to `spec`; headers are read, values are not. Errors as those of
// Checkpoint::open and bind_weights.
struct OpenWeights {
  Checkpoint checkpoint;
  ModelWeights views;
};
Result<OpenWeights> open_weights(const ModelSource& source, const ModelSpec& spec);

}  // namespace asap
