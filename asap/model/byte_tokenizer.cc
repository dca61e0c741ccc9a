#include "asap/model/byte_tokenizer.h"

#include <nlohmann/json.hpp>

#include "asap/base/check.h"
#include "asap/model/utf8.h"

namespace asap {

// Byte-level vocabularies spell a byte as one printable character: itself, or, where it has none,
// the next one from U+0100 on.
Tokenizer byte_tokenizer() {
  const auto printable = [](int byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  };
  nlohmann::json vocab = nlohmann::json::object();
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(printable(byte) ? static_cast<char32_t>(byte) : next++, &character);
    vocab[character] = byte;
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const nlohmann::json file = {
      {"pre_tokenizer", byte_level},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  auto tokenizer = Tokenizer::parse(file.dump(), "");
  CHECK(tokenizer.has_value(), "{}", tokenizer.error().message);
  return std::move(*tokenizer);
}

}  // namespace asap
