// Files that are refused, by name.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asap/base/prng.h"
#include "asap/model/tokenizer.h"
#include "asap/model/tokenizer_test_util.h"

namespace asap {
namespace {

using nlohmann::json;

void expect_refused(const json& file, Code code, const std::string& names,
                    const std::string& config = "") {
  const Result<Tokenizer> out = Tokenizer::parse(file.dump(), config);
  ASSERT_FALSE(out) << names;
  EXPECT_EQ(out.error().code, code) << out.error().message;
  EXPECT_NE(out.error().message.find(names), std::string::npos) << out.error().message;
}

// One change to the small file, and what the error has to name.
struct Change {
  const char* pointer;
  json value;
  const char* names;
};

void expect_each_refused(const std::vector<Change>& changes, Code code) {
  for (const Change& change : changes) {
    json file = small_file();
    file[json::json_pointer(change.pointer)] = change.value;
    expect_refused(file, code, change.names);
  }
}

TEST(TokenizerFile, NamesWhatIsNotSupported) {
  const std::vector<Change> table = {
      {"/model/type", "WordPiece", "WordPiece"},
      {"/model/dropout", 0.5, "dropout"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "##", "continuing_subword_prefix"},
      {"/normalizer", {{"type", "Precompiled"}}, "Precompiled"},
      {"/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Nmt"}}}}}, "Nmt"},
      {"/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "BertPreTokenizer"},
      {"/post_processor", {{"type", "PairProcessing"}}, "PairProcessing"},
      {"/decoder", {{"type", "WordPiece"}}, "WordPiece"},
      {"/decoder", nullptr, "none"},
      {"/decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "CTC"}}}}}, "CTC"},
      {"/pre_tokenizer/type", "FixedLength", "FixedLength"},
  };
  expect_each_refused(table, Code::unsupported);
}

// Combinations whose meaning depends on what is not kept here.
TEST(TokenizerFile, NamesCombinationsThatAreNotSupported) {
  const json first = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  json file = spm_file("ab", {});
  file["pre_tokenizer"] = first;
  expect_refused(file, Code::unsupported, "after a normalizer");
  file["normalizer"] = nullptr;
  EXPECT_TRUE(Tokenizer::parse(file.dump(), ""));
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {first, first}}};
  expect_refused(file, Code::unsupported, "after another Metaspace");

  file = small_file();
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {file["pre_tokenizer"], {{"type", "Digits"}}}}};
  expect_refused(file, Code::unsupported, "Digits after ByteLevel");
  file = small_file();
  file["model"]["byte_fallback"] = true;
  EXPECT_TRUE(Tokenizer::parse(file.dump(), ""));  // every byte has a token: nothing falls back
  file["model"]["vocab"].erase("x");
  expect_refused(file, Code::unsupported, "byte_fallback with ByteLevel");

  file = small_file();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"].push_back({{"id", 302}, {"content", "XY"}});
  EXPECT_TRUE(Tokenizer::parse(file.dump(), ""));
  file["added_tokens"].push_back({{"id", 303}, {"content", "Xy"}});
  expect_refused(file, Code::unsupported, "added token 303");
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}};
  file["added_tokens"].push_back({{"id", 304}, {"content", "  "}});
  expect_refused(file, Code::unsupported, "added token 304");
}

TEST(TokenizerFile, RefusesNonsense) {
  const json token = {{"id", 302}, {"content", "x1"}};
  const auto with = [&](const char* key, const json& value) {
    json out = token;
    out[key] = value;
    return json::array({out});
  };
  const std::vector<Change> table = {
      {"/model", nullptr, "model"},
      {"/model/vocab", json::array(), "vocab"},
      {"/model/vocab/a", -1, "\"a\""},
      {"/model/vocab/a", 1 << 24, "\"a\""},
      {"/model/vocab/a", 1.5, "\"a\""},
      {"/model/vocab/a", 98, "id 98"},
      {"/model/vocab/a", nullptr, "\"a\""},
      {"/model/merges", "a b", "merges"},
      {"/model/merges/1", "a b c", "merges[1]"},
      {"/model/merges/1", {"a"}, "merges[1]"},
      {"/model/merges/1", "a c", "merges[1]"},
      {"/model/unk_token", "<unk>", "<unk>"},
      {"/added_tokens", 5, "added_tokens"},
      {"/added_tokens", {5}, "added_tokens"},
      {"/added_tokens", with("id", 1 << 24), "id"},
      {"/added_tokens", with("id", 97), "id 97"},
      {"/added_tokens", with("content", "ab"), "two ids"},
      {"/added_tokens", with("content", std::string(5000, 'x')), "5000 bytes"},
      {"/added_tokens", with("special", "yes"), "special"},
  };
  expect_each_refused(table, Code::invalid);
  const json file = small_file();
  expect_refused(file, Code::invalid, "bos_token", R"({"add_bos_token": true})");
  expect_refused(file, Code::invalid, "<q>", R"({"add_bos_token": true, "bos_token": "<q>"})");
  expect_refused(file, Code::invalid, "add_bos_token", R"({"add_bos_token": "yes"})");
  expect_refused(file, Code::invalid, "eos_token", R"({"add_eos_token": true, "eos_token": 1})");
  expect_refused(file, Code::invalid, "tokenizer_config.json", "[");
}

TEST(TokenizerFile, RefusesNonsenseInComponents) {
  const json bad_regex = split_config({{"Regex", "[a"}}, "Isolated");
  const std::vector<Change> table = {
      {"/pre_tokenizer", bad_regex, "[a"},
      {"/pre_tokenizer", split_config(json::object(), "Isolated"), "pattern"},
      {"/pre_tokenizer", split_config({{"Regex", "a"}}, "Sideways"), "Sideways"},
      {"/post_processor", {{"type", "TemplateProcessing"}}, "single"},
      {"/post_processor", {{"type", "TemplateProcessing"}, {"single", {1}}}, "single"},
      {"/post_processor", {{"type", "BertProcessing"}, {"cls", {"<s>", 999}}}, "id 999"},
      {"/post_processor", {{"type", "RobertaProcessing"}}, "cls"},
      {"/normalizer", 1, "normalizer"},
      {"/normalizer", {{"type", "Prepend"}}, "prepend"},
      {"/normalizer", {{"type", "Replace"}, {"content", "x"}}, "pattern"},
      {"/normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}}}}, "content"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(2000, 'x')}},
       "1024 times"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "replacement"},
      {"/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "__"}}, "replacement"},
      {"/pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}},
       "last"},
      {"/pre_tokenizer",
       {{"type", "Metaspace"},
        {"replacement", "_"},
        {"prepend_scheme", "first"},
        {"add_prefix_space", false}},
       "add_prefix_space"},
      {"/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", ""}}, "delimiter"},
      {"/decoder", {{"type", "Strip"}, {"content", "ab"}}, "content"},
      {"/decoder", {{"type", "Strip"}, {"content", "a"}, {"start", -1}}, "start"},
      {"/decoder", {{"type", "Sequence"}}, "decoders"},
  };
  expect_each_refused(table, Code::invalid);
}

TEST(TokenizerFile, RefusesBrokenAndDeepJson) {
  const std::string nested(100'000, '[');
  for (const std::string& text : {std::string(), std::string("null"), nested,
                                  "{\"a\":" + nested + std::string(100'000, ']') + "}",
                                  std::string("{\"\\\"[\": \"\xFF\"}")}) {
    const Result<Tokenizer> out = Tokenizer::parse(text, "");
    ASSERT_FALSE(out);
    EXPECT_EQ(out.error().code, Code::invalid) << out.error().message;
  }
}

TEST(TokenizerFile, SaysWhichFileIsMissing) {
  const Result<Tokenizer> out = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Code::not_found);
  EXPECT_NE(out.error().message.find("/nonexistent/tokenizer.json"), std::string::npos);
}

// What the fuzz targets start from has to be worth starting from.
TEST(TokenizerFile, FuzzSeedsAreValid) {
  const std::filesystem::path seeds = std::filesystem::path(ASAP_SOURCE_DIR) / "tests/fuzz";
  int valid = 0;
  for (const auto& entry : std::filesystem::directory_iterator(seeds / "tokenizer_fuzz")) {
    const std::string text = read_all(entry.path());
    const std::string file = text.substr(0, text.find('\0'));
    if (file.empty()) continue;
    const Result<Tokenizer> out = Tokenizer::parse(file, "");
    EXPECT_TRUE(out) << entry.path() << ": " << out.error().message;
    valid += out.has_value() ? 1 : 0;
  }
  EXPECT_GE(valid, 7);
}

TEST(TokenizerFile, SurvivesDamage) {
  const std::string good = golden_text("bytelevel_split/tokenizer.json");
  Prng random(11);
  for (int round = 0; round < 300; ++round) {
    std::string text = good;
    for (uint64_t i = 0; i <= random.next() % 4; ++i) {
      const size_t at = random.below(text.size());
      if (random.next() % 2 == 0) {
        text[at] = static_cast<char>(random.next() & 0x7F);
      } else {
        text.erase(at, random.next() % 30);
      }
    }
    const Result<Tokenizer> out = Tokenizer::parse(text, "");
    if (out) {
      const Ids ids = out->encode("a cat <mask> 12 é世\n", true);
      EXPECT_TRUE(is_utf8(out->decode(ids, false)));
    } else {
      EXPECT_FALSE(out.error().message.empty());
    }
  }
}

}  // namespace
}  // namespace asap
