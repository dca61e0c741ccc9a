#include "asap/model/model_source.h"

#include "asap/model/test_support.h"

namespace asap {
namespace {

ModelSource golden(const std::string& name) {
  ModelSource source;
  source.directory = golden_directory(name);
  return source;
}

ModelSource preset(const std::string& name) {
  ModelSource source;
  source.preset = name;
  return source;
}

TEST(ModelSource, ADirectoryIsWhatItWas) {
  const auto plain = load_spec(golden_directory("deepseek_v32"));
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(load_spec(golden("deepseek_v32")).value(), *plain);
  ModelSource other = golden("deepseek_v32");
  other.config_file = "config_v5.json";
  EXPECT_EQ(load_spec(other).value(), *plain);
  other.config_file = "config_v9.json";
  expect_error(load_spec(other), Code::not_found, {"config_v9.json"});
}

TEST(ModelSource, OverridesAreMerged) {
  ModelSource source = golden("deepseek_v32");
  const ModelSpec plain = load_spec(source).value();
  source.hf_overrides = R"({"num_experts_per_tok": 2, "rope_scaling": {"factor": 8},
                            "q_lora_rank": 32})";
  const ModelSpec changed = load_spec(source).value();
  EXPECT_EQ(changed.top_k, 2);
  EXPECT_EQ(changed.q_lora, 32);
  EXPECT_EQ(changed.rope.factor, 8);
  EXPECT_EQ(changed.rope.original_max_positions, plain.rope.original_max_positions);
}

// null is a value: without a query latent, not with the default one.
TEST(ModelSource, AnOverrideMayBeNull) {
  ModelSource source = golden("deepseek_v3_mtp_shards");
  EXPECT_GT(load_spec(source).value().q_lora, 0);
  source.hf_overrides = R"({"q_lora_rank": null})";
  EXPECT_EQ(load_spec(source).value().q_lora, 0);
}

TEST(ModelSource, BadOverridesAreRefused) {
  ModelSource source = golden("qwen3_moe");
  for (const char* text : {"{", "[1]", "12", "{\"hidden_size\": }"}) {
    source.hf_overrides = text;
    expect_error(load_spec(source), Code::invalid, {"--hf-overrides"});
  }
  source.hf_overrides = R"({"hidden_size": "wide"})";
  expect_error(load_spec(source), Code::invalid, {"hidden_size is \"wide\""});
}

TEST(ModelSource, FewerLayers) {
  ModelSource source = preset("deepseek-v3.2");
  source.num_hidden_layers = 4;
  const ModelSpec spec = load_spec(source).value();
  EXPECT_EQ(spec.layers, 4);
  EXPECT_EQ(spec.moe_layers(), 1);
  source.num_hidden_layers = 62;
  expect_error(load_spec(source), Code::invalid,
               {"--num-hidden-layers 62", "preset deepseek-v3.2 has 61 layers"});
  // Lists with an entry per layer.
  for (const char* name : {"gpt-oss-20b", "minimax-m2"}) {
    ModelSource listed = preset(name);
    listed.num_hidden_layers = 3;
    EXPECT_EQ(load_spec(listed).value().layers, 3);
  }
}

// The tensors of the layers that are left out are in the file, and not in the way.
TEST(ModelSource, FewerLayersOfACheckpoint) {
  ModelSource source = golden("qwen3_moe");
  source.num_hidden_layers = 2;
  const ModelSpec spec = load_spec(source).value();
  const auto weights = open_weights(source, spec);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->views.layers.size(), 2u);
}

TEST(ModelSource, PresetsHaveNoWeights) {
  const ModelSource source = preset("olmoe-1b-7b");
  const ModelSpec spec = load_spec(source).value();
  expect_error(open_weights(source, spec), Code::not_found, {"olmoe-1b-7b", "--load-format dummy"});
  ModelSource both = source;
  both.directory = golden_directory("qwen3_moe");
  expect_error(load_spec(both), Code::invalid, {"--preset olmoe-1b-7b", "one of them"});
}

}  // namespace
}  // namespace asap
