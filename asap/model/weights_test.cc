#include "asap/model/weights.h"

#include "asap/model/test_support.h"

namespace asap {
namespace {

using Json = nlohmann::json;

ModelSpec golden_spec(const std::string& name) {
  const auto spec = load_spec(golden_directory(name));
  EXPECT_TRUE(spec) << spec.error().message;
  return spec.value_or(ModelSpec{});
}

// Binds the golden model `name` after its header was changed by `edit`.
Result<ModelWeights> bind_edited(const std::string& name, const std::function<void(Json&)>& edit) {
  TemporaryDirectory dir;
  copy_checkpoint(golden_directory(name), dir, edit);
  ASAP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(dir.path()));
  return bind_weights(checkpoint, golden_spec(name));
}

void rename(Json& header, const std::string& from, const std::string& to) {
  header[to] = header.at(from);
  header.erase(from);
}

std::vector<float> read_row_of(const TensorView& view, int r) {
  std::vector<float> out(static_cast<size_t>(view.cols));
  view.read_row(r, out.data());
  return out;
}

TEST(Weights, MissingTensor) {
  expect_error(bind_edited("qwen3_moe", [](Json& h) { h.erase("model.norm.weight"); }),
               Code::not_found, {"lacks the tensor model.norm.weight"});
  expect_error(bind_edited("qwen3_moe",
                           [](Json& h) { h.erase("model.layers.1.mlp.experts.2.up_proj.weight"); }),
               Code::not_found, {"model.layers.1.mlp.experts.2.up_proj.weight"});
}

TEST(Weights, WrongShape) {
  expect_error(bind_edited("qwen3_moe",
                           [](Json& h) {
                             Json& shape = h["model.layers.1.mlp.gate.weight"]["shape"];
                             std::swap(shape[0], shape[1]);
                           }),
               Code::invalid,
               {"tensor model.layers.1.mlp.gate.weight has shape", "config.json asks for"});
}

TEST(Weights, WrongDtype) {
  expect_error(bind_edited("qwen3_moe", [](Json& h) { h["model.norm.weight"]["dtype"] = "I32"; }),
               Code::unsupported, {"tensor model.norm.weight", "stored as I32", "BF16"});
}

TEST(Weights, UnknownTensorsAreNamed) {
  const auto extra = [](int count) {
    return bind_edited("qwen3_moe", [&](Json& h) {
      for (int i = 0; i < count; ++i) {
        h[fmt::format("model.extra.{}", i)] = {
            {"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
      }
    });
  };
  expect_error(extra(1), Code::unsupported, {"1 tensors", "qwen3_moe", ": model.extra.0"});
  const auto five = extra(5);
  expect_error(five, Code::unsupported,
               {"5 tensors", "model.extra.0, model.extra.1, model.extra.2, ..."});
  EXPECT_THAT(five.error().message, testing::Not(testing::HasSubstr("model.extra.3")));
}

TEST(Weights, MeaninglessTensorsAreSkipped) {
  EXPECT_TRUE(bind_edited("qwen3_moe", [](Json& h) {
    const Json empty = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
    for (const char* name :
         {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.self_attn.k_scale",
          "model.layers.0.self_attn.v_scale", "model.layers.99.anything"}) {
      h[name] = empty;
    }
  }));
  expect_error(bind_edited("qwen3_moe",
                           [](Json& h) {
                             h["model.layers.x.anything"] = {
                                 {"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
                           }),
               Code::unsupported, {"model.layers.x.anything"});
}

TEST(Weights, BlockScales) {
  const std::string weight = "model.layers.1.self_attn.q_a_proj.weight";
  const std::string scales = weight + "_scale_inv";
  expect_error(bind_edited("deepseek_v3_fp8", [&](Json& h) { h.erase(scales); }), Code::not_found,
               {"lacks " + scales, "block scales"});
  expect_error(bind_edited("deepseek_v3_fp8",
                           [&](Json& h) {
                             h[scales]["shape"] = Json::array({4, 1});
                           }),
               Code::invalid, {scales, "[4, 1]", "[2, 2]"});
  expect_error(bind_edited("deepseek_v3_fp8", [&](Json& h) { h[scales]["dtype"] = "I32"; }),
               Code::unsupported, {scales, "I32"});
  expect_error(
      bind_edited("deepseek_v3_fp8", [&](Json& h) { rename(h, scales, "model.layers.1.stray"); }),
      Code::not_found, {"lacks " + scales});
}

TEST(Weights, Fp8ViewsCarryTheirScales) {
  const auto checkpoint = Checkpoint::open(golden_directory("deepseek_v3_fp8"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const ModelSpec spec = golden_spec("deepseek_v3_fp8");
  const auto weights = bind_weights(*checkpoint, spec);
  ASSERT_TRUE(weights) << weights.error().message;
  const LayerViews& layer = weights->layers[1];
  EXPECT_EQ(layer.q_a.dtype, DType::f8_e4m3);
  EXPECT_EQ(layer.q_a.scale_cols, 2);
  EXPECT_EQ(layer.o.dtype, DType::bf16);  // the projection that is not quantised
  // An element in the last, ragged block: its code times its block's multiplier.
  const TensorView& kv_a = layer.kv_a;  // [148, 160]
  float scale = 0;
  std::memcpy(&scale, kv_a.scales + 3 * sizeof(float), sizeof(scale));
  TensorView raw = kv_a;
  const std::vector<float> ones(4, 1.0f);
  raw.scales = reinterpret_cast<const std::byte*>(ones.data());
  EXPECT_EQ(read_row_of(kv_a, 147)[159], read_row_of(raw, 147)[159] * scale);
  EXPECT_NE(scale, 1.0f);
}

// gate, up and down of an expert lie where the fused layout says.
TEST(Weights, FusedExpertsAreSliced) {
  const auto checkpoint = Checkpoint::open(golden_directory("qwen3_moe_tied_v5"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const ModelSpec spec = golden_spec("qwen3_moe_tied_v5");
  const auto weights = bind_weights(*checkpoint, spec);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->lm_head.data, weights->embed.data);
  const StoredTensor& gate_up = *checkpoint->find("model.layers.1.mlp.experts.gate_up_proj");
  const StoredTensor& down = *checkpoint->find("model.layers.1.mlp.experts.down_proj");
  const int width = spec.moe_intermediate;
  ASSERT_EQ(weights->layers[1].experts.size(), static_cast<size_t>(spec.experts));
  for (int e = 0; e < spec.experts; ++e) {
    const FfnViews& ffn = weights->layers[1].experts[static_cast<size_t>(e)];
    const int64_t matrix = int64_t{width} * spec.hidden * 2;  // bytes of one bf16 matrix
    EXPECT_EQ(ffn.gate.data, gate_up.data + 2 * e * matrix);
    EXPECT_EQ(ffn.up.data, gate_up.data + (2 * e + 1) * matrix);
    EXPECT_EQ(ffn.down.data, down.data + e * matrix);
    EXPECT_EQ(ffn.up.rows, width);
    EXPECT_EQ(ffn.down.cols, width);
  }
}

// The same values in either layout bind to equal rows.
TEST(Weights, PerExpertAndFusedLayoutsAgree) {
  constexpr int kLayer = 1;
  const std::string prefix = fmt::format("model.layers.{}.mlp.experts.", kLayer);
  TemporaryDirectory dir;
  copy_checkpoint(golden_directory("qwen3_moe_tied_v5"), dir, [&](Json& h) {
    const Json gate_up = h.at(prefix + "gate_up_proj");
    const Json down = h.at(prefix + "down_proj");
    h.erase(prefix + "gate_up_proj");
    h.erase(prefix + "down_proj");
    const auto put = [&](const std::string& name, const Json& from, int part, int parts,
                         Json shape) {
      const int64_t begin = from["data_offsets"][0];
      const int64_t bytes = (from["data_offsets"][1].get<int64_t>() - begin) / parts;
      h[name] = {{"dtype", from["dtype"]},
                 {"shape", std::move(shape)},
                 {"data_offsets", {begin + part * bytes, begin + (part + 1) * bytes}}};
    };
    const int experts = gate_up["shape"][0], width = gate_up["shape"][1].get<int>() / 2;
    const int hidden = gate_up["shape"][2];
    for (int e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}{}.", prefix, e);
      put(expert + "gate_proj.weight", gate_up, 2 * e, 2 * experts, {width, hidden});
      put(expert + "up_proj.weight", gate_up, 2 * e + 1, 2 * experts, {width, hidden});
      put(expert + "down_proj.weight", down, e, experts, {hidden, width});
    }
  });
  const ModelSpec spec = golden_spec("qwen3_moe_tied_v5");
  const auto fused_file = Checkpoint::open(golden_directory("qwen3_moe_tied_v5"));
  const auto split_file = Checkpoint::open(dir.path());
  ASSERT_TRUE(fused_file && split_file);
  const auto fused = bind_weights(*fused_file, spec);
  const auto split = bind_weights(*split_file, spec);
  ASSERT_TRUE(fused) << fused.error().message;
  ASSERT_TRUE(split) << split.error().message;
  for (size_t e = 0; e < static_cast<size_t>(spec.experts); ++e) {
    const FfnViews& a = fused->layers[kLayer].experts[e];
    const FfnViews& b = split->layers[kLayer].experts[e];
    for (int r = 0; r < spec.moe_intermediate; ++r) {
      EXPECT_EQ(read_row_of(a.gate, r), read_row_of(b.gate, r));
      EXPECT_EQ(read_row_of(a.up, r), read_row_of(b.up, r));
    }
    for (int r = 0; r < spec.hidden; ++r) EXPECT_EQ(read_row_of(a.down, r), read_row_of(b.down, r));
  }
}

TEST(Weights, FusedStackOfTheWrongShape) {
  expect_error(bind_edited("qwen3_moe_tied_v5",
                           [](Json& h) {
                             Json& shape = h["model.layers.1.mlp.experts.down_proj"]["shape"];
                             std::swap(shape[1], shape[2]);
                           }),
               Code::invalid, {"experts.down_proj has shape"});
}

}  // namespace
}  // namespace asap
