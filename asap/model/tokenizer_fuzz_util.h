// What holds for every tokenizer, whatever file it came from: for the fuzz targets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "asap/base/check.h"
#include "asap/model/tokenizer.h"
#include "asap/model/utf8.h"

namespace asap {

constexpr size_t kMaxFuzzText = 4096;

// Nothing crashes, ids are tokens, output is UTF-8, and a stream gives what decode gives.
inline void exercise(const Tokenizer& tokenizer, std::string_view text) {
  text = text.substr(0, kMaxFuzzText);
  std::vector<int32_t> ids = tokenizer.encode(text, true);
  for (const int32_t id : ids) {
    CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {} of {}", id, tokenizer.vocab_size());
  }
  const size_t most = tokenizer.most_bytes_per_id();
  CHECK(most == 0 || ids.size() >= text.size() / most, "{} ids, {} bytes, {} each", ids.size(),
        text.size(), most);
  // Ids that no text gives, too.
  for (const char c : text.substr(0, 64)) ids.push_back(static_cast<uint8_t>(c));
  for (const bool skip_special : {false, true}) {
    const std::string decoded = tokenizer.decode(ids, skip_special);
    CHECK(is_utf8(decoded));
    StreamDecoder stream(tokenizer, skip_special);
    std::string streamed;
    for (const int32_t id : ids) {
      const std::string part = stream.push(id);
      CHECK(is_utf8(part));
      streamed += part;
    }
    CHECK(streamed + stream.flush() == decoded);
  }
}

}  // namespace asap
