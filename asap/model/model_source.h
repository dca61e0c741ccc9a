// ModelSource: where a model's configuration and weights come from. Every process of an instance
// resolves the same source to the same model.
#pragma once

#include <string>

#include "asap/base/result.h"
#include "asap/model/safetensors.h"
#include "asap/model/spec.h"
#include "asap/model/weights.h"

namespace asap {

struct ModelSource {
  std::string directory;                           // checkpoint directory
  std::string config_file = "config.json";         // in that directory
  Quantization quantization = Quantization::none;  // done to the weights at load
};

// As load_spec(directory), of any source.
Result<ModelSpec> load_spec(const ModelSource& source);

// Weights of a source, bound to `spec`; headers are read, values are not. Errors as those of
// Checkpoint::open and bind_weights.
struct OpenWeights {
  Checkpoint checkpoint;
  ModelWeights views;
};
Result<OpenWeights> open_weights(const ModelSource& source, const ModelSpec& spec);

}  // namespace asap
