// Fuzzes config.json: whatever is accepted must be a model that the layers above can size and
// rotate.
#include <cmath>
#include <string>

#include "asap/base/check.h"
#include "asap/model/inspect.h"
#include "asap/model/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto spec = asap::parse_spec(text, "fuzz");
  if (!spec) {
    CHECK(!spec.error().message.empty(), "an error without a message");
    return 0;
  }
  CHECK(static_cast<int>(spec->moe_layer.size()) == spec->layers, "a layer without a kind");
  CHECK(std::isfinite(spec->attention_scale), "attention scale {}", spec->attention_scale);
  for (const double frequency : asap::rope_frequencies(spec->rope)) {
    CHECK(std::isfinite(frequency), "frequency {}", frequency);
  }
  CHECK(asap::count_parameters(*spec).total > 0, "no parameters");
  CHECK(asap::flops_per_token(*spec, 4096).per_token() > 0, "no work");
  return 0;
}
