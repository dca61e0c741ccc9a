#include "asap/model/safetensors.h"

#include <fstream>
#include <utility>
#include <vector>

#include "asap/model/tensor.h"
#include "asap/model/test_support.h"

namespace asap {
namespace {

using Tensors = std::map<std::string, StoredTensor>;

Result<Tensors> parse(const std::string& file) {
  Tensors out;
  ASAP_TRY(
      parse_safetensors(reinterpret_cast<const std::byte*>(file.data()), file.size(), "f", &out));
  return out;
}

// One tensor `a` of that entry over `data_bytes` bytes.
Result<Tensors> parse_entry(const std::string& entry, size_t data_bytes = 64) {
  return parse(safetensors("{\"a\":" + entry + "}", std::string(data_bytes, '\1')));
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string file = safetensors(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
      R"("s":{"dtype":"U8","shape":[],"data_offsets":[12,13]},)"
      R"("z":{"dtype":"F16","shape":[0,7],"data_offsets":[0,0]}}   )",
      std::string(13, '\7'));
  const auto tensors = parse(file);
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 4u);
  const StoredTensor& b = tensors->at("b");
  EXPECT_EQ(b.dtype, "F32");
  EXPECT_EQ(b.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(b.bytes, 8u);
  const auto* end = reinterpret_cast<const std::byte*>(file.data() + file.size());
  EXPECT_EQ(b.data, end - 9);
  EXPECT_EQ(tensors->at("s").bytes, 1u);
  EXPECT_EQ(tensors->at("z").bytes, 0u);
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = safetensors(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
                                       std::string(16, '\0'));
  ASSERT_TRUE(parse(file));
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(parse(file.substr(0, size))) << size;
  }
  expect_error(parse("abc"), Code::invalid, {"3 bytes are no safetensors file"});
  expect_error(parse(file.substr(0, 40)), Code::invalid, {"truncated"});
  expect_error(parse(file.substr(0, file.size() - 1)), Code::invalid, {"tensor a", "truncated"});
}

TEST(Safetensors, HugeHeaderIsRefused) {
  std::string file = safetensors("{}", "");
  const uint64_t huge = uint64_t{1} << 62;
  std::memcpy(file.data(), &huge, sizeof(huge));
  expect_error(parse(file), Code::invalid, {"claims 4611686018427387904 bytes", "limit"});
}

TEST(Safetensors, BadEntriesAreRefusedByName) {
  struct Case {
    const char* entry;
    Code code;
    const char* message;
  };
  const Case cases[] = {
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,12]})", Code::invalid, "takes 16"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})", Code::invalid, "lies at"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[56,72]})", Code::invalid, "lies at"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[-4,12]})", Code::invalid, "negative"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,16,32]})", Code::invalid, "out of place"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0]})", Code::invalid, "lacks"},
      {R"({"dtype":"F32","shape":[4]})", Code::invalid, "lacks"},
      {R"({"dtype":"F32","shape":[4.5],"data_offsets":[0,16]})", Code::invalid, "fraction"},
      {R"({"dtype":"F32","shape":[[4]],"data_offsets":[0,16]})", Code::invalid, "a list"},
      {R"({"dtype":"F32","shape":{"a":1},"data_offsets":[0,16]})", Code::invalid, "an object"},
      {R"({"dtype":"F32","shape":null,"data_offsets":[0,16]})", Code::invalid, "null"},
      {R"({"dtype":4,"shape":[4],"data_offsets":[0,16]})", Code::invalid, "a number"},
      {R"({"dtype":"Q9","shape":[4],"data_offsets":[0,16]})", Code::unsupported, "dtype \"Q9\""},
      {R"({"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]})", Code::invalid,
       "same key twice"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1})", Code::invalid, "a key other"},
      {R"({"dtype":"F32","shape":[2147483647,2147483647,8],"data_offsets":[0,16]})", Code::invalid,
       "overflows"},
      {R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})", Code::invalid,
       "out of bounds"},
      {R"({"dtype":"U8","shape":[4294967296],"data_offsets":[0,1]})", Code::invalid,
       "out of bounds"},
      {R"(17)", Code::invalid, "a number"},
  };
  for (const Case& c : cases) {
    expect_error(parse_entry(c.entry), c.code, {"f: tensor a", c.message});
  }
}

TEST(Safetensors, BadHeadersAreRefused) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_error(parse(safetensors("{" + entry + "," + entry + "}", "x")), Code::invalid,
               {"tensor a", "twice"});
  expect_error(parse(safetensors("{" + entry, "x")), Code::invalid, {"not valid JSON"});
  expect_error(parse(safetensors("{" + entry + "}}", "x")), Code::invalid, {"not valid JSON"});
  expect_error(parse(safetensors("[]", "")), Code::invalid, {"out of place"});
  expect_error(parse(safetensors("", "")), Code::invalid, {"not valid JSON"});
  expect_error(parse(safetensors("{\"" + std::string(600, 'n') + "\":{}}", "")), Code::invalid,
               {"600 bytes"});
  expect_error(parse(safetensors(R"({"__metadata__":{"a":1}})", "")), Code::invalid,
               {"out of place"});
  expect_error(parse(safetensors(std::string(1 << 20, '['), "")), Code::invalid, {"out of place"});
}

TEST(Safetensors, OverlapsAreRefused) {
  const auto two = [](const char* first, const char* second) {
    return parse(safetensors(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                                         R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                                         first, second),
                             std::string(8, '\0')));
  };
  EXPECT_TRUE(two("[4,8]", "[0,4]"));
  expect_error(two("[0,4]", "[3,7]"), Code::invalid, {"tensors a and b overlap"});
  expect_error(two("[4,8]", "[4,8]"), Code::invalid, {"overlap"});
}

constexpr const char* kTensorA = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
constexpr const char* kTensorB = R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";

TEST(Checkpoint, OpensShardsOfAnIndex) {
  TemporaryDirectory dir;
  dir.write("one.safetensors", safetensors(kTensorA, "x"));
  dir.write("two.safetensors", safetensors(kTensorB, "yz"));
  dir.write("model.safetensors.index.json",
            R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->files().size(), 2u);
  EXPECT_EQ(checkpoint->total_bytes(), 3u);
  ASSERT_NE(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->find("b")->file, 1);
  EXPECT_EQ(std::to_integer<char>(checkpoint->find("b")->data[1]), 'z');
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

TEST(Checkpoint, ViewsOutliveTheFirstCopy) {
  TemporaryDirectory dir;
  dir.write("model.safetensors", safetensors(kTensorA, "x"));
  auto first = Checkpoint::open(dir.path());
  ASSERT_TRUE(first);
  const Checkpoint second = *first;
  first = fail(Code::internal, "gone");
  EXPECT_EQ(std::to_integer<char>(second.find("a")->data[0]), 'x');
}

TEST(Checkpoint, BadDirectoriesAndIndexesAreRefused) {
  expect_error(Checkpoint::open("/nonexistent"), Code::not_found, {"/nonexistent"});
  TemporaryDirectory dir;
  expect_error(Checkpoint::open(dir.path()), Code::not_found, {"neither model.safetensors nor"});
  dir.write("model.safetensors", "");
  expect_error(Checkpoint::open(dir.path()), Code::invalid, {"is empty"});

  dir.write("one.safetensors", safetensors(kTensorA, "x"));
  const auto with_index = [&](const std::string& index) {
    dir.write("model.safetensors.index.json", index);
    return Checkpoint::open(dir.path());
  };
  expect_error(with_index("{"), Code::invalid, {"index.json", "not valid JSON"});
  expect_error(with_index("{}"), Code::invalid, {"weight_map"});
  expect_error(with_index(R"({"weight_map":{"a":"../one.safetensors"}})"), Code::invalid,
               {"tensor a", "../one.safetensors", "this directory"});
  expect_error(with_index(R"({"weight_map":{"a":"missing.safetensors"}})"), Code::not_found,
               {"missing.safetensors"});
  expect_error(with_index(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})"),
               Code::invalid, {"one.safetensors", "lacks the tensor b"});
  dir.write("two.safetensors",
            safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                        "xy"));
  expect_error(with_index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"),
               Code::invalid, {"two.safetensors", "tensor a", "another shard"});
}

// Pages of files that this process maps and has touched.
int64_t file_pages() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  in >> size >> resident >> shared;
  return shared;
}

// Loading a checkpoint must not take the memory of its files beside that of the packed weights.
TEST(Checkpoint, ReleasedTensorsTakeNoMemoryAndKeepTheirValues) {
  constexpr int kRows = 1024;
  constexpr int kCols = 2048;
  const std::string data(size_t{2} * kRows * kCols * 2, '\1');
  const TemporaryDirectory dir;
  dir.write(
      "model.safetensors",
      safetensors(R"({"a":{"dtype":"BF16","shape":[1024,2048],"data_offsets":[0,4194304]},)"
                  R"("b":{"dtype":"BF16","shape":[1024,2048],"data_offsets":[4194304,8388608]}})",
                  data));
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  TensorView view;
  view.name = "a";
  view.dtype = DType::bf16;
  view.rows = kRows;
  view.cols = kCols;
  view.stride = kCols;
  view.data = checkpoint->find("a")->data;
  const int64_t before = file_pages();
  std::vector<float> first(kCols), again(kCols);
  for (int r = kRows - 1; r >= 0; --r) view.read_row(r, first.data());
  const int64_t touched = file_pages() - before;
  EXPECT_GE(touched, 1000);  // of 1024; the header's page was there
  checkpoint->prefetch(view);
  checkpoint->release(view);
  EXPECT_LE(file_pages() - before, touched / 8);
  view.read_row(0, again.data());
  EXPECT_EQ(first, again);
}

}  // namespace
}  // namespace asap
