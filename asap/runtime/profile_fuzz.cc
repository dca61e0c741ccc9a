// Fuzzes profile files: what is accepted prices batches with finite, non-negative times, and comes
// back from its own text.
#include <string>

#include "asap/base/check.h"
#include "asap/runtime/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto profile = asap::parse_profile(text, "fuzz");
  if (!profile) {
    CHECK(!profile.error().message.empty(), "an error without a message");
    return 0;
  }
  for (const int tokens : {1, 4096}) {
    CHECK(profile->attention(tokens, 1e6, 4).ns >= 0);
    CHECK(profile->experts(tokens, 4).ns >= 0);
    CHECK(profile->all_to_all(tokens, 4).ns >= 0);
  }
  const std::string written = asap::profile_text(*profile);
  const auto again = asap::parse_profile(written, "again");
  CHECK(again.has_value(), "{}: {}", again.error().message, written);
  CHECK(asap::profile_text(*again) == written, "{}", written);
  return 0;
}
