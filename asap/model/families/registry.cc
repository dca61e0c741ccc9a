// The list of supported families.
#include "asap/model/families/family.h"

namespace asap {

namespace {

constexpr const Family* kFamilies[] = {&kDeepseekV3, &kDeepseekV32, &kQwen3Moe};

}  // namespace

std::span<const Family* const> families() {
  return kFamilies;
}

const Family* find_family(const std::string& model_type) {
  for (const Family* family : kFamilies) {
    if (model_type == family->model_type) return family;
  }
  return nullptr;
}

}  // namespace asap
