#include "asap/model/presets.h"

#include <algorithm>

#include "asap/model/spec.h"
#include "asap/model/test_support.h"

namespace asap {
namespace {

TEST(Presets, AreTheFilesOfTheRepository) {
  std::vector<std::string> folders;
  const std::filesystem::path root = std::string(ASAP_SOURCE_DIR) + "/models/presets";
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path().filename().string());
  }
  std::sort(folders.begin(), folders.end());
  ASSERT_EQ(presets().size(), folders.size());
  for (size_t i = 0; i < folders.size(); ++i) {
    EXPECT_EQ(presets()[i].name, folders[i]);
    EXPECT_EQ(presets()[i].config, read_all(root / folders[i] / "config.json"));
  }
}

TEST(Presets, AllAreSupportedModels) {
  for (const Preset& preset : presets()) {
    const auto spec = parse_spec(std::string(preset.config), std::string(preset.name));
    EXPECT_TRUE(spec) << spec.error().message;
  }
}

TEST(Presets, UnknownNamesListTheKnown) {
  EXPECT_EQ(find_preset("mixtral-8x7b").value().name, "mixtral-8x7b");
  expect_error(find_preset("gpt-9"), Code::not_found,
               {"--preset gpt-9", "deepseek-v3.2", "gpt-oss-120b", "qwen3-30b-a3b"});
}

}  // namespace
}  // namespace asap
