// ModelSource: where a model's configuration and weights come from. Every process of an instance
// resolves the same source to the same model.
#pragma once

#include <string>

#include "asap/base/result.h"
#include "asap/model/spec.h"

namespace asap {

struct ModelSource {
  std::string directory;                    // checkpoint directory
  std::string config_file = "config.json";  // in that directory
};

// As load_spec(directory), of any source.
Result<ModelSpec> load_spec(const ModelSource& source);

}  // namespace asap
