// The list of supported families.
#include "asap/model/families/family.h"

namespace asap {

namespace {

constexpr const Family* kFamilies[] = {&kDeepseekV2, &kDeepseekV3, &kDeepseekV32, &kKimiK2,
                                       &kGlmMoeDsa,  &kGlm4Moe,    &kQwen2Moe,    &kQwen3Moe,
                                       &kMixtral,    &kOlmoe,      &kGptOss,      &kMinimaxM2};

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
