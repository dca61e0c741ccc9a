// Fuzzes golden.json: whatever is accepted has prompts, logits and tokens of its vocabulary.
#include "asap/base/check.h"
#include "asap/model/golden.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto golden = asap::parse_golden(text, std::vector<float>(16, 1.0f), "fuzz");
  if (!golden) {
    CHECK(!golden.error().message.empty(), "an error without a message");
    return 0;
  }
  CHECK(!golden->cases.empty());
  for (const asap::GoldenCase& c : golden->cases) {
    CHECK(!c.prompt.empty() && !c.greedy.empty() && !c.logits.empty());
    CHECK(c.required(asap::Precision::bf16) <= c.greedy.size());
    for (const int32_t id : c.prompt) CHECK(id >= 0 && id < static_cast<int>(c.logits.size()));
  }
  return 0;
}
