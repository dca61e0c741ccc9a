#include "asap/model/byte_tokenizer.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

TEST(ByteTokenizer, TokensAreBytes) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::string text = "Hello, w\xC3\xB6rld\n\t\x01\x7F 12345 'tis \xE4\xBD\xA0";
  std::vector<int32_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  EXPECT_EQ(tokenizer.encode(text, true), bytes);
  EXPECT_EQ(tokenizer.decode(bytes, true), text);
  EXPECT_EQ(tokenizer.vocab_size(), 256);
}

TEST(ByteTokenizer, EveryByteIsAToken) {
  const Tokenizer tokenizer = byte_tokenizer();
  for (int32_t id = 0; id < 256; ++id) {
    EXPECT_EQ(tokenizer.token_bytes(id, false), std::string(1, static_cast<char>(id)));
  }
}

TEST(ByteTokenizer, HigherIdsAreNoText) {
  EXPECT_EQ(byte_tokenizer().decode({'a', 256, 'b', 129279}, false), "ab");
}

}  // namespace
}  // namespace asap
