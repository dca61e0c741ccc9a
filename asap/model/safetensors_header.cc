// The header of a safetensors file: its length, then JSON {name: {dtype, shape, data_offsets}},
// then the data.
//
// Read as a stream of events, so that no hostile header becomes a large tree in memory, and so that
// duplicate keys, which a tree would hide, are seen.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "asap/model/json_reader.h"
#include "asap/model/safetensors.h"

namespace asap {

namespace {

using Json = nlohmann::json;

// The reference implementation's bound; the header of a real shard is below a megabyte.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxRank = 8;

// 0: unknown.
uint64_t element_bytes(const std::string& dtype) {
  constexpr std::pair<const char*, uint64_t> kSizes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},   {"F8_E8M0", 1}, {"U64", 8},
      {"U32", 4}, {"U16", 2}, {"U8", 1},  {"BOOL", 1},
  };
  for (const auto& [name, bytes] : kSizes) {
    if (dtype == name) return bytes;
  }
  return 0;
}

// Collects the tensors of a header; the first wrong thing stops the parser and stays in status().
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(std::string file, const std::byte* data, uint64_t data_bytes,
               std::map<std::string, StoredTensor>* out)
      : file_(std::move(file)), data_(data), data_bytes_(data_bytes), out_(out) {}

  Status status() const {
    if (error_.message.empty()) return {};
    return tl::unexpected<Error>(error_);
  }

  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool key(std::string& name) override;
  bool string(std::string& text) override;
  bool number_unsigned(uint64_t number) override;
  bool number_integer(int64_t) override { return misplaced("a negative number"); }
  bool number_float(double, const std::string&) override { return misplaced("a fraction"); }
  bool boolean(bool) override { return misplaced("a boolean"); }
  bool null() override { return misplaced("null"); }
  bool binary(Json::binary_t&) override { return misplaced("binary data"); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return refuse(fmt::format("the header is not valid JSON at byte {}", position));
  }

 private:
  enum class Where { top, root, metadata, tensor, shape, offsets };
  enum Field : unsigned { none = 0, dtype = 1, shape = 2, data_offsets = 4, all = 7 };

  bool refuse(const std::string& what, Code code = Code::invalid) {
    if (error_.message.empty()) error_ = {code, fmt::format("{}: {}", file_, what)};
    return false;
  }
  bool refuse_tensor(const std::string& what, Code code = Code::invalid) {
    return refuse(fmt::format("tensor {}: {}", name_, what), code);
  }
  bool misplaced(const char* what) {
    if (name_.empty()) return refuse(fmt::format("the header holds {} out of place", what));
    return refuse_tensor(
        fmt::format("{} is out of place; an entry holds dtype, shape and two "
                    "data_offsets",
                    what));
  }
  bool add_tensor();

  std::string file_;
  const std::byte* data_;
  uint64_t data_bytes_;
  std::map<std::string, StoredTensor>* out_;
  Error error_;

  Where where_ = Where::top;
  bool metadata_seen_ = false;
  std::string name_;  // of the tensor being read
  unsigned seen_ = none;
  Field field_ = none;
  StoredTensor tensor_;
  std::vector<uint64_t> offsets_;
};

bool HeaderReader::start_object(size_t) {
  if (where_ == Where::top) {
    where_ = Where::root;
    return true;
  }
  if (where_ != Where::root) return misplaced("an object");
  where_ = name_ == "__metadata__" ? Where::metadata : Where::tensor;
  seen_ = none;
  tensor_ = {};
  offsets_.clear();
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (where_ == Where::metadata) return true;
  if (where_ == Where::root) {
    if (name.empty() || name.size() > kMaxNameBytes) {
      return refuse(fmt::format("a tensor's name has {} bytes; 1 to {} are allowed", name.size(),
                                kMaxNameBytes));
    }
    name_ = name;
    const bool repeated =
        name == "__metadata__" ? std::exchange(metadata_seen_, true) : out_->contains(name);
    return repeated ? refuse_tensor("is listed twice") : true;
  }
  field_ = name == "dtype"          ? dtype
           : name == "shape"        ? shape
           : name == "data_offsets" ? data_offsets
                                    : none;
  if (field_ == none) return refuse_tensor("has a key other than dtype, shape and data_offsets");
  if ((seen_ & field_) != 0) return refuse_tensor("has the same key twice");
  seen_ |= field_;
  return true;
}

bool HeaderReader::string(std::string& text) {
  if (where_ == Where::metadata) return true;
  if (where_ != Where::tensor || field_ != dtype) return misplaced("a string");
  tensor_.dtype = text.substr(0, 32);
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (where_ != Where::tensor || (field_ != shape && field_ != data_offsets)) {
    return misplaced("a list");
  }
  where_ = field_ == shape ? Where::shape : Where::offsets;
  return true;
}

bool HeaderReader::end_array() {
  where_ = Where::tensor;
  return true;
}

bool HeaderReader::number_unsigned(uint64_t number) {
  if (where_ == Where::shape) {
    if (number > INT32_MAX || tensor_.shape.size() == kMaxRank) {
      return refuse_tensor(
          fmt::format("its shape is out of bounds: at most {} dimensions, each "
                      "below 2^31",
                      kMaxRank));
    }
    tensor_.shape.push_back(static_cast<int64_t>(number));
    return true;
  }
  if (where_ != Where::offsets || offsets_.size() == 2) return misplaced("a number");
  offsets_.push_back(number);
  return true;
}

bool HeaderReader::end_object() {
  if (where_ == Where::tensor && !add_tensor()) return false;
  where_ = where_ == Where::root ? Where::top : Where::root;
  name_.clear();
  return true;
}

bool HeaderReader::add_tensor() {
  if (seen_ != all || offsets_.size() != 2) {
    return refuse_tensor("lacks one of dtype, shape and two data_offsets");
  }
  uint64_t bytes = element_bytes(tensor_.dtype);
  if (bytes == 0) {
    return refuse_tensor(fmt::format("has the unknown dtype {}", shown(tensor_.dtype)),
                         Code::unsupported);
  }
  for (const int64_t size : tensor_.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return refuse_tensor("the product of its shape overflows");
    }
  }
  const uint64_t begin = offsets_[0];
  const uint64_t end = offsets_[1];
  if (begin > end || end > data_bytes_) {
    return refuse_tensor(
        fmt::format("lies at [{}, {}) of {} data bytes; the file is truncated or "
                    "damaged, fetch it again",
                    begin, end, data_bytes_));
  }
  if (end - begin != bytes) {
    return refuse_tensor(fmt::format("has {} bytes, but {} [{}] takes {}", end - begin,
                                     tensor_.dtype, fmt::join(tensor_.shape, ", "), bytes));
  }
  tensor_.data = data_ + begin;
  tensor_.bytes = bytes;
  out_->emplace(name_, std::move(tensor_));
  return true;
}

Status check_overlaps(const std::map<std::string, StoredTensor>& tensors, const std::string& file) {
  std::vector<std::pair<const StoredTensor*, const std::string*>> order;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.bytes > 0) order.emplace_back(&tensor, &name);
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first->data < b.first->data; });
  for (size_t i = 1; i < order.size(); ++i) {
    const StoredTensor& previous = *order[i - 1].first;
    if (previous.data + previous.bytes > order[i].first->data) {
      return fail(Code::invalid,
                  "{}: tensors {} and {} overlap; the file is damaged, fetch it again", file,
                  *order[i - 1].second, *order[i].second);
    }
  }
  return {};
}

}  // namespace

Status parse_safetensors(const std::byte* bytes, uint64_t size, const std::string& file,
                         std::map<std::string, StoredTensor>* out) {
  uint64_t header_bytes = 0;
  if (size < sizeof(header_bytes)) {
    return fail(Code::invalid, "{}: {} bytes are no safetensors file", file, size);
  }
  std::memcpy(&header_bytes, bytes, sizeof(header_bytes));
  const uint64_t rest = size - sizeof(header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    return fail(Code::invalid,
                "{}: its header claims {} bytes, the limit is {}; no safetensors file?", file,
                header_bytes, kMaxHeaderBytes);
  }
  if (header_bytes > rest) {
    return fail(
        Code::invalid,
        "{}: its header claims {} bytes, but {} follow; the file is truncated, fetch it again",
        file, header_bytes, rest);
  }
  const auto* text = reinterpret_cast<const char*>(bytes + sizeof(header_bytes));
  std::map<std::string, StoredTensor> tensors;
  HeaderReader reader(file, bytes + sizeof(header_bytes) + header_bytes, rest - header_bytes,
                      &tensors);
  const bool complete = Json::sax_parse(text, text + header_bytes, &reader);
  ASAP_TRY(reader.status());
  if (!complete) return fail(Code::invalid, "{}: its header is not valid JSON", file);
  ASAP_TRY(check_overlaps(tensors, file));
  *out = std::move(tensors);
  return {};
}

}  // namespace asap
