#include "asap/model/pretokenizer.h"

#include <gtest/gtest.h>

#include <deque>

#include "asap/base/prng.h"
#include "asap/model/regex.h"
#include "asap/model/tokenizer_test_util.h"

namespace asap {
namespace {

using nlohmann::json;

std::vector<std::string> pieces(const json& config, const std::string& text,
                                bool beginning = true) {
  const Result<Pretokenizer> pretokenizer = Pretokenizer::parse(config);
  if (!pretokenizer) throw std::runtime_error(pretokenizer.error().message);
  std::deque<std::string> arena;
  std::vector<std::string_view> views;
  pretokenizer->split(text, beginning, &arena, &views);
  return {views.begin(), views.end()};
}

TEST(Pretokenizer, SplitBehaviors) {
  using List = std::vector<std::string>;
  const struct {
    const char* behavior;
    bool invert;
    List expected;
  } table[] = {
      {"Isolated", false, {"the", "-", "final", "-", "-", "count"}},
      {"Removed", false, {"the", "final", "count"}},
      {"Removed", true, {"-", "-", "-"}},
      {"MergedWithPrevious", false, {"the-", "final-", "-", "count"}},
      {"MergedWithNext", false, {"the", "-final", "-", "-count"}},
      {"Contiguous", false, {"the", "-", "final", "--", "count"}},
  };
  for (const auto& row : table) {
    for (const char* kind : {"Regex", "String"}) {
      const json config = split_config({{kind, "-"}}, row.behavior, row.invert);
      EXPECT_EQ(pieces(config, "the-final--count"), row.expected) << row.behavior << " " << kind;
    }
  }
}

TEST(Pretokenizer, StepsWorkOnThePiecesBefore) {
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const json runs = {{"type", "Digits"}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
  using List = std::vector<std::string>;
  const auto sequence = [](const json& list) {
    return json{{"type", "Sequence"}, {"pretokenizers", list}};
  };
  EXPECT_EQ(pieces(sequence({digits, bytes}), "a12 b"), (List{" a", " 1", " 2", " b"}));
  EXPECT_EQ(pieces(sequence({runs, bytes}), "a12 b"), (List{" a", " 12", " b"}));
  EXPECT_EQ(pieces({{"type", "ByteLevel"}}, "It's 12  x"), (List{" It", "'s", " 12", " ", " x"}));
}

TEST(Pretokenizer, PlainSteps) {
  using List = std::vector<std::string>;
  EXPECT_EQ(pieces(nullptr, "a b"), List{"a b"});
  EXPECT_EQ(pieces({{"type", "WhitespaceSplit"}}, " a,b \u3000c\n"), (List{"a,b", "c"}));
  // A half is no word character, a combining mark and a joiner are.
  EXPECT_EQ(pieces({{"type", "Whitespace"}}, "don't  e\u0301\u200D_1 \u00BD!"),
            (List{"don", "'", "t", "e\u0301\u200D_1", "\u00BD!"}));
  EXPECT_EQ(pieces({{"type", "Punctuation"}}, "a,$b\u3002"), (List{"a", ",", "$", "b", "\u3002"}));
  EXPECT_EQ(pieces({{"type", "Punctuation"}, {"behavior", "MergedWithPrevious"}}, "a,,b"),
            (List{"a,", ",", "b"}));
  EXPECT_EQ(pieces({{"type", "CharDelimiterSplit"}, {"delimiter", "世"}}, "a世世b"),
            (List{"a", "b"}));
}

TEST(Pretokenizer, MetaspacePutsAndCuts) {
  using List = std::vector<std::string>;
  const auto metaspace = [](const json& more) {
    json out = {{"type", "Metaspace"}, {"replacement", "_"}};
    out.update(more);
    return out;
  };
  EXPECT_EQ(pieces(metaspace(json::object()), "a  b"), (List{"_a", "_", "_b"}));
  EXPECT_EQ(pieces(metaspace(json::object()), " a"), List{"_a"});
  EXPECT_EQ(pieces(metaspace({{"add_prefix_space", false}}), "a b"), (List{"a", "_b"}));
  EXPECT_EQ(pieces(metaspace({{"prepend_scheme", "never"}}), "a b"), (List{"a", "_b"}));
  EXPECT_EQ(pieces(metaspace({{"split", false}}), "a b"), List{"_a_b"});
  const json first = metaspace({{"prepend_scheme", "first"}, {"split", false}});
  EXPECT_EQ(pieces(first, "a b"), List{"_a_b"});
  EXPECT_EQ(pieces(first, "a b", /*beginning=*/false), List{"a_b"});
  const json cut = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}}, first}}};
  EXPECT_EQ(pieces(cut, "1a2"), (List{"_1", "a", "2"}));
}

// The words that are found without Oniguruma are those that it finds.
TEST(Pretokenizer, KnownPatternsKeepTheirMeaning) {
  std::vector<std::string> patterns = {std::string(kGpt2Pattern), std::string(kKimiPattern)};
  for (const char* name : {"bytelevel_split", "qwen3", "deepseek_v3", "gptoss"}) {
    const json file = json::parse(golden_text(std::string(name) + "/tokenizer.json"));
    for (const json& step : file["pre_tokenizer"]["pretokenizers"]) {
      if (step["type"] == "Split") patterns.push_back(step["pattern"]["Regex"]);
    }
  }
  const std::vector<std::string> parts = {"a",  "word",   "The", "X", "aB", "'s",     "'",
                                          " ",  "  ",     "\n",  ".", "12", "-",      "é",
                                          "世", "\u0301", "ſ",   "_", "\t", "\u2028", "'Ll"};
  Prng random(7);
  for (const std::string& pattern : patterns) {
    const json fast = split_config({{"Regex", pattern}}, "Isolated");
    const json slow = split_config({{"Regex", "(?:" + pattern + ")"}}, "Isolated");
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (int i = 0; i < 30; ++i) text += parts[random.below(parts.size())];
      ASSERT_EQ(pieces(fast, text), pieces(slow, text)) << pattern << "\n" << text;
    }
  }
}

TEST(Regex, BoundsHostilePatterns) {
  const Result<Regex> regex = Regex::compile("(?:a|aa)+$x");
  ASSERT_TRUE(regex);
  std::vector<Span> matches;
  regex->find_all(std::string(200, 'a'), false, &matches);
  EXPECT_TRUE(matches.empty());
}

TEST(Regex, EmptyMatchesMakeProgress) {
  const Result<Regex> regex = Regex::compile("b*");
  ASSERT_TRUE(regex);
  std::vector<Span> matches;
  regex->find_all("abbc", false, &matches);
  ASSERT_EQ(matches.size(), 3u);  // before a, "bb", at the end
  EXPECT_EQ(matches[1].begin, 1u);
  EXPECT_EQ(matches[1].end, 3u);
}

}  // namespace
}  // namespace asap
