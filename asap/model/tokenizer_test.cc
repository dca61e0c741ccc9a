#include "asap/model/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "asap/base/prng.h"
#include "asap/model/tokenizer_test_util.h"
#include "asap/model/utf8.h"

namespace asap {
namespace {

using nlohmann::json;

// ---- against other people's tokenizers

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, AgreesBothWays) {
  const Result<Tokenizer> parsed =
      Tokenizer::parse(golden_text(GetParam() + "/tokenizer.json"), "");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Tokenizer& t = *parsed;
  Prng random(17);
  const std::vector<json> cases = golden_lines(GetParam() + "/cases.jsonl");
  EXPECT_GE(cases.size(), 80u);
  const size_t most = t.most_bytes_per_id();
  EXPECT_EQ(most > 0, !GetParam().starts_with("bytelevel_"));  // whose <mask> absorbs white space
  for (const json& expected : cases) {
    const auto text = expected["text"].get<std::string>();
    const auto ids = expected["ids"].get<Ids>();
    const auto decoded = expected["decoded"].get<std::string>();
    EXPECT_EQ(t.encode(text, false), ids) << text;
    EXPECT_EQ(t.encode(text, true), expected.value("ids_with_special", ids)) << text;
    EXPECT_TRUE(most == 0 || text.size() <= ids.size() * most) << text;
    EXPECT_EQ(t.decode(ids, false), decoded);
    EXPECT_EQ(t.decode(ids, true), expected.value("decoded_skip_special", decoded));
    // A stream gives the same, also for ids that no text gives.
    Ids others = ids;
    for (int32_t& id : others) {
      if (random.chance(0.3)) id = static_cast<int32_t>(random.below(300));
    }
    for (const Ids& some : {ids, others}) {
      for (const bool skip : {false, true})
        EXPECT_EQ(streamed(t, some, skip), t.decode(some, skip));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Golden,
                         testing::Values("bytelevel_gpt2", "bytelevel_split", "deepseek_v3",
                                         "gptoss", "qwen3", "spm_metaspace", "spm_prepend"),
                         [](const auto& file) { return file.param; });

// Files that put the parts of tokenizer.json together at random.
TEST(Components, AgreeInAnyCombination) {
  int agreed = 0, bounded = 0;
  for (const json& line : golden_lines("components/cases.jsonl")) {
    const auto file = line["tokenizer"].get<std::string>();
    const Result<Tokenizer> t = Tokenizer::parse(file, "");
    if (!t) {
      EXPECT_EQ(t.error().code, Code::unsupported) << t.error().message;
      continue;
    }
    for (const json& expected : line["encode"]) {
      const auto text = expected["text"].get<std::string>();
      EXPECT_EQ(t->encode(text, false), expected["ids"].get<Ids>()) << text << "\n" << file;
      EXPECT_EQ(t->encode(text, true), expected["ids_with_special"].get<Ids>());
      if (t->most_bytes_per_id() == 0) continue;
      EXPECT_LE(text.size(), expected["ids"].size() * t->most_bytes_per_id()) << text << file;
      ++bounded;
    }
    for (const json& expected : line["decode"]) {
      const auto ids = expected["ids"].get<Ids>();
      for (const bool skip : {false, true}) {
        const std::string decoded = t->decode(ids, skip);
        EXPECT_EQ(decoded, expected[skip ? "decoded_skip_special" : "decoded"]) << file;
        EXPECT_EQ(streamed(*t, ids, skip), decoded) << file;
      }
    }
    ++agreed;
  }
  EXPECT_GE(agreed, 100);
  EXPECT_GE(bounded, 100);
}

TEST(Tokenizer, DemoModelAddsItsBos) {
  const std::filesystem::path folder =
      std::filesystem::path(ASAP_SOURCE_DIR) / "models/asap-tiny-moe";
  const Result<Tokenizer> tokenizer = Tokenizer::load(folder.string());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->id_of("<|begin_of_text|>"), 0);
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_FALSE(tokenizer->is_special(2));
  const json golden = json::parse(read_all(folder / "golden.json"));
  ASSERT_FALSE(golden["prompts"].empty());
  for (const json& prompt : golden["prompts"]) {
    const auto ids = prompt["ids"].get<Ids>();
    ASSERT_EQ(ids.front(), 0);
    const auto text = prompt["prompt"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text, true), ids);
    EXPECT_EQ(tokenizer->encode(text, false), Ids(ids.begin() + 1, ids.end()));
    EXPECT_EQ(tokenizer->decode(ids, true), text);
    EXPECT_EQ(tokenizer->decode(prompt["greedy16"].get<Ids>(), true), prompt["greedy_text"]);
  }
  EXPECT_EQ(tokenizer->encode("", true), Ids{0});
}

// ---- BPE

TEST(Bpe, MergesLowestRankFirstAndLeftmostOnTies) {
  const Tokenizer t = make(small_file());
  EXPECT_EQ(t.encode("abab", false), Ids{257});
  EXPECT_EQ(t.encode("ababab", false), (Ids{257, 256}));
  EXPECT_EQ(t.encode("aaa", false), (Ids{258, 'a'}));
  EXPECT_EQ(t.encode("aaab", false), (Ids{258, 256}));  // "a b" outranks "a a"
  EXPECT_EQ(t.encode("aab", false), (Ids{'a', 256}));
  EXPECT_EQ(t.encode("zz", false), (Ids{'z', 'z'}));  // in the vocabulary, but no merge makes it
  EXPECT_EQ(t.encode("", false), Ids{});
  EXPECT_EQ(t.vocab_size(), 302);
  EXPECT_EQ(t.id_of("abab"), 257);
  EXPECT_EQ(t.id_of("nothing"), -1);
}

TEST(Bpe, IgnoreMergesTakesWholePieces) {
  json file = small_file();
  file["model"]["ignore_merges"] = true;
  const Tokenizer t = make(file);
  EXPECT_EQ(t.encode("zz", false), Ids{259});
  EXPECT_EQ(t.encode("zzz", false), (Ids{'z', 'z', 'z'}));
}

TEST(Bpe, PairsAndStringsOfMergesMeanTheSame) {
  json file = small_file();
  file["model"]["merges"] = json::parse(R"([["a", "b"], ["ab", "ab"], ["a", "a"]])");
  EXPECT_EQ(make(file).encode("aaababab", false), make(small_file()).encode("aaababab", false));
}

TEST(Bpe, BytesWithoutToken) {
  json file = small_file();
  file["model"]["vocab"].erase("x");
  EXPECT_EQ(make(file).encode("axxa", false), (Ids{258}));  // nothing stands for x
  file["model"]["unk_token"] = "zz";
  EXPECT_EQ(make(file).encode("axxb", false), (Ids{'a', 259, 259, 'b'}));
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(make(file).encode("axxbx", false), (Ids{'a', 259, 'b', 259}));
}

TEST(Bpe, LongRunsTakeNoQuadraticTime) {
  json file = small_file();
  std::string token = "a";
  file["model"]["merges"] = json::array();
  for (int id = 400; id < 412; ++id) {  // doublings: every merge touches the whole run
    file["model"]["vocab"][token + token] = token == "a" ? 258 : id;
    file["model"]["merges"].push_back({token, token});
    token += token;
  }
  file["added_tokens"].push_back({{"id", 500}, {"content", "<l>"}, {"lstrip", true}});
  file["added_tokens"].push_back({{"id", 501}, {"content", "\t"}, {"rstrip", true}});
  file["added_tokens"].push_back({{"id", 502}, {"content", "\v"}});
  file["normalizer"] = {{"type", "NFC"}};
  const Tokenizer t = make(file);
  std::string marks = "a", spaced, tabs;
  for (int i = 0; i < 250'000; ++i) marks += "\u0301\u0323", spaced += " \n", tabs += "\t\v";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(t.encode(std::string(1 << 20, 'a'), false).size(), 256u);
  EXPECT_EQ(t.encode(std::string(1'000'000, ' '), false).size(), 1'000'000u);
  EXPECT_EQ(t.encode(std::string(1'000'000, ' ') + "x", false).size(), 1'000'001u);
  EXPECT_EQ(t.encode(std::string(300'000, '\t'), false).size(), 300'000u);
  EXPECT_EQ(t.encode(std::string(300'000, ' ') + "<l>", false).size(), 1u);
  EXPECT_EQ(t.encode(tabs, false).size(), 500'000u);
  EXPECT_GT(t.encode(marks, false).size(), 500'000u);
  EXPECT_GT(t.encode(spaced, false).size(), 400'000u);
  // Quadratic time would be hours.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// ---- BPE on characters

// The definition: merge the neighbours of the lowest rank, leftmost first, until none is left.
Ids merged_naively(const json& model, const std::string& text) {
  std::vector<std::string> symbols;
  for (size_t at = 0; at < text.size(); at += utf8_at(text, at).length) {
    symbols.push_back(text.substr(at, utf8_at(text, at).length));
  }
  for (bool merged = true; merged;) {
    merged = false;
    for (const json& merge : model["merges"]) {
      for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
        if (symbols[i] + " " + symbols[i + 1] != merge.get<std::string>()) continue;
        symbols[i] += symbols[i + 1];
        symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(i) + 1);
        merged = true;
      }
      if (merged) break;
    }
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    if (model["vocab"].contains(symbol)) {
      ids.push_back(model["vocab"][symbol].get<int32_t>());
    } else {
      for (const char c : symbol) ids.push_back(3 + static_cast<uint8_t>(c));
    }
  }
  return ids;
}

// Pieces are cut where no merge can reach across, which must not show.
TEST(Bpe, CharactersMergeAsDefined) {
  Prng random(23);
  const std::vector<std::string> characters = {"▁", "a", "b", "c", "é", "世"};
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> tokens = characters, merges;
    for (int i = 0; i < 25; ++i) {
      const std::string left = tokens[random.below(tokens.size())];
      const std::string right = tokens[random.below(tokens.size())];
      const std::string merge = left + " " + right;
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      merges.push_back(merge);
      tokens.push_back(left + right);
    }
    const json file = spm_file("▁abcé世", merges);
    const Tokenizer t = make(file);
    for (int i = 0; i < 30; ++i) {
      std::string text = "▁";
      for (uint64_t length = random.below(40); length > 0; --length) {
        text += random.chance(0.05) ? "界" : characters[random.below(characters.size())];
      }
      // The tokenizer puts the first one there itself.
      ASSERT_EQ(t.encode(text.substr(3), false),
                text.size() == 3 ? Ids{} : merged_naively(file["model"], text))
          << file["model"]["merges"] << "\n"
          << text;
    }
  }
}

TEST(Bpe, UnknownCharacters) {
  json file = spm_file("▁ab", {"a b"});
  file["normalizer"] = nullptr;
  const auto id = [&](const char* token) { return file["model"]["vocab"][token].get<int32_t>(); };
  const Ids bytes = {id("<0xE4>"), id("<0xB8>"), id("<0x96>")};  // 世
  EXPECT_EQ(make(file).encode("世ab", false), (Ids{bytes[0], bytes[1], bytes[2], id("ab")}));
  file["model"]["vocab"].erase("<0xB8>");  // a character falls back as a whole or not at all
  EXPECT_EQ(make(file).encode("世世a", false), (Ids{0, id("a")}));
  file["model"]["fuse_unk"] = false;
  EXPECT_EQ(make(file).encode("世世a世", false), (Ids{0, 0, id("a"), 0}));
  // Hugging Face's library emits a waiting unknown token after bytes that follow it.
  EXPECT_EQ(make(file).encode("世?a", false), (Ids{id("<0x3F>"), 0, id("a")}));
  file["model"]["unk_token"] = nullptr;
  EXPECT_EQ(make(file).encode("世a", false), Ids{id("a")});
  file["model"]["byte_fallback"] = false;
  EXPECT_EQ(make(file).encode("?a", false), Ids{id("a")});
  // Merges of byte tokens are merges like any other.
  file = spm_file("▁ab", {"a b", "<0xC3> <0xA9>"});
  file["normalizer"] = nullptr;
  EXPECT_EQ(make(file).encode("é", false), Ids{id("ab") + 1});
}

// One piece holds the whole text here, so cutting and merging have to be fast by themselves.
TEST(Bpe, LongTextsOfCharactersTakeNoQuadraticTime) {
  std::vector<std::string> merges = {"▁ a", "▁ b", "a b", "▁a ▁b"};
  for (const std::string& unit : {std::string("a"), std::string("▁")}) {
    for (std::string token = unit; token.size() < unit.size() << 12; token += token) {
      merges.push_back(token + " " + token);  // doublings: every merge touches the whole run
    }
  }
  const Tokenizer t = make(spm_file("▁abc世", merges));
  Prng random(29);
  std::string pairs, unbroken;
  while (pairs.size() < 1'000'000) pairs += "a b ";
  while (unbroken.size() < 1'000'000) unbroken += "abc"[random.below(3)];
  std::string unknown;
  while (unknown.size() < 1'000'000) unknown += "界";
  const auto begin = std::chrono::steady_clock::now();
  // "▁a" at the beginning, then as many of the longest tokens as there are.
  EXPECT_EQ(t.encode(std::string((1 << 20) + 1, 'a'), false).size(), 1u + 256u);
  EXPECT_EQ(t.encode(std::string((1 << 20) - 1, ' '), false).size(), 256u);
  EXPECT_GT(t.encode(std::string(1'000'000, ' ') + "b", false).size(), 200u);
  for (const std::string& text : {pairs, unbroken, unknown}) {
    const Ids ids = t.encode(text, false);
    EXPECT_GT(ids.size(), 200'000u);
    EXPECT_EQ(t.decode(ids, false), text);
    EXPECT_EQ(streamed(t, ids, false), text);
  }
  // Quadratic time would be hours.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Tokenizer, MostBytesPerId) {
  const json bytes = small_file();  // the longest are abab and </s>
  EXPECT_EQ(make(bytes).most_bytes_per_id(), 4u);
  EXPECT_EQ(make(spm_file("▁ab", {"▁ a", "▁a b"})).most_bytes_per_id(), 6u);  // <0xE4>
  json file = bytes;
  file["added_tokens"].push_back({{"id", 310}, {"content", "<|long|>"}});
  EXPECT_EQ(make(file).most_bytes_per_id(), 8u);
  file["normalizer"] = {{"type", "NFKC"}};
  EXPECT_EQ(make(file).most_bytes_per_id(), 32u);
  file["normalizer"] = json::parse(R"({"type":"Replace","pattern":{"String":"ab"},"content":"c"})");
  EXPECT_EQ(make(file).most_bytes_per_id(), 16u);

  // Where something may be left out there is no such number.
  const char* const normalizers[] = {
      R"({"type":"StripAccents"})", R"({"type":"Strip","strip_left":true,"strip_right":false})",
      R"({"type":"Replace","pattern":{"String":"a"},"content":""})",
      R"({"type":"Replace","pattern":{"Regex":"a+"},"content":"a"})"};
  for (const char* normalizer : normalizers) {
    file["normalizer"] = json::parse(normalizer);
    EXPECT_EQ(make(file).most_bytes_per_id(), 0u) << normalizer;
  }
  file = bytes;
  file["added_tokens"][0]["rstrip"] = true;
  EXPECT_EQ(make(file).most_bytes_per_id(), 0u);
  file = bytes;
  file["pre_tokenizer"] = split_config({{"String", "x"}}, "Removed");
  EXPECT_EQ(make(file).most_bytes_per_id(), 0u);
  file = bytes;
  file["model"]["vocab"].erase("x");  // gives nothing now
  EXPECT_EQ(make(file).most_bytes_per_id(), 0u);
  file["model"]["unk_token"] = "zz";
  EXPECT_EQ(make(file).most_bytes_per_id(), 4u);
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(make(file).most_bytes_per_id(), 0u);
}

TEST(Tokenizer, SpmStyle) {
  const json file = spm_file("▁ab", {"▁ a", "▁ ▁"});
  const Tokenizer t = make(file);
  const auto id = [&](const char* token) { return t.id_of(token); };
  EXPECT_EQ(t.encode("a b", false), (Ids{id("▁a"), id("▁"), id("b")}));
  EXPECT_EQ(t.encode("<s>a<s> b", false),
            (Ids{1, id("▁a"), 1, id("▁▁"), id("b")}));  // every part gets its ▁
  EXPECT_EQ(t.decode({1, id("▁a"), id("b"), id("▁")}, true), "ab ");
  EXPECT_EQ(t.decode({1, id("▁a")}, false), "<s> a");
  EXPECT_EQ(t.token_bytes(id("▁a"), false), " a");
  EXPECT_EQ(t.token_bytes(id("<0xE4>"), false), "\xE4");
  EXPECT_EQ(t.token_bytes(1, true), "");
}

// ---- added tokens, normaliser, specials

TEST(AddedTokens, LeftmostLongestStripAndSingleWord) {
  json file = small_file();
  const auto add = [&](int id, const char* content, const char* flag, bool normalized = false) {
    json token = {{"id", id}, {"content", content}, {"normalized", normalized}};
    if (flag != nullptr) token[flag] = true;
    file["added_tokens"].push_back(token);
  };
  add(310, "<tool>", nullptr);
  add(311, "<tool><call>", nullptr);
  add(312, "<L>", "lstrip");
  add(313, "<R>", "rstrip");
  add(314, "cat", "single_word");
  add(315, "e\u0301", nullptr, true);  // is looked for composed, in composed text
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  const Tokenizer t = make(file);
  EXPECT_EQ(t.encode("<tool><call>", false), Ids{311});
  EXPECT_EQ(t.encode("<tool><tool>", false), (Ids{310, 310}));
  EXPECT_EQ(t.encode("<tool><cal", false), (Ids{310, '<', 'c', 'a', 'l'}));
  EXPECT_EQ(t.encode("x \u3000\t<L> y", false), (Ids{'x', 312, ' ', 'y'}));
  EXPECT_EQ(t.encode("x <R> \n y", false), (Ids{'x', ' ', 313, 'y'}));
  EXPECT_EQ(t.encode("<R>  <L>", false), (Ids{313, 312}));
  EXPECT_EQ(t.encode("cat", false), Ids{314});
  EXPECT_EQ(t.encode("(cat)", false), (Ids{'(', 314, ')'}));
  EXPECT_EQ(t.encode("cats", false), (Ids{'c', 'a', 't', 's'}));
  EXPECT_EQ(t.encode("_cat", false), (Ids{'_', 'c', 'a', 't'}));
  EXPECT_EQ(t.encode("écat", false), (Ids{315, 'c', 'a', 't'}));
  EXPECT_EQ(t.encode("\u00E9", false), Ids{315});
  EXPECT_EQ(t.encode("<s>a", false), (Ids{300, 'a'}));
  EXPECT_EQ(t.encode("\u00BDcat", false), (Ids{0xC2, 0xBD, 314}));  // a half is no word character
}

TEST(AddedTokens, SpaceThatTwoTokensWant) {
  json file = small_file();
  const auto add = [&](int id, const char* content, bool lstrip, bool rstrip) {
    file["added_tokens"].push_back({{"id", id},
                                    {"content", content},
                                    {"normalized", false},
                                    {"lstrip", lstrip},
                                    {"rstrip", rstrip}});
  };
  add(310, "<R>", false, true);
  add(311, "  ", false, false);
  add(312, "\t\t", true, true);
  const Tokenizer t = make(file);
  // As Hugging Face's library does: the text goes on after the later token.
  EXPECT_EQ(t.encode("<R>   x", false), (Ids{310, 311, ' ', 'x'}));
  EXPECT_EQ(t.encode("\t\t\t\tx", false), (Ids{312, 'x'}));
}

TEST(Tokenizer, SpecialsAroundAText) {
  json file = small_file();
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json first = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const json last = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
  const json specials = {{"<s>", {{"id", "<s>"}, {"ids", {300}}, {"tokens", {"<s>"}}}},
                         {"</s>", {{"id", "</s>"}, {"ids", {301}}, {"tokens", {"</s>"}}}}};
  const json frame = {{"type", "TemplateProcessing"},
                      {"single", {first, text, last}},
                      {"special_tokens", specials}};
  const std::string add_bos = R"({"add_bos_token": true, "bos_token": {"content": "<s>"}})";
  EXPECT_EQ(make(file, add_bos).encode("a", true), (Ids{300, 'a'}));
  EXPECT_EQ(make(file, R"({"add_bos_token": false})").encode("a", true), Ids{'a'});
  EXPECT_EQ(make(file, R"({"bos_token": "<s>"})").encode("a", true), Ids{'a'});
  file["post_processor"] = frame;
  EXPECT_EQ(make(file).encode("a", true), (Ids{300, 'a', 301}));
  EXPECT_EQ(make(file).encode("a", false), Ids{'a'});
  EXPECT_EQ(make(file, add_bos).encode("a", true), (Ids{300, 'a', 301}));  // not twice
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, frame}}};
  EXPECT_EQ(make(file).encode("", true), (Ids{300, 301}));
  EXPECT_EQ(make(file).decode({300, 'a', 301}, true), "a");
  EXPECT_EQ(make(file).decode({300, 'a', 301}, false), "<s>a</s>");
  for (const char* type : {"BertProcessing", "RobertaProcessing"}) {
    file["post_processor"] = {{"type", type}, {"cls", {"<s>", 300}}, {"sep", {"</s>", 301}}};
    EXPECT_EQ(make(file).encode("a", true), (Ids{300, 'a', 301}));
  }
  file["post_processor"] = nullptr;
  const std::string add_eos = R"({"add_eos_token": true, "eos_token": "</s>"})";
  EXPECT_EQ(make(file, add_eos).encode("a", true), (Ids{'a', 301}));
}

// ---- bytes

TEST(Tokenizer, EveryByteAndAnyTextComesBack) {
  const Tokenizer t = make(small_file());
  Prng random(3);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    const uint64_t length = random.next() % 40;
    for (uint64_t i = 0; i < length; ++i) text += static_cast<char>(random.next() & 0xFF);
    EXPECT_EQ(t.decode(t.encode(text, false), false), repair_utf8(text));
  }
  EXPECT_EQ(t.token_bytes(0xE4, false), "\xE4");
  EXPECT_EQ(t.decode({0xE4}, false), "\uFFFD");
  EXPECT_EQ(t.decode({-1, 260, 1 << 30, 'a'}, false), "a");
  EXPECT_EQ(t.token_bytes(300, true), "");
  EXPECT_FALSE(t.is_special(-1));
}

TEST(Tokenizer, ThreadsEncodeAtOnce) {
  const Tokenizer t = make(json::parse(golden_text("bytelevel_split/tokenizer.json")));
  std::vector<std::string> texts;
  for (const json& line : golden_lines("bytelevel_split/cases.jsonl"))
    texts.push_back(line["text"]);
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(t.encode(text, true));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        for (size_t i = 0; i < texts.size(); ++i) {
          count += t.encode(texts[i], true) != expected[i];
          count += t.decode(expected[i], false) != t.decode(t.encode(texts[i], false), false);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace asap
