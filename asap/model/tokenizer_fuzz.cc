// Fuzzes the tokenizer: tokenizer.json as hostile text, and any text against a good file.
//
// The first byte chooses. Even: the rest is tokenizer.json, a zero byte, then text. Odd: the rest
// is text.
#include <cstdint>
#include <string>
#include <string_view>

#include "asap/base/check.h"
#include "asap/model/tokenizer.h"
#include "asap/model/utf8.h"

namespace {

using asap::Tokenizer;

constexpr size_t kMaxText = 4096;

// What holds for every tokenizer: nothing crashes, output is UTF-8, and a stream gives what decode
// gives.
void exercise(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text, true);
  for (const int32_t id : ids) {
    CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {} of {}", id, tokenizer.vocab_size());
  }
  for (const bool skip_special : {false, true}) {
    const std::string decoded = tokenizer.decode(ids, skip_special);
    CHECK(asap::is_utf8(decoded));
    asap::StreamDecoder stream(tokenizer, skip_special);
    std::string streamed;
    for (const int32_t id : ids) {
      const std::string text_now = stream.push(id);
      CHECK(asap::is_utf8(text_now));
      streamed += text_now;
    }
    CHECK(streamed + stream.flush() == decoded);
  }
}

// A token per byte, two merges, the pattern of Qwen and a special token.
std::string good_file() {
  std::string vocab = R"("th":256,"the":257)";
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  char32_t moved = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    asap::append_utf8(printable(byte) ? static_cast<char32_t>(byte) : moved++, &name);
    if (name == "\"" || name == "\\") name.insert(0, "\\");
    vocab += fmt::format(R"(,"{}":{})", name, byte);
  }
  return R"({"added_tokens":[{"id":300,"content":"<s>","special":true,"normalized":false}],
    "pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated",
      "pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|)"
         R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
      {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},
    "decoder":{"type":"ByteLevel"},
    "model":{"type":"BPE","merges":["t h","th e"],"vocab":{)" +
         vocab + "}}}";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto good = Tokenizer::parse(good_file(), "");
  CHECK(good.has_value(), "{}", good.error().message);
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) {
    exercise(*good, input);
    CHECK(good->decode(good->encode(input, false), false) == asap::repair_utf8(input));
    return 0;
  }
  const size_t end = std::min(input.find('\0'), input.size());
  const auto parsed = Tokenizer::parse(std::string(input.substr(0, end)), "");
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
  } else {
    exercise(*parsed, input.substr(end).substr(0, kMaxText));
  }
  return 0;
}
