#include "asap/model/safetensors_write.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kAlignment = 8;  // of the data

Status write_failed(const std::string& path) {
  return fail(Code::internal, "{}: cannot be written: {}", path, std::strerror(errno));
}

// Length and JSON of the header, padded with spaces.
std::string header_text(const std::vector<TensorHeader>& tensors) {
  nlohmann::ordered_json json;
  json["__metadata__"]["format"] = "pt";
  uint64_t at = 0;
  for (const TensorHeader& tensor : tensors) {
    json[tensor.name] = {{"dtype", tensor.dtype},
                         {"shape", tensor.shape},
                         {"data_offsets", {at, at + tensor.bytes}}};
    at += tensor.bytes;
  }
  std::string text = json.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t length = text.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + text;
}

}  // namespace

std::string partial_name(const std::string& path) {
  return path + ".partial";
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::vector<TensorHeader>& tensors) {
  SafetensorsWriter out;
  out.path_ = path;
  out.file_.reset(std::fopen(partial_name(path).c_str(), "wbx"));
  if (out.file_ == nullptr) {
    return fail(Code::internal, "{}: cannot be created: {}", partial_name(path),
                std::strerror(errno));
  }
  std::setvbuf(out.file_.get(), nullptr, _IOFBF, kBufferBytes);
  const std::string header = header_text(tensors);
  ASAP_TRY(out.append(header.data(), header.size()));
  out.expected_ = header.size();
  for (const TensorHeader& tensor : tensors) out.expected_ += tensor.bytes;
  return out;
}

Status SafetensorsWriter::append(const void* data, uint64_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) return write_failed(partial_name(path_));
  appended_ += bytes;
  return {};
}

Status SafetensorsWriter::finish() {
  CHECK(appended_ == expected_, "{}: {} bytes of {}", path_, appended_, expected_);
  const bool flushed = std::fflush(file_.get()) == 0 && fsync(fileno(file_.get())) == 0;
  if (!flushed) return write_failed(partial_name(path_));
  if (std::fclose(file_.release()) != 0) return write_failed(partial_name(path_));
  if (std::rename(partial_name(path_).c_str(), path_.c_str()) != 0) return write_failed(path_);
  return {};
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string partial = partial_name(path);
  std::FILE* file = std::fopen(partial.c_str(), "wbx");
  if (file == nullptr) return write_failed(partial);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                       std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  if (std::fclose(file) != 0 || !written) return write_failed(partial);
  if (std::rename(partial.c_str(), path.c_str()) != 0) return write_failed(path);
  return {};
}

}  // namespace asap
