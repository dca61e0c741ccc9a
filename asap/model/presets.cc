#include "asap/model/presets.h"

#include <vector>

namespace asap {

Result<Preset> find_preset(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  return fail(Code::not_found, "--preset {}: no such preset; known are {}", name,
              fmt::join(names, ", "));
}

}  // namespace asap
