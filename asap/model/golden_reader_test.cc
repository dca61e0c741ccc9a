#include "asap/model/golden.h"
#include "asap/model/test_support.h"

namespace asap {
namespace {

using Json = nlohmann::json;

// A golden of two tokens and one prompt, changed by `edit`.
Result<Golden> parse_edited(const std::function<void(Json&)>& edit) {
  Json golden = {
      {"format", "golden-1"},
      {"model_type", "qwen3_moe"},
      {"storage", "F32"},
      {"vocab_size", 2},
      {"alt_configs", {"config_v5.json"}},
      {"tolerance",
       {{"fp32", {{"logits_rel", 1e-4}, {"router_weight_rel", 1e-5}, {"greedy", "exact"}}},
        {"bf16", {{"logits_rel", 0.1}, {"logits_rms_rel", 0.05}, {"greedy", "exact expected"}}}}},
      {"cases",
       {{{"prompt", {1}},
         {"greedy", {0, 1}},
         {"greedy_margin", {0.5, 0.2}},
         {"logits", {{"offset", 1}, {"shape", {2}}}},
         {"router", Json::object()}}}}};
  edit(golden);
  return parse_golden(golden.dump(), {0.5f, 1.0f, -2.0f}, "g/golden.json");
}

TEST(GoldenReader, ReadsAGolden) {
  const auto golden = parse_edited([](Json&) {});
  ASSERT_TRUE(golden) << golden.error().message;
  EXPECT_EQ(golden->family, "qwen3_moe");
  EXPECT_EQ(golden->alt_configs, std::vector<std::string>{"config_v5.json"});
  ASSERT_EQ(golden->cases.size(), 1u);
  EXPECT_EQ(golden->cases[0].logits, (std::vector<float>{1.0f, -2.0f}));
  EXPECT_EQ(golden->cases[0].greedy, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(golden->bf16.logits_rms_rel, 0.05);
}

TEST(GoldenReader, SaysHowManyTokensCount) {
  const auto counts = [](const std::function<void(Json&)>& edit) {
    const auto golden = parse_edited(edit);
    EXPECT_TRUE(golden) << golden.error().message;
    const GoldenCase& c = golden->cases[0];
    return std::pair(c.required(Precision::fp32), c.required(Precision::bf16));
  };
  EXPECT_EQ(counts([](Json&) {}), std::pair(size_t{2}, size_t{2}));
  const auto close = [](Json& g) { g["cases"][0]["greedy_margin"] = {0.2, 0.1}; };
  EXPECT_EQ(counts(close), std::pair(size_t{2}, size_t{1}));
  const auto close_first = [](Json& g) { g["cases"][0]["greedy_margin"] = {0.1, 0.2}; };
  EXPECT_EQ(counts(close_first), std::pair(size_t{2}, size_t{0}));
  const auto informative = [](Json& g) { g["tolerance"]["bf16"]["greedy"] = "informative"; };
  EXPECT_EQ(counts(informative), std::pair(size_t{2}, size_t{0}));
  const auto sparse = [](Json& g) { g["cases"][0]["dsa"] = Json::object(); };
  EXPECT_EQ(counts(sparse), std::pair(size_t{2}, size_t{1}));
}

TEST(GoldenReader, BrokenOnesAreNamed) {
  struct Case {
    const char* pointer;  // what is replaced
    Json value;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"/format", "golden-9", {"format is \"golden-9\"", "golden-1"}},
      {"/format", nullptr, {"format is null"}},
      {"/vocab_size", 0, {"vocab_size is 0"}},
      {"/vocab_size", 3, {"cases[0].logits holds 2 values", "vocab_size, 3"}},
      {"/tolerance", nullptr, {"tolerance.fp32.logits_rel is null"}},
      {"/tolerance/fp32/logits_rel", 0, {"tolerance.fp32.logits_rel is 0"}},
      {"/tolerance/fp32/router_weight_rel", "x", {"tolerance.fp32.router_weight_rel is \"x\""}},
      {"/tolerance/bf16/logits_rel", -1, {"tolerance.bf16.logits_rel is -1"}},
      {"/tolerance/bf16/greedy", "maybe", {"tolerance.bf16.greedy is \"maybe\""}},
      {"/alt_configs", "config_v5.json", {"alt_configs is \"config_v5.json\""}},
      {"/alt_configs", {"../config.json"}, {"alt_configs is", "files of its folder"}},
      {"/cases", Json::array(), {"cases is []"}},
      {"/cases/0", 7, {"cases[0].prompt is null"}},
      {"/cases/0/prompt", Json::array(), {"cases[0].prompt is []"}},
      {"/cases/0/prompt", {2}, {"cases[0].prompt holds 2", "below vocab_size, 2"}},
      {"/cases/0/prompt", {-1}, {"cases[0].prompt holds -1"}},
      {"/cases/0/greedy_margin", {0.1}, {"cases[0].greedy_margin is [0.1]", "2 numbers"}},
      {"/cases/0/greedy_margin", {0.1, "x"}, {"cases[0].greedy_margin holds \"x\""}},
      {"/cases/0/modes", {{"m", 1}}, {"cases[0].modes.m.logits is null"}},
      {"/cases/0/greedy", {1.5}, {"cases[0].greedy holds 1.5"}},
      {"/cases/0/logits", {1, 2}, {"cases[0].logits is [1,2]", "offset"}},
      {"/cases/0/logits/offset", 2, {"cases[0].logits lies at 2 with 2 values", "holds 3"}},
      {"/cases/0/logits/offset", 1e30, {"cases[0].logits is"}},
      {"/cases/0/logits/shape", {1u << 31, 1u << 31, 1u << 31}, {"cases[0].logits has the shape"}},
  };
  for (const Case& c : cases) {
    expect_error(parse_edited([&](Json& g) { g[Json::json_pointer(c.pointer)] = c.value; }),
                 Code::invalid, [&] {
                   auto words = c.words;
                   words.push_back("g/golden.json");
                   return words;
                 }());
  }
  expect_error(parse_golden("{", {}, "g/golden.json"), Code::invalid, {"not valid JSON"});
  expect_error(parse_golden("[]", {}, "g/golden.json"), Code::invalid, {"JSON object"});
}

TEST(GoldenReader, FindsFoldersOfGoldens) {
  const auto all = find_goldens(golden_directory(""));
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_GE(all->size(), 10u);
  const std::string one = golden_directory("qwen3_moe");
  EXPECT_EQ(find_goldens(one).value(), std::vector<std::string>{one});
  expect_error(find_goldens(one + "/nowhere"), Code::not_found, {"nowhere"});
  TemporaryDirectory empty;
  expect_error(find_goldens(empty.path()), Code::not_found, {"golden.json"});
}

TEST(GoldenReader, NamesAFolderWithOrWithoutSlash) {
  EXPECT_EQ(load_golden(golden_directory("qwen3_moe")).value().name, "qwen3_moe");
  EXPECT_EQ(load_golden(golden_directory("qwen3_moe/")).value().name, "qwen3_moe");
}

TEST(GoldenReader, TruncatedDataIsRefused) {
  TemporaryDirectory dir;
  dir.write("golden.json", read_all(golden_directory("qwen3_moe/golden.json")));
  expect_error(load_golden(dir.path()), Code::not_found, {"golden.f32"});
  std::string data = read_all(golden_directory("qwen3_moe/golden.f32"));
  dir.write("golden.f32", data.substr(0, data.size() - 1));
  expect_error(load_golden(dir.path()), Code::invalid, {"golden.f32", "no list of float32"});
  dir.write("golden.f32", data.substr(0, 64));
  expect_error(load_golden(dir.path()), Code::invalid, {"golden.json", "holds 16"});
}

TEST(GoldenReader, Measures) {
  const std::vector<float> expected = {3.0f, -4.0f};
  EXPECT_DOUBLE_EQ(relative_error({3.0f, -3.0f}, expected), 0.25);
  EXPECT_DOUBLE_EQ(rms_error({3.0f, -3.0f}, expected), 0.2);
  EXPECT_EQ(relative_error(expected, expected), 0);
  EXPECT_DOUBLE_EQ(relative_error({0.5f}, {0.0f}), 0.5);
  for (const std::vector<float>& got : {std::vector<float>{NAN, -4.0f}, {3.0f, NAN}}) {
    EXPECT_TRUE(std::isnan(relative_error(got, expected)));
    EXPECT_TRUE(std::isnan(rms_error(got, expected)));
  }
}

}  // namespace
}  // namespace asap
