// Every checkpoint that comes with ASAP loads and binds, whichever style its config.json has.
#include "asap/model/test_support.h"
#include "asap/model/weights.h"

namespace asap {
namespace {

using Json = nlohmann::json;

class GoldenFiles : public testing::TestWithParam<std::string> {
 protected:
  const std::string directory_ = golden_directory(GetParam());
  const Json golden_ = Json::parse(read_all(directory_ + "/golden.json"));
};

TEST_P(GoldenFiles, EveryConfigGivesTheSameSpec) {
  const auto spec = load_spec(directory_);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers, golden_["num_layers"].get<int>());
  EXPECT_EQ(spec->vocab, golden_["vocab_size"].get<int>());
  std::vector<int> moe_layers;
  for (int layer = 0; layer < spec->layers; ++layer) {
    if (spec->moe_layer[static_cast<size_t>(layer)] != 0) moe_layers.push_back(layer);
  }
  EXPECT_EQ(moe_layers, golden_["moe_layers"].get<std::vector<int>>());
  for (const auto& name : golden_["alt_configs"].get<std::vector<std::string>>()) {
    const auto other = parse_spec(read_all(directory_ + "/" + name), name);
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_EQ(*other, *spec) << name;
  }
}

// Binding finds every tensor, and the embedding of a prompt's last token is the first row of its
// residual stream.
TEST_P(GoldenFiles, BindsAndReadsTheEmbedding) {
  const auto spec = load_spec(directory_);
  ASSERT_TRUE(spec) << spec.error().message;
  const auto checkpoint = Checkpoint::open(directory_);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto weights = bind_weights(*checkpoint, *spec);
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_EQ(weights->layers.size(), static_cast<size_t>(spec->layers));

  const std::string expected = read_all(directory_ + "/golden.f32");
  const auto hidden = static_cast<size_t>(spec->hidden);
  for (const Json& prompt : golden_["cases"]) {
    if (!prompt.contains("hidden")) continue;
    std::vector<float> want(hidden), got(hidden);
    const size_t offset = prompt["hidden"]["offset"].get<size_t>() * sizeof(float);
    ASSERT_LE(offset + hidden * sizeof(float), expected.size());
    std::memcpy(want.data(), expected.data() + offset, hidden * sizeof(float));
    weights->embed.read_row(prompt["prompt"].back().get<int>(), got.data());
    EXPECT_EQ(got, want);
  }
}

std::vector<std::string> goldens() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(golden_directory(""))) {
    if (std::filesystem::exists(entry.path() / "golden.f32")) {
      out.push_back(entry.path().filename().string());
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFiles, testing::ValuesIn(goldens()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace asap
