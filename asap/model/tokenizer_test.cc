#include "asap/model/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "asap/base/prng.h"
#include "asap/model/pretokenizer.h"
#include "asap/model/regex.h"
#include "asap/model/utf8.h"

namespace asap {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;
namespace fs = std::filesystem;

const fs::path kSource = ASAP_SOURCE_DIR;
const fs::path kGoldens = kSource / "tests/golden/tokenizers";

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A folder beside this program, for unpacked files.
fs::path scratch() {
  fs::path folder = fs::read_symlink("/proc/self/exe").parent_path() / "tokenizer_test_files";
  fs::create_directories(folder);
  return folder;
}

// The tokenizer.json of a golden, unpacked if need be.
std::string golden_file(const std::string& name) {
  const fs::path plain = kGoldens / name / "tokenizer.json";
  if (fs::exists(plain)) return slurp(plain);
  const fs::path out = scratch() / fmt::format("{}.{}.json", name, getpid());
  const std::string command = fmt::format("xz -dc '{}.xz' > '{}'", plain.string(), out.string());
  EXPECT_EQ(std::system(command.c_str()), 0) << command << " (is xz-utils installed?)";
  std::string text = slurp(out);
  fs::remove(out);
  return text;
}

// Name of every printable stand-in of a byte, in the byte alphabet of GPT-2.
std::string alphabet(uint8_t byte) {
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
json small_file() {
  json vocab;
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

Tokenizer make(const json& file, const std::string& config = "") {
  Result<Tokenizer> out = Tokenizer::parse(file.dump(), config);
  if (!out) throw std::runtime_error(out.error().message);  // fails the test with the message
  return std::move(*out);
}

std::vector<std::string> pieces(const json& config, const std::string& text) {
  const Result<Pretokenizer> pretokenizer = Pretokenizer::parse(config);
  if (!pretokenizer) throw std::runtime_error(pretokenizer.error().message);
  std::deque<std::string> arena;
  std::vector<std::string_view> views;
  pretokenizer->split(text, &arena, &views);
  return {views.begin(), views.end()};
}

json split_config(const json& pattern, const std::string& behavior, bool invert = false) {
  const json split = {
      {"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
}

// ---- against other people's tokenizers ----------------------------------------------------------

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, AgreesBothWays) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(golden_file(GetParam()), "");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  std::ifstream cases(kGoldens / GetParam() / "cases.jsonl");
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const json expected = json::parse(line);
    const auto text = expected["text"].get<std::string>();
    const auto ids = expected["ids"].get<Ids>();
    const auto decoded = expected["decoded"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer->encode(text, true), expected.value("ids_with_special", ids)) << text;
    EXPECT_EQ(tokenizer->decode(ids, false), decoded);
    EXPECT_EQ(tokenizer->decode(ids, true), expected.value("decoded_skip_special", decoded));
    StreamDecoder stream(*tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) {
      const std::string emitted = stream.push(id);
      EXPECT_TRUE(is_utf8(emitted));
      streamed += emitted;
    }
    EXPECT_EQ(streamed + stream.flush(), decoded);
  }
  EXPECT_GE(count, 80);
}

INSTANTIATE_TEST_SUITE_P(Files, Golden,
                         testing::Values("bytelevel_gpt2", "bytelevel_split", "qwen3",
                                         "deepseek_v3"),
                         [](const auto& file) { return file.param; });

TEST(Tokenizer, DemoModelAddsItsBos) {
  const fs::path folder = kSource / "models/asap-tiny-moe";
  const Result<Tokenizer> tokenizer = Tokenizer::load(folder.string());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->id_of("<|begin_of_text|>"), 0);
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_FALSE(tokenizer->is_special(2));
  const json golden = json::parse(slurp(folder / "golden.json"));
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

// ---- BPE ---------------------------------------------------------------------------------------

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
  file["normalizer"] = {{"type", "NFC"}};
  const Tokenizer t = make(file);
  std::string marks = "a", spaced;
  for (int i = 0; i < 250'000; ++i) marks += "\u0301\u0323", spaced += " \n";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(t.encode(std::string(1 << 20, 'a'), false).size(), 256u);
  EXPECT_EQ(t.encode(std::string(1'000'000, ' '), false).size(), 1'000'000u);
  EXPECT_EQ(t.encode(std::string(1'000'000, ' ') + "x", false).size(), 1'000'001u);
  EXPECT_EQ(t.encode(std::string(300'000, '\t'), false).size(), 300'000u);
  EXPECT_EQ(t.encode(std::string(300'000, ' ') + "<l>", false).size(), 1u);
  EXPECT_GT(t.encode(marks, false).size(), 500'000u);
  EXPECT_GT(t.encode(spaced, false).size(), 400'000u);
  // Quadratic time would be hours.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// ---- pre-tokenizer
// -------------------------------------------------------------------------------

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

// The words that are found without Oniguruma are those that it finds.
TEST(Pretokenizer, KnownPatternsKeepTheirMeaning) {
  std::vector<std::string> patterns = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|)re"
      R"re('t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll})re"
      R"re(\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)re"
      R"re([\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
  for (const char* name : {"bytelevel_split", "qwen3", "deepseek_v3"}) {
    const json file = json::parse(golden_file(name));
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

// ---- added tokens, normaliser, specials
// ----------------------------------------------------------

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
}

// ---- bytes
// ---------------------------------------------------------------------------------------

TEST(Utf8, RepairsMaximalParts) {
  const struct {
    std::string bytes, repaired;
    size_t tail;
  } table[] = {
      {"plain", "plain", 0},
      {"\xE4\xB8\xAD", "中", 0},
      {"\xE4\xB8", "\uFFFD", 2},
      {"\xF0\x9F\x98", "\uFFFD", 3},
      {"\xF0\x9F\x98x", "\uFFFDx", 0},
      {"\xC0\x80", "\uFFFD\uFFFD", 0},                      // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD", 0},            // surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD", 0},  // beyond U+10FFFF
      {"\x80\xBF", "\uFFFD\uFFFD", 0},
      {"\xC3", "\uFFFD", 1},
      {"\xFF", "\uFFFD", 0},
  };
  for (const auto& row : table) {
    EXPECT_EQ(repair_utf8(row.bytes), row.repaired);
    EXPECT_EQ(utf8_incomplete_tail(row.bytes), row.tail) << row.repaired;
    EXPECT_EQ(is_utf8(row.bytes), row.bytes == row.repaired);
  }
}

TEST(Utf8, ComposesInCanonicalOrder) {
  EXPECT_EQ(nfc("A\u030A"), "\u00C5");
  EXPECT_EQ(nfc("\u212B"), "\u00C5");
  EXPECT_EQ(nfc("a\u0301\u0323"), "\u1EA1\u0301");  // the mark below comes first
  EXPECT_EQ(nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(nfc("\uFB01"), "\uFB01");  // compatibility characters stay
}

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

TEST(Tokenizer, ThreadsEncodeAtOnce) {
  const Tokenizer t = make(json::parse(golden_file("bytelevel_split")));
  std::vector<std::string> texts;
  std::ifstream cases(kGoldens / "bytelevel_split/cases.jsonl");
  for (std::string line; std::getline(cases, line);) texts.push_back(json::parse(line)["text"]);
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

// ---- files that are refused
// ----------------------------------------------------------------------

void expect_refused(const json& file, Code code, const std::string& names,
                    const std::string& config = "") {
  const Result<Tokenizer> out = Tokenizer::parse(file.dump(), config);
  ASSERT_FALSE(out) << names;
  EXPECT_EQ(out.error().code, code) << out.error().message;
  EXPECT_NE(out.error().message.find(names), std::string::npos) << out.error().message;
}

TEST(TokenizerFile, NamesWhatIsNotSupported) {
  const struct {
    const char* pointer;
    json value;
    const char* names;
  } table[] = {
      {"/model/type", "WordPiece", "WordPiece"},
      {"/model/byte_fallback", true, "byte_fallback"},
      {"/model/dropout", 0.5, "dropout"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "##", "continuing_subword_prefix"},
      {"/normalizer", {{"type", "Lowercase"}}, "Lowercase"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "Metaspace"},
      {"/pre_tokenizer", nullptr, "ByteLevel"},
      {"/post_processor", {{"type", "BertProcessing"}}, "BertProcessing"},
      {"/decoder", {{"type", "WordPiece"}}, "WordPiece"},
      {"/decoder", nullptr, "none"},
  };
  for (const auto& row : table) {
    json file = small_file();
    file[json::json_pointer(row.pointer)] = row.value;
    expect_refused(file, Code::unsupported, row.names);
  }
}

TEST(TokenizerFile, RefusesNonsense) {
  const json token = {{"id", 302}, {"content", "x1"}};
  const auto with = [&](const char* key, const json& value) {
    json out = token;
    out[key] = value;
    return json::array({out});
  };
  const json bad_regex = split_config({{"Regex", "[a"}}, "Isolated");
  const struct {
    const char* pointer;
    json value;
    const char* names;
  } table[] = {
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
      {"/pre_tokenizer", bad_regex, "[a"},
      {"/pre_tokenizer", split_config(json::object(), "Isolated"), "pattern"},
      {"/pre_tokenizer", split_config({{"Regex", "a"}}, "Sideways"), "Sideways"},
      {"/added_tokens", 5, "added_tokens"},
      {"/added_tokens", {5}, "added_tokens"},
      {"/added_tokens", with("id", 1 << 24), "id"},
      {"/added_tokens", with("id", 97), "id 97"},
      {"/added_tokens", with("content", "ab"), "two ids"},
      {"/added_tokens", with("content", std::string(5000, 'x')), "5000 bytes"},
      {"/added_tokens", with("special", "yes"), "special"},
      {"/post_processor", {{"type", "TemplateProcessing"}}, "single"},
      {"/post_processor", {{"type", "TemplateProcessing"}, {"single", {1}}}, "single"},
  };
  for (const auto& row : table) {
    json file = small_file();
    file[json::json_pointer(row.pointer)] = row.value;
    expect_refused(file, Code::invalid, row.names);
  }
  const json file = small_file();
  expect_refused(file, Code::invalid, "bos_token", R"({"add_bos_token": true})");
  expect_refused(file, Code::invalid, "<q>", R"({"add_bos_token": true, "bos_token": "<q>"})");
  expect_refused(file, Code::invalid, "add_bos_token", R"({"add_bos_token": "yes"})");
  expect_refused(file, Code::invalid, "tokenizer_config.json", "[");
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

TEST(TokenizerFile, SurvivesDamage) {
  const std::string good = golden_file("bytelevel_split");
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
