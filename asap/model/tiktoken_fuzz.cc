// Fuzzes tiktoken.model and the names that tokenizer_config.json gives to its special tokens.
//
// The input is tiktoken.model, a zero byte, tokenizer_config.json, a zero byte, then a text. Unless
// it begins with a line feed, the lines of the 256 single bytes, which every such file needs, are
// put before it.
#include <cstdint>
#include <string>
#include <string_view>

#include "asap/base/check.h"
#include "asap/model/tokenizer_fuzz_util.h"

namespace {

std::string lines_of_bytes() {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (int byte = 0; byte < 256; ++byte) {
    out += fmt::format("{}{}== {}\n", kDigits[byte >> 2], kDigits[byte << 4 & 0x3F], byte);
  }
  return out;
}

// What stands before the next zero byte.
std::string_view take(std::string_view* input) {
  const size_t end = std::min(input->find('\0'), input->size());
  const std::string_view part = input->substr(0, end);
  input->remove_prefix(std::min(end + 1, input->size()));
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string bytes = lines_of_bytes();
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string model(take(&input));
  if (!model.starts_with('\n')) model.insert(0, bytes);
  const std::string config(take(&input));
  const auto parsed = asap::Tokenizer::parse_tiktoken(model, config);
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  asap::exercise(*parsed, input);
  if (!config.empty()) return 0;  // its special tokens may absorb space
  const std::string_view text = input.substr(0, asap::kMaxFuzzText);
  CHECK(parsed->decode(parsed->encode(text, false), false) == asap::repair_utf8(text));
  return 0;
}
