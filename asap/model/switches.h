// Switches: what public implementations of a model compute differently (docs/models.md), and which
// side is taken for a given configuration.
#pragma once

#include <string>
#include <vector>

#include "asap/model/spec.h"

namespace asap {

struct Switch {
  std::string topic;
  std::string choice;
  std::string key;  // of config.json (or --hf-overrides) that decides; "" if none does
};

// Those that matter to this model.
std::vector<Switch> switches_of(const ModelSpec& spec);

}  // namespace asap
