// Presets: config.json of released models, compiled in (models/presets), to inspect them and to run
// them with dummy weights without a download.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "asap/base/result.h"

namespace asap {

struct Preset {
  std::string_view name;    // "deepseek-v3.2"
  std::string_view config;  // text of config.json
};

// By name.
std::span<const Preset> presets();
// Errors: not_found lists the known names.
Result<Preset> find_preset(const std::string& name);

}  // namespace asap
