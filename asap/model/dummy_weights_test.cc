#include "asap/model/dummy_weights.h"

#include <cmath>
#include <thread>

#include "asap/model/model_source.h"
#include "asap/model/test_support.h"
#include "asap/model/weights.h"

namespace asap {
namespace {

// Every element of a tensor through the view that bind_weights would make of it.
std::vector<float> values(const TensorView& view) {
  std::vector<float> out;
  std::vector<float> row(static_cast<size_t>(view.cols));
  for (int r = 0; r < view.rows; ++r) {
    view.read_row(r, row.data());
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};
Moments moments(const std::vector<float>& values) {
  Moments out;
  for (const float v : values) out.mean += static_cast<double>(v);
  out.mean /= static_cast<double>(values.size());
  for (const float v : values) {
    out.deviation += std::pow(static_cast<double>(v) - out.mean, 2);
    out.largest = std::max(out.largest, std::abs(static_cast<double>(v)));
  }
  out.deviation = std::sqrt(out.deviation / static_cast<double>(values.size()));
  return out;
}

// A model of `config` with its keys replaced, with dummy weights.
struct Model {
  ModelSpec spec;
  OpenWeights weights;
};
Model dummy_model(const std::string& golden, uint64_t seed, const std::string& overrides = "{}") {
  ModelSource source;
  source.directory = golden_directory(golden);
  source.load_format = "dummy";
  source.seed = seed;
  source.hf_overrides = overrides;
  auto spec = load_spec(source);
  EXPECT_TRUE(spec) << spec.error().message;
  auto weights = open_weights(source, *spec);
  EXPECT_TRUE(weights) << weights.error().message;
  return {*spec, *weights};
}

TEST(DummyWeights, EveryFamilyBinds) {
  for (const auto& entry : std::filesystem::directory_iterator(golden_directory(""))) {
    if (!std::filesystem::exists(entry.path() / "golden.json")) continue;
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const Model model = dummy_model(name, 1);
    const ModelWeights& views = model.weights.views;
    EXPECT_EQ(views.stored.size(), model.weights.checkpoint.tensors().size());
    EXPECT_EQ(values(views.final_norm), std::vector<float>(views.final_norm.cols, 1.0f));
    for (const LayerViews& layer : views.layers) {
      for (const FfnViews& expert : layer.experts) {
        for (const float v : values(expert.down)) ASSERT_TRUE(std::isfinite(v));
      }
      if (layer.router_bias) {
        EXPECT_EQ(moments(values(layer.router_bias)).largest, 0);
      }
    }
  }
}

// Matrices large enough to measure.
constexpr const char* kWide = R"({"moe_intermediate_size": 512, "hidden_size": 256})";

TEST(DummyWeights, DeviationsFollowTheFanIn) {
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    SCOPED_TRACE(dtype);
    const Model model = dummy_model("qwen3_moe", 1,
                                    fmt::format(R"({{"moe_intermediate_size": 512,
        "hidden_size": 256, "torch_dtype": "{}"}})",
                                                dtype));
    const LayerViews& layer = model.weights.views.layers[1];
    const double tolerance = std::string(dtype) == "float16" ? 0.42 : 0.02;
    const Moments up = moments(values(layer.experts[3].up));  // [512, 256]
    EXPECT_NEAR(up.deviation * std::sqrt(256), 1, tolerance);
    EXPECT_NEAR(up.mean, 0, 0.02 * up.deviation);
    const Moments down = moments(values(layer.experts[3].down));  // [256, 512]
    EXPECT_NEAR(down.deviation * std::sqrt(512), 1, tolerance);
    EXPECT_NEAR(moments(values(model.weights.views.embed)).deviation, 1, tolerance);
  }
}

TEST(DummyWeights, QuantisedLayoutsKeepTheDeviation) {
  const Model fp8 = dummy_model("deepseek_v3_fp8", 1, kWide);
  const LayerViews& layer = fp8.weights.views.layers[1];
  EXPECT_EQ(layer.experts[0].up.dtype, DType::f8_e4m3);
  EXPECT_EQ(layer.router.dtype, DType::bf16);
  EXPECT_EQ(fp8.weights.views.embed.dtype, DType::bf16);
  EXPECT_NEAR(moments(values(layer.experts[0].up)).deviation * std::sqrt(256), 1, 0.05);

  const Model ue8m0 = dummy_model("deepseek_v32_fp8", 1, kWide);
  const TensorView& up = ue8m0.weights.views.layers.back().experts[0].up;
  EXPECT_TRUE(up.fits_bf16());
  EXPECT_NEAR(moments(values(up)).deviation * std::sqrt(256), 1, 0.42);

  const Model mxfp4 =
      dummy_model("gpt_oss", 1, R"({"intermediate_size": 256, "hidden_size": 256})");
  const FfnViews& expert = mxfp4.weights.views.layers[0].experts[1];
  EXPECT_EQ(expert.gate.dtype, DType::mxfp4);
  EXPECT_NEAR(moments(values(expert.gate)).deviation * std::sqrt(256), 1, 0.42);
  EXPECT_EQ(moments(values(expert.gate_bias)).largest, 0);
  EXPECT_EQ(mxfp4.weights.views.layers[0].q.dtype, DType::bf16);
}

TEST(DummyWeights, ModulesNotToConvertStayPlain) {
  const Model model = dummy_model(
      "deepseek_v3_fp8", 1,
      R"({"quantization_config": {"modules_to_not_convert": ["self_attn", "lm_head"]}})");
  EXPECT_EQ(model.weights.views.layers[1].o.dtype, DType::bf16);
  EXPECT_EQ(model.weights.views.layers[1].experts[0].up.dtype, DType::f8_e4m3);
}

TEST(DummyWeights, SeedAndNameDecide) {
  const Model first = dummy_model("qwen3_moe", 7);
  const Model same = dummy_model("qwen3_moe", 7);
  const Model other = dummy_model("qwen3_moe", 8);
  const auto up = [](const Model& m, size_t expert) {
    return values(m.weights.views.layers[1].experts[expert].up);
  };
  EXPECT_EQ(up(first, 2), up(same, 2));
  EXPECT_NE(up(first, 2), up(other, 2));
  EXPECT_NE(up(first, 2), up(first, 3));
}

// Order, threads and release change nothing.
TEST(DummyWeights, AValueDoesNotDependOnWhoReadsItWhen) {
  constexpr int kRows = 4096;
  const auto tensor_of = [](DummyWeights& dummy) {
    TensorView view;
    view.name = "w";
    view.dtype = DType::bf16;
    view.rows = kRows;
    view.cols = 515;
    view.stride = 515;
    view.data = dummy.find("a.weight", {kRows, 515})->data;
    return view;
  };
  DummyWeights first({.seed = 3});
  const TensorView view = tensor_of(first);
  const std::vector<float> expected = values(view);
  first.release();
  EXPECT_EQ(values(view), expected);
  DummyWeights second({.seed = 3});
  const TensorView backwards = tensor_of(second);
  std::vector<float> got(expected.size());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int r = kRows - 1 - t; r >= 0; r -= 4) backwards.read_row(r, got.data() + r * 515);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, expected);
}

// Binding a large model takes no memory to speak of, and a row makes a chunk.
TEST(DummyWeights, OnlyWhatIsReadIsMade) {
  const Model model =
      dummy_model("qwen3_moe", 1, R"({"moe_intermediate_size": 16384, "hidden_size": 16384})");
  EXPECT_GT(model.weights.checkpoint.total_bytes(), 100'000'000'000u);
  std::vector<float> row(16384);
  model.weights.views.layers[2].experts[3].up.read_row(8192, row.data());
  EXPECT_NEAR(moments(row).deviation * 128, 1, 0.05);
}

}  // namespace
}  // namespace asap
