// Damaged and unfit checkpoints: each is refused with one message that names the thing, at once,
// and without reading more than a bounded part of its files.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>

#include "asap/model/model_source.h"
#include "asap/model/test_support.h"
#include "asap/model/weight_values.h"

namespace asap {
namespace {

using Json = nlohmann::json;

// What an engine does before it takes memory.
Status load(const std::string& directory) {
  const ModelSource source{directory};
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source));
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source, spec));
  return check_values(weights.checkpoint, weights.views);
}

// A checkpoint of one file, in pieces.
struct Parts {
  Json header;
  std::string data;

  // The bytes of a tensor.
  std::string_view bytes(const std::string& name) const {
    const Json& offsets = header.at(name)["data_offsets"];
    return std::string_view(data).substr(offsets[0],
                                         offsets[1].get<size_t>() - offsets[0].get<size_t>());
  }
  // Element `index` of a tensor, counted from its end if negative.
  template <typename T>
  void set(const std::string& name, int64_t index, T value) {
    const std::string_view range = bytes(name);
    const auto count = static_cast<int64_t>(range.size() / sizeof(T));
    const size_t at = static_cast<size_t>(range.data() - data.data()) +
                      static_cast<size_t>(index < 0 ? count + index : index) * sizeof(T);
    std::memcpy(data.data() + at, &value, sizeof(T));
  }
  template <typename T>
  void fill(const std::string& name, T value) {
    const auto count = static_cast<int64_t>(bytes(name).size() / sizeof(T));
    for (int64_t i = 0; i < count; ++i) set(name, i, value);
  }
};

Parts read_parts(const std::string& file) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, file.data(), sizeof(bytes));
  return {Json::parse(file.substr(sizeof(bytes), bytes)), file.substr(sizeof(bytes) + bytes)};
}

struct Broken {
  const char* name;
  const char* golden;
  Code code;
  std::vector<std::string> words;
  std::function<void(Parts&)> edit_parts;                 // of the header and the data
  std::function<void(std::string&)> edit_file = {};       // of the whole file
  std::function<void(const std::string&)> edit_dir = {};  // of the folder
};

void PrintTo(const Broken& broken, std::ostream* out) {
  *out << broken.name;
}

constexpr const char* kNorm = "model.layers.1.input_layernorm.weight";
constexpr const char* kUp = "model.layers.1.mlp.experts.2.up_proj.weight";
constexpr const char* kQa = "model.layers.1.self_attn.q_a_proj.weight";

constexpr uint32_t kNan = 0x7FC00000;

// Damage to the file as a whole.
std::vector<Broken> file_cases() {
  return {
      {"truncated",
       "qwen3_moe",
       Code::invalid,
       {"model.safetensors", "truncated", "fetch it again"},
       nullptr,
       [](std::string& file) { file.resize(file.size() - 100); }},
      {"truncated_header",
       "qwen3_moe",
       Code::invalid,
       {"header claims", "truncated"},
       nullptr,
       [](std::string& file) { file.resize(100); }},
      {"empty",
       "qwen3_moe",
       Code::invalid,
       {"is empty"},
       nullptr,
       [](std::string& file) { file.clear(); }},
      {"huge_header",
       "qwen3_moe",
       Code::invalid,
       {"header claims", "limit"},
       nullptr,
       [](std::string& file) { file[7] = 0x10; }},
  };
}

// Wrong entries of its header.
std::vector<Broken> header_cases() {
  return {
      {"overlapping",
       "qwen3_moe",
       Code::invalid,
       {"overlap", "model.norm.weight"},
       [](Parts& p) {
         p.header["model.norm.weight"]["data_offsets"] = p.header[kNorm]["data_offsets"];
       }},
      {"beyond_the_end",
       "qwen3_moe",
       Code::invalid,
       {kNorm, "lies at"},
       [](Parts& p) {
         p.header[kNorm]["data_offsets"] = {1ull << 40, (1ull << 40) + 192};
       }},
      {"wrong_shape",
       "qwen3_moe",
       Code::invalid,
       {kUp, "has shape [48, 10]", "[10, 48]"},
       [](Parts& p) {
         p.header[kUp]["shape"] = {48, 10};
       }},
      {"wrong_dtype",
       "qwen3_moe",
       Code::unsupported,
       {kUp, "stored as I32", "BF16"},
       [](Parts& p) { p.header[kUp]["dtype"] = "I32"; }},
      {"missing_tensor",
       "qwen3_moe",
       Code::not_found,
       {"lacks the tensor", kUp},
       [](Parts& p) { p.header.erase(kUp); }},
      {"extra_tensor",
       "qwen3_moe",
       Code::unsupported,
       {"1 tensors", "no use", "model.extra"},
       [](Parts& p) {
         p.header["model.extra"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
       }},
      {"scale_missing",
       "deepseek_v3_fp8",
       Code::not_found,
       {kQa, "_scale_inv", "block scales"},
       [](Parts& p) { p.header.erase(std::string(kQa) + "_scale_inv"); }},
  };
}

std::vector<Broken> value_cases() {
  return {
      {"nan_filled",
       "qwen3_moe",
       Code::invalid,
       {"model.safetensors", kUp, "holds NaN at element 0"},
       [](Parts& p) { p.fill(kUp, kNan); }},
      {"inf_filled",
       "qwen3_moe",
       Code::invalid,
       {kUp, "holds infinity at element 0"},
       [](Parts& p) { p.fill(kUp, uint32_t{0x7F800000}); }},
      {"minus_inf_at_the_end",
       "qwen3_moe",
       Code::invalid,
       {kUp, "holds -infinity at element 479"},
       [](Parts& p) { p.set(kUp, -1, uint32_t{0xFF800000}); }},
      {"nan_in_a_norm",
       "qwen3_moe",
       Code::invalid,
       {kNorm, "[48]", "holds NaN at element 23"},
       [](Parts& p) { p.set(kNorm, 23, kNan); }},
      {"nan_bf16",
       "qwen3_moe_tied_v5",
       Code::invalid,
       {"model.embed_tokens.weight", "NaN"},
       [](Parts& p) { p.set("model.embed_tokens.weight", -1, uint16_t{0xFFC1}); }},
      {"inf_bf16",
       "qwen3_moe_tied_v5",
       Code::invalid,
       {"model.norm.weight", "infinity"},
       [](Parts& p) { p.set("model.norm.weight", 1, uint16_t{0x7F80}); }},
      {"nan_fp8",
       "deepseek_v3_fp8",
       Code::invalid,
       {kQa, "NaN at element 0"},
       [](Parts& p) { p.set(kQa, 0, uint8_t{0xFF}); }},
      {"nan_scale",
       "deepseek_v3_fp8",
       Code::invalid,
       {kQa, "_scale_inv", "NaN at element 3"},
       [](Parts& p) { p.set(std::string(kQa) + "_scale_inv", -1, kNan); }},
  };
}

std::vector<Broken> shard_cases() {
  const auto shard = [](const std::string& dir, int n) {
    return fmt::format("{}/model-0000{}-of-00002.safetensors", dir, n);
  };
  return {
      {"missing_shard",
       "deepseek_v3_mtp_shards",
       Code::not_found,
       {"model-00002-of-00002.safetensors"},
       nullptr,
       {},
       [=](const std::string& dir) { std::filesystem::remove(shard(dir, 2)); }},
      {"index_names_an_absent_file",
       "deepseek_v3_mtp_shards",
       Code::not_found,
       {"elsewhere.safetensors"},
       nullptr,
       {},
       [](const std::string& dir) {
         const std::string path = dir + "/model.safetensors.index.json";
         Json index = Json::parse(read_all(path));
         index["weight_map"]["model.norm.weight"] = "elsewhere.safetensors";
         write_all(path, index.dump());
       }},
      {"truncated_shard",
       "deepseek_v3_mtp_shards",
       Code::invalid,
       {"model-00001-of-00002.safetensors", "truncated"},
       nullptr,
       {},
       [=](const std::string& dir) { std::filesystem::resize_file(shard(dir, 1), 50'000); }},
  };
}

std::vector<Broken> all_cases() {
  std::vector<Broken> out;
  for (const auto& cases : {file_cases(), header_cases(), value_cases(), shard_cases()}) {
    out.insert(out.end(), cases.begin(), cases.end());
  }
  return out;
}

// A writable copy of the golden with the damage done.
void make(const Broken& broken, const TemporaryDirectory& dir) {
  namespace fs = std::filesystem;
  for (const auto& entry : fs::directory_iterator(golden_directory(broken.golden))) {
    write_all(fs::path(dir.path()) / entry.path().filename(), read_all(entry.path()));
  }
  if (broken.edit_dir) return broken.edit_dir(dir.path());
  const std::string path = dir.path() + "/model.safetensors";
  std::string file = read_all(path);
  if (broken.edit_parts) {
    Parts parts = read_parts(file);
    broken.edit_parts(parts);
    file = safetensors(parts.header.dump(), parts.data);
  }
  if (broken.edit_file) broken.edit_file(file);
  write_all(path, file);
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class BrokenCheckpoint : public testing::TestWithParam<Broken> {};

TEST_P(BrokenCheckpoint, IsRefusedByNameAtOnce) {
  const Broken& broken = GetParam();
  ASSERT_TRUE(load(golden_directory(broken.golden)));
  TemporaryDirectory dir;
  make(broken, dir);
  Status status;
  const double seconds = seconds_of([&] { status = load(dir.path()); });
  expect_error(status, broken.code, broken.words);
  EXPECT_EQ(status.error().message.find('\n'), std::string::npos) << status.error().message;
  EXPECT_LT(seconds, 1);
}

std::string test_name(const testing::TestParamInfo<Broken>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, BrokenCheckpoint, testing::ValuesIn(all_cases()), test_name);

// ---------------------------------------------------------------- large files

// A qwen3_moe checkpoint of 20 GB, all holes: experts of width 2^20.
class LargeCheckpoint : public testing::Test {
 protected:
  LargeCheckpoint() {
    Json config = Json::parse(read_all(golden_directory("qwen3_moe/config.json")));
    config["moe_intermediate_size"] = kWidth;
    dir_.write("config.json", config.dump());
    header_ = read_parts(read_all(golden_directory("qwen3_moe/model.safetensors"))).header;
    uint64_t at = 0;
    for (auto& [name, entry] : header_.items()) {
      if (name == "__metadata__") continue;
      uint64_t bytes = 4;
      for (Json& size : entry["shape"]) {
        if (name.find(".experts.") != std::string::npos && size == 10) size = kWidth;
        bytes *= size.get<uint64_t>();
      }
      entry["data_offsets"] = {at, at + bytes};
      at += bytes;
    }
    data_bytes_ = at;
    const std::string head = safetensors(header_.dump(), "");
    data_at_ = head.size();
    write_all(path(), head);
    std::filesystem::resize_file(path(), data_at_ + data_bytes_);
    EXPECT_GT(data_bytes_, 20'000'000'000u);
  }

  std::string path() const { return dir_.path() + "/model.safetensors"; }

  void write_value(const std::string& name, uint32_t bits) const {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(
        static_cast<std::streamoff>(data_at_ + header_[name]["data_offsets"][0].get<uint64_t>()));
    file.write(reinterpret_cast<const char*>(&bits), sizeof(bits));
    EXPECT_TRUE(file.flush());
  }

  // Bytes of the file that the system holds in memory: what was read, and read ahead.
  uint64_t resident() const {
    const uint64_t size = data_at_ + data_bytes_;
    const int fd = ::open(path().c_str(), O_RDWR | O_CLOEXEC);
    void* base = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    EXPECT_NE(base, MAP_FAILED);
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages((size + page - 1) / page);
    EXPECT_EQ(mincore(base, size, pages.data()), 0);
    munmap(base, size);
    ::close(fd);
    uint64_t bytes = 0;
    for (const unsigned char state : pages) bytes += (state & 1) != 0 ? page : 0;
    return bytes;
  }

  static constexpr int kWidth = 1 << 20;
  static constexpr uint64_t kMaxResident = 20'000'000;  // the header, and what is read ahead there
  TemporaryDirectory dir_;
  Json header_;
  uint64_t data_at_ = 0;
  uint64_t data_bytes_ = 0;
};

TEST_F(LargeCheckpoint, IsOpenedWithoutBeingRead) {
  Status status;
  const double seconds = seconds_of([&] { status = load(dir_.path()); });
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_LT(seconds, 1);
  EXPECT_LT(resident(), kMaxResident);
}

TEST_F(LargeCheckpoint, IsRefusedWithoutBeingRead) {
  write_value("model.layers.2.mlp.experts.11.down_proj.weight", kNan);
  Status status;
  const double seconds = seconds_of([&] { status = load(dir_.path()); });
  expect_error(status, Code::invalid, {"model.layers.2.mlp.experts.11.down_proj.weight", "NaN"});
  EXPECT_LT(seconds, 1);
  EXPECT_LT(resident(), kMaxResident);
}

TEST_F(LargeCheckpoint, TruncationIsSeenWithoutReading) {
  std::filesystem::resize_file(path(), data_at_ + data_bytes_ / 2);
  data_bytes_ /= 2;
  Status status;
  const double seconds = seconds_of([&] { status = load(dir_.path()); });
  expect_error(status, Code::invalid, {"truncated"});
  EXPECT_LT(seconds, 1);
  EXPECT_LT(resident(), kMaxResident);
}

}  // namespace
}  // namespace asap
