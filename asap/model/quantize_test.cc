// Quantising checkpoints: what is written, that it binds to the numbers that quantising at load
// gives, and that wrong or interrupted runs leave nothing that loads.
#include "asap/model/quantize.h"

#include <cmath>
#include <set>

#include "asap/model/test_support.h"
#include "asap/model/weights.h"

namespace asap {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string inside(const TemporaryDirectory& dir, const char* name = "int8") {
  return dir.path() + "/" + name;
}

Result<QuantizeSummary> quantize(const std::string& model, const std::string& output,
                                 uint64_t shard_bytes = 1 << 30) {
  return quantize_checkpoint({model, output, shard_bytes, nullptr});
}

struct Bound {
  ModelSpec spec;
  Checkpoint checkpoint;
  ModelWeights weights;
};

Bound bound(const std::string& directory, Quantization quantization) {
  Bound out;
  const auto spec = load_spec(directory);
  EXPECT_TRUE(spec) << spec.error().message;
  out.spec = spec.value_or(ModelSpec{});
  auto checkpoint = Checkpoint::open(directory);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  if (checkpoint) out.checkpoint = *std::move(checkpoint);
  auto weights = bind_weights(out.checkpoint, out.spec, quantization);
  EXPECT_TRUE(weights) << weights.error().message;
  if (weights) out.weights = *std::move(weights);
  return out;
}

struct Int8Row {
  std::vector<int8_t> q;
  float scale = 0;
  bool operator==(const Int8Row&) const = default;
};

Int8Row int8_row(const TensorView& view, int r) {
  std::vector<float> scratch;
  Int8Row out;
  out.q.resize(static_cast<size_t>(view.cols));
  out.scale = read_int8_row(view, r, scratch, out.q.data());
  return out;
}

std::vector<float> float_row(const TensorView& view, int r) {
  std::vector<float> out(static_cast<size_t>(view.cols));
  view.read_row(r, out.data());
  return out;
}

std::vector<const TensorView*> kept_matrices(const ModelWeights& weights) {
  std::vector<const TensorView*> out = {&weights.embed, &weights.lm_head, &weights.final_norm};
  for (const LayerViews& layer : weights.layers) {
    for (const TensorView* view :
         {&layer.kv_b, &layer.router, &layer.router_bias, &layer.index_q_b, &layer.index_k,
          &layer.index_weights, &layer.input_norm, &layer.shared_gate, &layer.q_bias}) {
      if (*view) out.push_back(view);
    }
  }
  return out;
}

class Quantize : public testing::TestWithParam<std::string> {};

// Every int8 matrix holds what loading the source with int8 gives, and everything else is equal.
TEST_P(Quantize, GivesTheNumbersOfQuantisingAtLoad) {
  const std::string source = golden_directory(GetParam());
  TemporaryDirectory dir;
  const auto summary = quantize(source, inside(dir));
  ASSERT_TRUE(summary) << summary.error().message;
  Bound want = bound(source, Quantization::int8);
  Bound got = bound(inside(dir), Quantization::none);
  ASSERT_FALSE(testing::Test::HasFailure());
  want.spec.fp8_ue8m0 = false;  // said of FP8 weights, which are gone
  EXPECT_EQ(got.spec, want.spec);
  EXPECT_EQ(got.checkpoint.total_bytes(), summary->bytes_after);

  const auto got_views = quantizable_matrices(got.weights);
  const auto want_views = quantizable_matrices(want.weights);
  ASSERT_EQ(got_views.size(), want_views.size());
  EXPECT_EQ(static_cast<int>(got_views.size()), summary->quantized);
  for (size_t i = 0; i < got_views.size(); ++i) {
    const TensorView& view = *got_views[i];
    SCOPED_TRACE(view.name);
    ASSERT_EQ(view.dtype, DType::i8);
    ASSERT_TRUE(view.as_int8);
    ASSERT_TRUE(want_views[i]->as_int8);
    for (int r = 0; r < view.rows; ++r) ASSERT_EQ(int8_row(view, r), int8_row(*want_views[i], r));
  }
  const auto got_kept = kept_matrices(got.weights);
  const auto want_kept = kept_matrices(want.weights);
  ASSERT_EQ(got_kept.size(), want_kept.size());
  for (size_t i = 0; i < got_kept.size(); ++i) {
    SCOPED_TRACE(got_kept[i]->name);
    EXPECT_FALSE(got_kept[i]->as_int8);
    for (int r = 0; r < got_kept[i]->rows; ++r) {
      ASSERT_EQ(float_row(*got_kept[i], r), float_row(*want_kept[i], r));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Quantize,
                         testing::Values("deepseek_v32", "deepseek_v32_fp8", "deepseek_v3_fp8",
                                         "deepseek_v3_mtp_shards", "deepseek_v3_noqlora",
                                         "glm4_moe", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe",
                                         "qwen3_moe_tied_v5"),
                         [](const auto& golden) { return golden.param; });

// The rounding of one row, by hand.
TEST(QuantizeRow, ScaleAndTies) {
  const std::vector<float> row = {254, -1, 1, 3, -5, 0, 252.9f, -254};
  EXPECT_EQ(int8_scale(row.data(), 8), 2.0f);
  std::vector<int8_t> q(8);
  quantize_int8(row.data(), 8, 2.0f, q.data());
  EXPECT_EQ(q, (std::vector<int8_t>{127, 0, 0, 2, -2, 0, 126, -127}));
  const std::vector<float> zeros(8, 0.0f);
  EXPECT_EQ(int8_scale(zeros.data(), 8), 0.0f);
  quantize_int8(zeros.data(), 8, 0.0f, q.data());
  EXPECT_EQ(q, std::vector<int8_t>(8, 0));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> poisoned = row;
    poisoned[7] = bad;
    EXPECT_TRUE(std::isnan(int8_scale(poisoned.data(), 8))) << bad;
  }
}

// What vLLM reads: names, types, shapes, the scheme, and the layers that it does not cover.
TEST(QuantizeFormat, IsThatOfCompressedTensors) {
  TemporaryDirectory dir;
  ASSERT_TRUE(quantize(golden_directory("deepseek_v3_fp8"), inside(dir)));
  const auto checkpoint = Checkpoint::open(inside(dir));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  std::set<std::string> int8, kept;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    EXPECT_FALSE(name.ends_with("_scale_inv")) << name;
    EXPECT_NE(tensor.dtype, "F8_E4M3") << name;
    if (name.ends_with(".weight_scale")) {
      const StoredTensor* weight = checkpoint->find(name.substr(0, name.size() - 6));
      ASSERT_NE(weight, nullptr) << name;
      EXPECT_EQ(weight->dtype, "I8");
      EXPECT_EQ(tensor.dtype, "F32");
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{weight->shape[0], 1}));
      int8.insert(name.substr(0, name.size() - 13));
    } else if (name.ends_with(".weight") && tensor.shape.size() == 2 && tensor.dtype != "I8") {
      kept.insert(name.substr(0, name.size() - 7));
    }
  }
  EXPECT_TRUE(int8.contains("model.layers.1.mlp.experts.3.gate_proj"));
  EXPECT_TRUE(int8.contains("model.layers.0.mlp.down_proj"));
  EXPECT_TRUE(int8.contains("model.layers.1.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(int8.contains("model.layers.1.self_attn.kv_a_proj_with_mqa"));

  const Json config = Json::parse(read_all(inside(dir) + "/config.json"));
  const Json& quantization = config.at("quantization_config");
  EXPECT_EQ(quantization.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(quantization.at("format"), "int-quantized");
  const Json& group = quantization.at("config_groups").at("group_0");
  EXPECT_EQ(group.at("targets"), Json::array({"Linear"}));
  const auto ignored = quantization.at("ignore").get<std::set<std::string>>();
  EXPECT_TRUE(ignored.contains("lm_head"));
  kept.erase("model.embed_tokens");
  EXPECT_EQ(ignored, kept);
  EXPECT_TRUE(ignored.contains("model.layers.1.self_attn.kv_b_proj"));
  EXPECT_TRUE(ignored.contains("model.layers.1.mlp.gate"));
  // Nothing else of the configuration changes.
  Json before = Json::parse(read_all(golden_directory("deepseek_v3_fp8") + "/config.json"));
  Json after = config;
  before.erase("quantization_config");
  after.erase("quantization_config");
  EXPECT_EQ(after, before);
}

TEST(QuantizeFormat, ShardsIndexAndCompanions) {
  TemporaryDirectory dir;
  const std::string source = golden_directory("deepseek_v3_mtp_shards");
  const auto whole = quantize(source, inside(dir, "whole"));
  const auto cut = quantize(source, inside(dir, "cut"), 40'000);
  ASSERT_TRUE(whole && cut);
  EXPECT_EQ(whole->files, 1);
  EXPECT_GT(cut->files, 3);
  EXPECT_GT(cut->left_out, 0);  // the prediction layer
  const auto one = Checkpoint::open(inside(dir, "whole"));
  const auto many = Checkpoint::open(inside(dir, "cut"));
  ASSERT_TRUE(one && many);
  EXPECT_EQ(static_cast<int>(many->files().size()), cut->files);
  ASSERT_EQ(one->tensors().size(), many->tensors().size());
  for (const auto& [name, tensor] : one->tensors()) {
    EXPECT_FALSE(name.starts_with("model.layers.3.")) << name;
    const StoredTensor* other = many->find(name);
    ASSERT_NE(other, nullptr) << name;
    ASSERT_EQ(other->bytes, tensor.bytes);
    EXPECT_EQ(std::memcmp(other->data, tensor.data, tensor.bytes), 0) << name;
  }
  for (const auto& entry : fs::directory_iterator(inside(dir, "cut"))) {
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
  }
  const Json index = Json::parse(read_all(inside(dir, "cut") + "/model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size"), cut->bytes_after);
  EXPECT_EQ(index.at("weight_map").size(), many->tensors().size());
}

TEST(QuantizeFormat, CopiesWhatBelongsToTheModel) {
  TemporaryDirectory dir;
  const std::string source = inside(dir, "source");
  fs::copy(golden_directory("qwen3_moe"), source);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "merges.txt", "LICENSE", "modeling.py"}) {
    write_all(source + "/" + name, name);
  }
  for (const char* name : {"pytorch_model.bin", "notes"}) write_all(source + "/" + name, name);
  ASSERT_TRUE(quantize(source, inside(dir)));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "merges.txt", "LICENSE", "modeling.py"}) {
    EXPECT_EQ(read_all(inside(dir) + "/" + name), name);
  }
  for (const char* name : {"pytorch_model.bin", "notes", "model.safetensors"}) {
    EXPECT_FALSE(fs::exists(inside(dir) + "/" + name)) << name;
  }
}

TEST(QuantizeErrors, NameTheDirectoryAndTheRemedy) {
  TemporaryDirectory dir;
  const std::string source = golden_directory("qwen3_moe");
  expect_error(quantize(source, source), Code::invalid, {"is the model itself"});
  expect_error(quantize(source, source + "/../qwen3_moe/."), Code::invalid,
               {"is the model itself"});
  expect_error(quantize(source, ""), Code::invalid, {"--output is empty"});
  expect_error(quantize("/nowhere", inside(dir)), Code::not_found, {"/nowhere"});
  dir.write("file", "x");
  expect_error(quantize(source, inside(dir, "file")), Code::invalid, {"is no directory"});
  expect_error(quantize(source, inside(dir, "file") + "/deeper"), Code::invalid,
               {"cannot be created"});
  expect_error(quantize(source, dir.path()), Code::invalid, {"holds files", "empty it"});
  EXPECT_EQ(read_all(inside(dir, "file")), "x");
  EXPECT_FALSE(fs::exists(inside(dir)));
  ASSERT_TRUE(quantize(source, inside(dir)));
  expect_error(quantize(inside(dir), inside(dir, "again")), Code::unsupported, {"is int8 already"});
  expect_error(quantize(golden_directory("gpt_oss"), inside(dir, "gpt")), Code::unsupported,
               {"gpt_oss", "--quantization int8"});
}

TEST(QuantizeErrors, AWeightThatIsNotFinite) {
  TemporaryDirectory dir;
  const std::string source = inside(dir, "source");
  fs::copy(golden_directory("qwen3_moe"), source);
  const auto checkpoint = Checkpoint::open(source);
  ASSERT_TRUE(checkpoint);
  const StoredTensor* tensor = checkpoint->find("model.layers.1.mlp.experts.2.up_proj.weight");
  ASSERT_NE(tensor, nullptr);
  ASSERT_EQ(tensor->dtype, "F32");
  std::string bytes = read_all(source + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const Json tensors = Json::parse(bytes.substr(8, header));
  const auto at = tensors["model.layers.1.mlp.experts.2.up_proj.weight"]["data_offsets"][0];
  const float infinity = INFINITY;
  std::memcpy(bytes.data() + 8 + header + at.get<uint64_t>() + 4 * tensor->shape[1], &infinity, 4);
  write_all(source + "/damaged", bytes);
  fs::rename(source + "/damaged", source + "/model.safetensors");
  expect_error(quantize(source, inside(dir), 30'000), Code::invalid,
               {"model.layers.1.mlp.experts.2.up_proj.weight, row 1,", "not finite"});
  EXPECT_FALSE(fs::exists(inside(dir)));
}

// At whatever point a run is stopped, nothing is left; and what a kill would leave does not load.
TEST(QuantizeErrors, StoppedRunsLeaveNothingThatLoads) {
  TemporaryDirectory dir;
  const std::string source = golden_directory("qwen3_moe");
  QuantizeOptions options{source, inside(dir), 40'000, nullptr};
  uint64_t reported = 0;
  for (const uint64_t tenths : {0, 3, 7, 10}) {
    reported = 0;
    options.on = [&, tenths](uint64_t done, uint64_t total) {
      EXPECT_GT(done, reported);
      EXPECT_LE(done, total);
      reported = done;
      EXPECT_FALSE(Checkpoint::open(inside(dir))) << "loads after " << done;
      return done * 10 < total * tenths;
    };
    expect_error(quantize_checkpoint(options), Code::unavailable, {"interrupted"});
    EXPECT_FALSE(fs::exists(inside(dir))) << tenths;
  }
  fs::create_directory(inside(dir));  // an empty one of the user's stays
  reported = 0;
  expect_error(quantize_checkpoint(options), Code::unavailable, {"interrupted"});
  EXPECT_TRUE(fs::is_empty(inside(dir)));
  options.on = nullptr;
  EXPECT_TRUE(quantize_checkpoint(options));
}

}  // namespace
}  // namespace asap
