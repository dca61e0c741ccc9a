// Fuzzes the tokenizer: tokenizer.json as hostile text, and any text against good files.
//
// The input is tokenizer.json, a zero byte, then a text; the good files are taken if nothing stands
// before the zero byte.
#include <cstdint>
#include <string>
#include <string_view>

#include "asap/base/check.h"
#include "asap/model/tokenizer_fuzz_util.h"

namespace {

using asap::Tokenizer;

// A token per byte, two merges, the pattern of Qwen and a special token.
std::string byte_level_file() {
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

// SentencePiece style: a token per byte, a few characters and merges.
std::string spm_file() {
  std::string vocab = R"("<unk>":0,"▁":1,"a":2,"b":3,"▁a":4,"ab":5,"▁▁":6,"é":7)";
  for (int byte = 0; byte < 256; ++byte) {
    vocab += fmt::format(R"(,"<0x{:02X}>":{})", byte, 8 + byte);
  }
  return R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
      {"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
    "decoder":{"type":"Sequence","decoders":[
      {"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},
      {"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
    "model":{"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":"<unk>",
      "merges":["▁ ▁","▁ a","a b"],"vocab":{)" +
         vocab + "}}}";
}

// Every text comes back from the good files.
void check_good_files(std::string_view text) {
  static const auto bytes = Tokenizer::parse(byte_level_file(), "");
  static const auto characters = Tokenizer::parse(spm_file(), "");
  CHECK(bytes.has_value(), "{}", bytes.error().message);
  CHECK(characters.has_value(), "{}", characters.error().message);
  text = text.substr(0, asap::kMaxFuzzText);
  asap::exercise(*bytes, text);
  asap::exercise(*characters, text);
  std::string expected = asap::repair_utf8(text);
  CHECK(bytes->decode(bytes->encode(text, false), false) == expected);
  for (size_t at = 0; (at = expected.find("▁", at)) != expected.npos;) {
    expected.replace(at, 3, " ");  // the character that stands for a space
  }
  CHECK(characters->decode(characters->encode(text, false), false) == expected);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  if (end == 0) {
    check_good_files(text);
    return 0;
  }
  const auto parsed = Tokenizer::parse(std::string(input.substr(0, end)), "");
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
  } else {
    asap::exercise(*parsed, text);
  }
  return 0;
}
