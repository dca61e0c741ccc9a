// Fuzzes the header parser: whatever it accepts must lie inside the input.
#include <string>

#include "asap/base/check.h"
#include "asap/model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::map<std::string, asap::StoredTensor> tensors;
  if (!asap::parse_safetensors(bytes, size, "fuzz", &tensors)) {
    CHECK(tensors.empty(), "a refused header leaves tensors behind");
    return 0;
  }
  for (const auto& [name, tensor] : tensors) {
    CHECK(tensor.data >= bytes && tensor.data + tensor.bytes <= bytes + size, "{} lies outside",
          name);
  }
  return 0;
}
