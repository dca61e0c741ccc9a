// What the tests of this folder's tokenizer files share: the golden files, and a small one of their
// own.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "asap/model/test_support.h"
#include "asap/model/tokenizer.h"
#include "asap/model/utf8.h"

namespace asap {

using Ids = std::vector<int32_t>;

inline const std::filesystem::path kGoldenTokenizers =
    std::filesystem::path(ASAP_SOURCE_DIR) / "tests/golden/tokenizers";

// The text of a golden file, unpacked if only FILE.xz is there.
inline std::string golden_text(const std::string& file) {
  const std::filesystem::path plain = kGoldenTokenizers / file;
  if (std::filesystem::exists(plain)) return read_all(plain);
  const TemporaryDirectory folder;
  const std::string out = folder.path() + "/unpacked";
  const std::string command = fmt::format("xz -dc '{}.xz' > '{}'", plain.string(), out);
  EXPECT_EQ(std::system(command.c_str()), 0) << command << " (is xz-utils installed?)";
  return read_all(out);
}

// The objects of a golden file that holds one a line.
inline std::vector<nlohmann::json> golden_lines(const std::string& file) {
  std::istringstream text(golden_text(file));
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(text, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

// Name of every printable stand-in of a byte, in the byte alphabet of GPT-2.
inline std::string alphabet(uint8_t byte) {
  std::string out;
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  char32_t moved = 0x100;
  for (int b = 0; b < byte; ++b) moved += printable(b) ? 0 : 1;
  append_utf8(printable(byte) ? byte : moved, &out);
  return out;
}

// A small valid tokenizer.json: 256 bytes with their value as id, merges ab=256, abab=257, aa=258,
// and two added tokens.
inline nlohmann::json small_file() {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[alphabet(static_cast<uint8_t>(byte))] = byte;
  vocab.update({{"ab", 256}, {"abab", 257}, {"aa", 258}, {"zz", 259}});
  return {
      {"added_tokens",
       {{{"id", 300}, {"content", "<s>"}, {"normalized", false}, {"special", true}},
        {{"id", 301}, {"content", "</s>"}, {"normalized", false}, {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab ab", "a a"}}}}};
}

inline Tokenizer make(const nlohmann::json& file, const std::string& config = "") {
  Result<Tokenizer> out = Tokenizer::parse(file.dump(), config);
  if (!out) throw std::runtime_error(out.error().message);  // fails the test with the message
  return std::move(*out);
}

// A Split and a ByteLevel that does nothing else.
inline nlohmann::json split_config(const nlohmann::json& pattern, const std::string& behavior,
                                   bool invert = false) {
  const nlohmann::json split = {
      {"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
  const nlohmann::json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
}

// A SentencePiece-style one: <unk>=0, <s>=1, the bytes 3 to 258, then the characters of `text` and
// what `merges` ("a b") makes of them. Spaces become U+2581, and one is put before a text.
inline nlohmann::json spm_file(const std::string& text, const std::vector<std::string>& merges) {
  nlohmann::json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  const auto add = [&](const std::string& token) {
    if (!vocab.contains(token)) vocab[token] = vocab.size();
  };
  for (size_t at = 0; at < text.size(); at += utf8_at(text, at).length) {
    add(text.substr(at, utf8_at(text, at).length));
  }
  for (std::string merge : merges) add(merge.erase(merge.find(' '), 1));
  nlohmann::json file = nlohmann::json::parse(R"({
    "added_tokens": [{"id": 1, "content": "<s>", "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true}})");
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = merges;
  return file;
}

// What a stream of `ids` gives; every part of it has to be UTF-8.
inline std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  StreamDecoder stream(tokenizer, skip_special);
  std::string out;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id);
    EXPECT_TRUE(is_utf8(part));
    out += part;
  }
  return out + stream.flush();
}

}  // namespace asap
