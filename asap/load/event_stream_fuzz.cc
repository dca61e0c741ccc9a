// Fuzz target: a server's stream. Cut in two anywhere, it gives the same events as in one piece,
// and no event holds a time that is none.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "asap/base/check.h"
#include "asap/load/event_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  asap::EventStream whole;
  const auto expected = whole.push(text);
  const size_t cut = text.size() * data[0] / 256;
  asap::EventStream pieces;
  auto events = pieces.push(text.substr(0, cut));
  for (auto& event : pieces.push(text.substr(cut))) events.push_back(std::move(event));
  CHECK(events.size() == expected.size(), "{} {}", events.size(), expected.size());
  for (size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i].token == expected[i].token && events[i].error == expected[i].error);
    CHECK(events[i].prompt_tokens >= 0 && events[i].completion_tokens >= 0);
    CHECK(events[i].parts.has_value() == expected[i].parts.has_value());
    for (const asap::TimePart& part : asap::kTimeParts) {
      if (!events[i].parts) break;
      const double value = *events[i].parts.*part.value;
      CHECK(std::isfinite(value) && value >= 0);
    }
  }
  return 0;
}
