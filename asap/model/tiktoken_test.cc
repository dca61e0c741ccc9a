#include "asap/model/tiktoken.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asap/model/tokenizer_test_util.h"

namespace asap {
namespace {

using nlohmann::json;

const std::string kFolder = (kGoldenTokenizers / "tiktoken_kimi").string();

TEST(Tiktoken, AgreesBothWays) {
  const Result<Tokenizer> t = Tokenizer::load(kFolder);
  ASSERT_TRUE(t) << t.error().message;
  const std::vector<json> cases = golden_lines("tiktoken_kimi/cases.jsonl");
  EXPECT_GE(cases.size(), 130u);
  for (const json& expected : cases) {
    const auto text = expected["text"].get<std::string>();
    const auto ids = expected["ids"].get<Ids>();
    EXPECT_EQ(t->encode(text, false), ids) << text;
    EXPECT_EQ(t->encode(text, true), ids) << text;
    for (const bool skip : {false, true}) {
      const auto decoded = expected[skip ? "decoded_skip_special" : "decoded"].get<std::string>();
      EXPECT_EQ(t->decode(ids, skip), decoded);
      EXPECT_EQ(streamed(*t, ids, skip), decoded);
    }
  }
}

TEST(Tiktoken, SpecialTokensFollowTheRanks) {
  const std::string model = read_all(kFolder + "/tiktoken.model");
  const auto base = static_cast<int32_t>(parse_tiktoken(model)->size());
  const Result<Tokenizer> t = Tokenizer::load(kFolder);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->vocab_size(), base + 256);
  EXPECT_EQ(t->id_of("[BOS]"), base);
  EXPECT_EQ(t->id_of("[PAD]"), base + 255);
  EXPECT_TRUE(t->is_special(base + 100));
  EXPECT_FALSE(t->is_special(t->id_of("<|tool_call_begin|>")));
  EXPECT_EQ(t->id_of(fmt::format("<|reserved_token_{}|>", base + 100)), base + 100);
  EXPECT_EQ(t->id_of("<|reserved_token_100|>"), -1);

  json config = json::parse(read_all(kFolder + "/tokenizer_config.json"));
  config["add_bos_token"] = config["add_eos_token"] = true;
  const Result<Tokenizer> both = Tokenizer::parse_tiktoken(model, config.dump());
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->encode("", true), (Ids{base, base + 1}));
  // Without a configuration every special token is a reserved one.
  const Result<Tokenizer> bare = Tokenizer::parse_tiktoken(model, "");
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_EQ(bare->id_of("[BOS]"), -1);
  EXPECT_EQ(bare->vocab_size(), base + 256);
}

TEST(Tiktoken, IsReadOnlyWithoutTokenizerJson) {
  const TemporaryDirectory folder;
  folder.write("tiktoken.model", read_all(kFolder + "/tiktoken.model"));
  const Result<Tokenizer> ranks = Tokenizer::load(folder.path());
  ASSERT_TRUE(ranks) << ranks.error().message;
  folder.write("tokenizer.json", small_file().dump());
  const Result<Tokenizer> both = Tokenizer::load(folder.path());
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->vocab_size(), 302);
}

// A valid file of the 256 bytes, then `more`.
std::string with_bytes(const std::string& more) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (int byte = 0; byte < 256; ++byte) {
    out += fmt::format("{}{}== {}\n", kDigits[byte >> 2], kDigits[byte << 4 & 0x3F], byte);
  }
  return out + more;
}

TEST(Tiktoken, ReadsLines) {
  const Result<std::vector<std::string>> tokens =
      parse_tiktoken(with_bytes("\nYWI= 257\r\nYWJj 256"));
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ((*tokens)['a'], "a");
  EXPECT_EQ((*tokens)[256], "abc");
  EXPECT_EQ((*tokens)[257], "ab");
}

TEST(Tiktoken, RefusesNonsense) {
  const std::string good = with_bytes("");
  const std::pair<std::string, const char*> table[] = {
      {"", "byte 0x00"},
      {good.substr(good.find('\n') + 1), "id 255"},
      {with_bytes("YWI=\n"), "line 257"},
      {with_bytes("YWI= 256 1\n"), "line 257"},
      {with_bytes("YWI= -1\n"), "line 257"},
      {with_bytes("YWI= 99999999999\n"), "line 257"},
      {with_bytes("YWI 256\n"), "line 257"},
      {with_bytes("YWJ= 256\n"), "line 257"},  // bits left over
      {with_bytes("Y=I= 256\n"), "line 257"},
      {with_bytes("==== 256\n"), "line 257"},
      {with_bytes(" 256\n"), "line 257"},
      {with_bytes("YWI= 258\n"), "id 258"},
      {with_bytes("YWI= 97\n"), "id 97"},
      {with_bytes("YQ== 256\n"), "id 256"},
      {with_bytes(std::string(9000, 'A') + " 256\n"), "line 257"},
  };
  for (const auto& [text, names] : table) {
    expect_error(Tokenizer::parse_tiktoken(text, ""), Code::invalid, {"tiktoken.model", names});
  }
  const std::pair<const char*, const char*> configs[] = {
      {R"({"added_tokens_decoder": []})", "added_tokens_decoder"},
      {R"({"added_tokens_decoder": {"255": {"content": "x"}}})", "\"255\""},
      {R"({"added_tokens_decoder": {"a": {"content": "x"}}})", "\"a\""},
      {R"({"added_tokens_decoder": {"256": 1}})", "added_tokens_decoder"},
      {R"({"added_tokens_decoder": {"256": {"content": 1}}})", "content"},
      {R"({"added_tokens_decoder": {"256": {"content": "a"}}})", "two ids"},
      {R"({"added_tokens_decoder": {"256": {"content": "x"}, "257": {"content": "x"}}})",
       "two ids"},
      {R"({"add_bos_token": true, "bos_token": "[BOS]"})", "[BOS]"},
  };
  for (const auto& [config, names] : configs) {
    expect_error(Tokenizer::parse_tiktoken(good, config), Code::invalid, {names});
  }
}

}  // namespace
}  // namespace asap
