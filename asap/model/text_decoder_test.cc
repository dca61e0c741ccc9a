#include "asap/model/text_decoder.h"

#include <gtest/gtest.h>

#include "asap/base/prng.h"
#include "asap/model/tokenizer_test_util.h"

namespace asap {
namespace {

using nlohmann::json;

TEST(StreamDecoder, NeverEmitsHalfACharacter) {
  const Tokenizer t = make(small_file());  // one token per byte
  StreamDecoder stream(t, true);
  std::vector<std::string> out;
  for (const unsigned char byte : std::string("中😀!")) out.push_back(stream.push(byte));
  EXPECT_EQ(out, (std::vector<std::string>{"", "", "中", "", "", "", "😀", "!"}));
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push('a'), "\uFFFDa");  // these bytes will never be a character
  EXPECT_EQ(stream.push(0xFF), "\uFFFD");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push(300), "");  // a skipped special token leaves the wait as it is
  EXPECT_EQ(stream.push(0xB8), "");
  EXPECT_EQ(stream.push(0xAD), "中");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
  StreamDecoder loud(t, false);
  EXPECT_EQ(loud.push(0xE4), "");
  EXPECT_EQ(loud.push(300), "\uFFFD<s>");
}

TEST(StreamDecoder, GivesWhatDecodeGives) {
  const Tokenizer t = make(small_file());
  Prng random(5);
  for (int round = 0; round < 500; ++round) {
    Ids ids;
    for (int i = 0; i < 30; ++i) ids.push_back(static_cast<int32_t>(0x80 + random.next() % 200));
    StreamDecoder stream(t, true);
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    EXPECT_EQ(text + stream.flush(), t.decode(ids, true));
  }
}

// What the decoder of `config` makes of tokens, all at once.
std::string decoded(const json& config, const std::vector<std::string>& tokens) {
  const Result<TextDecoder> decoder = TextDecoder::parse(config);
  if (!decoder) throw std::runtime_error(decoder.error().message);
  TextDecoder::State state;
  std::string out;
  for (const std::string& token : tokens) decoder->push(decoder->prepared(token), &state, &out);
  decoder->finish(&state, &out);
  return out;
}

json sequence(const json& steps) {
  return {{"type", "Sequence"}, {"decoders", steps}};
}
json replace(const char* what, const char* by) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
}
json strip(const char* what, int start, int stop) {
  return {{"type", "Strip"}, {"content", what}, {"start", start}, {"stop", stop}};
}

TEST(TextDecoder, Steps) {
  const json bytes = {{"type", "ByteFallback"}}, fuse = {{"type", "Fuse"}};
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}};
  const json never = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}};
  const struct {
    json config;
    std::vector<std::string> tokens;
    std::string expected;
  } table[] = {
      {bytes, {"<0xE4>", "<0xb8>", "<0x96>", "a"}, "世a"},
      {bytes, {"<0xE4>", "<0xB8>", "a"}, "\uFFFD\uFFFDa"},
      // A run that is not UTF-8 as a whole is lost as a whole.
      {bytes, {"<0x61>", "<0xE4>"}, "\uFFFD\uFFFD"},
      {bytes, {"<0x6g>", "<0x61", "<0x61>>"}, "<0x6g><0x61<0x61>>"},
      {metaspace, {"▁a▁", "▁b"}, "a b"},
      {never, {"▁a", "▁b"}, " a b"},
      {replace("ab", "x"), {"aab", "b", "a", "b"}, "axbab"},
      {sequence({fuse, replace("ab", "x")}), {"aab", "b", "a", "b"}, "axbx"},
      {strip("a", 1, 1), {"aaa", "ab", "a"}, "ab"},
      {sequence({fuse, strip("a", 2, 1)}), {"a", "aa", "b", "a", "a"}, "aba"},
      {sequence({fuse, strip(" ", 1, 0)}), {"", " ", " b"}, " b"},
      {sequence({fuse, strip(" ", 1, 1)}), {" "}, ""},
      {sequence({fuse, bytes}), {"<0x", "41>"}, "A"},
      {sequence({replace("▁", " "), bytes, fuse, strip(" ", 1, 0)}),
       {"▁a", "<0x20>", "▁", "<0xC3>", "<0xA9>"},
       "a  é"},
  };
  for (const auto& row : table) EXPECT_EQ(decoded(row.config, row.tokens), row.expected);
}

TEST(TextDecoder, HoldsBackOnlyWhatMayChange) {
  const Tokenizer t = make(spm_file("▁ab世", {"▁ a"}));
  StreamDecoder stream(t, true);
  const auto push = [&](const char* token) { return stream.push(t.id_of(token)); };
  EXPECT_EQ(push("▁"), "");  // the space before the text
  EXPECT_EQ(push("▁a"), " a");
  EXPECT_EQ(push("<0xC3>"), "");
  EXPECT_EQ(push("<0xA9>"), "");  // a byte more would spoil it
  EXPECT_EQ(push("b"), "éb");
  EXPECT_EQ(push("<0xC3>"), "");
  EXPECT_EQ(push("<s>"), "");  // skipped: the run goes on
  EXPECT_EQ(push("<0xA9>"), "");
  EXPECT_EQ(stream.flush(), "é");
  EXPECT_EQ(push("▁a"), "a");  // as new
}

}  // namespace
}  // namespace asap
