// Helpers of this folder's tests: temporary model directories, hand-made safetensors files, errors
// to be expected.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "asap/base/result.h"

namespace asap {

inline std::string golden_directory(const std::string& name) {
  return std::string(ASAP_SOURCE_DIR) + "/tests/golden/" + name;
}

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file) << path;
  return text.str();
}

inline void write_all(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A directory that goes away with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "asap_model_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string path() const { return path_.string(); }
  void write(const std::string& name, const std::string& bytes) const {
    write_all(path_ / name, bytes);
  }

 private:
  std::filesystem::path path_;
};

// A safetensors file from the text of its header and its data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t bytes = header.size();
  std::string out(sizeof(bytes), '\0');
  std::memcpy(out.data(), &bytes, sizeof(bytes));
  return out + header + data;
}

// Copies the one-file checkpoint of `source` into `target` with its header changed by `edit`.
inline void copy_checkpoint(const std::string& source, const TemporaryDirectory& target,
                            const std::function<void(nlohmann::json&)>& edit) {
  const std::string file = read_all(source + "/model.safetensors");
  uint64_t bytes = 0;
  std::memcpy(&bytes, file.data(), sizeof(bytes));
  nlohmann::json header = nlohmann::json::parse(file.substr(sizeof(bytes), bytes));
  edit(header);
  target.write("model.safetensors", safetensors(header.dump(), file.substr(sizeof(bytes) + bytes)));
}

// Expects a failure of that code whose message holds every one of `parts`.
template <typename T>
void expect_error(const Result<T>& result, Code code, const std::vector<std::string>& parts) {
  ASSERT_FALSE(result.has_value()) << "expected an error with " << parts.front();
  EXPECT_EQ(result.error().code, code) << result.error().message;
  for (const std::string& part : parts) {
    EXPECT_THAT(result.error().message, testing::HasSubstr(part));
  }
}

}  // namespace asap
