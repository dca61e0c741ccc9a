// Every golden checkpoint, in one process: --ops ref within the float32 limits with exact experts,
// selections and greedy tokens; --ops cpu within the bfloat16 limits; at several geometries.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/golden_support.h"

namespace asap::test {
namespace {

struct Shape {
  int d, t, e;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << "D" << shape.d << "T" << shape.t << "E" << shape.e;
}

class GoldenTest : public testing::TestWithParam<std::tuple<std::string, Shape>> {};

// Experts and selections of one prompt, row by row, as the ranks decided them.
struct Decisions {
  std::map<int, std::map<int, std::map<int, float>>> experts;  // layer, position, expert -> weight
  std::map<int, std::map<int, std::set<int>>> selected;        // layer, position -> keys

  void add(const Observation& o) {
    const SequenceCommand& s = o.sequences[0];
    const size_t rows = static_cast<size_t>(o.slice.size());
    for (size_t row = 0; row < rows; ++row) {
      const int position = s.past + o.slice.begin + static_cast<int>(row);
      const size_t k = o.experts.size() / rows;
      for (size_t j = row * k; j < (row + 1) * k; ++j) {
        experts[o.layer][position][o.experts[j]] = o.weights[j];
      }
      const size_t top = o.selected.size() / rows;
      for (size_t j = row * top; j < (row + 1) * top; ++j) {
        if (o.selected[j] >= 0) selected[o.layer][position].insert(o.selected[j]);
      }
    }
  }
};

void expect_exact_decisions(const Golden& golden, const GoldenCase& c, const Decisions& got) {
  const double limit = golden.router_weight_rel;
  for (const auto& [layer, expected] : c.router.items()) {
    const std::vector<float> weights = golden.array(expected["weights"]).value();
    size_t at = 0;
    for (size_t token = 0; token < expected["ids"].size(); ++token) {
      const auto& row = got.experts.at(std::stoi(layer)).at(static_cast<int>(token));
      ASSERT_EQ(row.size(), expected["ids"][token].size());
      float largest = 0;
      for (size_t j = 0; j < row.size(); ++j) largest = std::max(largest, weights[at + j]);
      for (const auto& id : expected["ids"][token]) {
        const auto found = row.find(id.get<int>());
        ASSERT_NE(found, row.end()) << "layer " << layer << " token " << token << " lacks " << id;
        EXPECT_NEAR(found->second, weights[at++], limit * double(largest));
      }
    }
  }
  for (const auto& [layer, expected] : c.dsa.items()) {
    const auto layer_rows = got.selected.find(std::stoi(layer));
    if (layer_rows == got.selected.end()) continue;  // a prompt so short that all keys are selected
    for (size_t token = 0; token < expected["selected"].size(); ++token) {
      const auto keys = expected["selected"][token].get<std::set<int>>();
      EXPECT_EQ(layer_rows->second.at(static_cast<int>(token)), keys)
          << "layer " << layer << " token " << token;
    }
  }
}

TEST_P(GoldenTest, ReferenceOpsAreExact) {
  const auto& [name, shape] = GetParam();
  const Golden golden = golden_named(name);
  Bench bench(
      {.model = golden_directory(name), .d = shape.d, .t = shape.t, .e = shape.e, .ops = "ref"});
  const double limit = golden.fp32.logits_rel;
  for (const GoldenCase& c : golden.cases) {
    Decisions decisions;
    const int prompt = static_cast<int>(c.prompt.size());
    const auto observe = [&](const Observation& o) {
      if (o.sequences[0].past < prompt) decisions.add(o);
    };
    const auto out = bench.run({{c.prompt, static_cast<int>(c.greedy.size())}},
                               {.d = shape.d, .observer = observe});
    EXPECT_LE(relative_error(out[0].logits, c.logits), limit);
    EXPECT_EQ(out[0].tokens, c.greedy);
    expect_exact_decisions(golden, c, decisions);
  }
}

TEST_P(GoldenTest, CpuOpsAreWithinBf16Limits) {
  const auto& [name, shape] = GetParam();
  const Golden golden = golden_named(name);
  Bench bench({.model = golden_directory(name),
               .d = shape.d,
               .t = shape.t,
               .e = shape.e,
               .dtype = "bfloat16"});
  for (const GoldenCase& c : golden.cases) {
    const auto out = bench.run({{c.prompt, static_cast<int>(c.greedy.size())}}, {.d = shape.d});
    EXPECT_LE(relative_error(out[0].logits, c.logits), golden.bf16.logits_rel);
    EXPECT_LE(rms_error(out[0].logits, c.logits), golden.bf16.logits_rms_rel);
    for (size_t i = 0; i < c.required(Precision::bf16); ++i) {
      EXPECT_EQ(out[0].tokens.at(i), c.greedy[i]) << "generated token " << i;
    }
  }
}

// A copy of a golden whose config.json has some keys replaced.
std::string patched_golden(const std::string& name, const nlohmann::json& patch) {
  namespace fs = std::filesystem;
  const fs::path to = fs::path(testing::TempDir()) / (name + "_patched");
  fs::remove_all(to);
  fs::copy(golden_directory(name), to);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(to / "config.json"));
  config.merge_patch(patch);
  fs::remove(to / "config.json");
  std::ofstream(to / "config.json") << config;
  return to;
}

// The reference's own rounding of index queries and keys: other selections, other logits.
TEST(GoldenModes, IndexerFp8WithHadamard) {
  const Golden golden = golden_named("deepseek_v32");
  const std::string model = patched_golden("deepseek_v32", {{"indexer_fp8", true}});
  for (const char* ops : {"ref", "cpu"}) {
    Bench bench({.model = model, .t = 2, .e = 2, .ops = ops, .dtype = "float32"});
    for (const GoldenCase& c : golden.modes.at("indexer_fp8_hadamard")) {
      Decisions decisions;
      const auto observe = [&](const Observation& o) { decisions.add(o); };
      const auto out = bench.run({{c.prompt, 1}}, {.observer = observe});
      EXPECT_LE(relative_error(out[0].logits, c.logits), golden.fp32.logits_rel);
      expect_exact_decisions(golden, c, decisions);
    }
  }
}

// Activations rounded to FP8 before products with FP8 weights: the deviation is that of a 4-bit
// significand, and the kernels agree far better than that.
TEST(GoldenModes, Fp8ActivationsOfFp8Checkpoints) {
  for (const char* name : {"deepseek_v3_fp8", "deepseek_v32_fp8"}) {
    const Golden golden = golden_named(name);
    const GoldenCase& c = golden.cases[1];
    std::vector<std::vector<float>> logits;
    for (const char* ops : {"ref", "cpu"}) {
      Bench bench(
          {.model = golden_directory(name), .ops = ops, .dtype = "float32", .quantization = "fp8"});
      logits.push_back(bench.run({{c.prompt, 1}}, {}).front().logits);
      const double error = relative_error(logits.back(), c.logits);
      EXPECT_GT(error, 1e-3) << name << " " << ops;  // else nothing was rounded
      EXPECT_LT(error, 0.3) << name << " " << ops;
    }
    EXPECT_LT(relative_error(logits[1], logits[0]), 0.02) << name;
  }
}

// The fast kernels in float32 are as exact as the oracle.
TEST_P(GoldenTest, CpuOpsInFloat32AreWithinFp32Limits) {
  const auto& [name, shape] = GetParam();
  const Golden golden = golden_named(name);
  Bench bench({.model = golden_directory(name),
               .d = shape.d,
               .t = shape.t,
               .e = shape.e,
               .dtype = "float32"});
  for (const GoldenCase& c : golden.cases) {
    const auto out = bench.run({{c.prompt, static_cast<int>(c.greedy.size())}}, {.d = shape.d});
    EXPECT_LE(relative_error(out[0].logits, c.logits), golden.fp32.logits_rel);
    EXPECT_EQ(out[0].tokens, c.greedy);
  }
}

std::string test_name(const testing::TestParamInfo<GoldenTest::ParamType>& info) {
  return std::get<0>(info.param) + "_" + testing::PrintToString(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest,
                         testing::Combine(testing::ValuesIn(golden_names()),
                                          testing::Values(Shape{1, 1, 1}, Shape{2, 2, 2},
                                                          Shape{1, 2, 4}, Shape{2, 2, 3})),
                         test_name);

}  // namespace
}  // namespace asap::test
