#include "asap/model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "asap/model/dummy_weights.h"
#include "asap/model/json_reader.h"
#include "asap/model/read_file.h"
#include "asap/model/tensor.h"

namespace asap {

namespace fs = std::filesystem;

struct Checkpoint::Mapping {
  Mapping(void* at, uint64_t bytes) : base(at), size(bytes) {}
  ~Mapping() { munmap(base, size); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const std::byte* data() const { return static_cast<const std::byte*>(base); }

  void* base;
  uint64_t size;
};

namespace {

constexpr uint64_t kMaxIndexBytes = 100'000'000;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

// Shard -> the tensors that the index places there.
using ShardMap = std::map<std::string, std::vector<std::string>>;

// A plain file name: an index must not lead out of its directory.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Result<ShardMap> read_index(const std::string& path) {
  ASAP_ASSIGN(const std::string text, read_file(path, kMaxIndexBytes));
  ASAP_ASSIGN(const nlohmann::json index, parse_json_object(text, path));
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    return fail(Code::invalid, "{}: weight_map is missing; it must map tensors to files", path);
  }
  ShardMap out;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      return fail(Code::invalid, "{}: tensor {} lies in {}; it must be a file of this directory",
                  path, tensor, shown(file));
    }
    out[file.get<std::string>()].push_back(tensor);
  }
  return out;
}

struct FileDescriptor {
  explicit FileDescriptor(int n) : fd(n) {}
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int fd;
};

struct MappedRange {
  void* base = nullptr;
  uint64_t size = 0;
};

// Maps a whole file; its pages are read when they are touched. O_NONBLOCK: a pipe must not hang us.
Result<MappedRange> map_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) {
    return fail(Code::not_found, "{}: cannot be opened: {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return fail(Code::not_found, "{}: is no regular file", path);
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size == 0) return fail(Code::invalid, "{}: is empty; fetch it again", path);
  void* base = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (base == MAP_FAILED) {
    return fail(Code::internal, "{}: cannot be mapped: {}", path, std::strerror(errno));
  }
  return MappedRange{base, size};
}

Status check_shard(const std::map<std::string, StoredTensor>& tensors, const std::string& path,
                   const std::vector<std::string>& expected) {
  for (const std::string& tensor : expected) {
    if (!tensors.contains(tensor)) {
      return fail(Code::invalid, "{}: lacks the tensor {} that {} places there", path, tensor,
                  kIndexName);
    }
  }
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& directory) {
  const fs::path dir(directory);
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    return fail(Code::not_found, "{}: no such model directory", directory);
  }
  ShardMap shards{{kSingleName, {}}};
  if (fs::exists(dir / kIndexName, error)) {
    ASAP_ASSIGN(shards, read_index((dir / kIndexName).string()));
  } else if (!fs::exists(dir / kSingleName, error)) {
    return fail(Code::not_found, "{}: holds neither {} nor {}", directory, kSingleName, kIndexName);
  }
  Checkpoint out;
  for (const auto& [name, expected] : shards) {
    const std::string path = (dir / name).string();
    ASAP_ASSIGN(const MappedRange range, map_file(path));
    const auto mapping = std::make_shared<Mapping>(range.base, range.size);
    std::map<std::string, StoredTensor> tensors;
    ASAP_TRY(parse_safetensors(mapping->data(), mapping->size, path, &tensors));
    ASAP_TRY(check_shard(tensors, path, expected));
    for (auto& [tensor, stored] : tensors) {
      stored.file = static_cast<int>(out.files_.size());
      if (!out.tensors_.emplace(tensor, std::move(stored)).second) {
        return fail(Code::invalid, "{}: tensor {} is in another shard too", path, tensor);
      }
    }
    out.files_.push_back(path);
    out.mappings_.push_back(mapping);
  }
  return out;
}

bool Checkpoint::exists(const std::string& directory) {
  std::error_code error;
  const fs::path dir(directory);
  return fs::exists(dir / kIndexName, error) || fs::exists(dir / kSingleName, error);
}

Checkpoint Checkpoint::dummy(const DummyFormat& format) {
  Checkpoint out;
  out.dummy_ = std::make_shared<DummyWeights>(format);
  return out;
}

const std::map<std::string, StoredTensor>& Checkpoint::tensors() const {
  return dummy_ != nullptr ? dummy_->tensors() : tensors_;
}

const StoredTensor* Checkpoint::find(const std::string& name) const {
  const auto found = tensors().find(name);
  return found == tensors().end() ? nullptr : &found->second;
}

const StoredTensor* Checkpoint::find(const std::string& name,
                                     const std::vector<int64_t>& shape) const {
  return dummy_ != nullptr ? dummy_->find(name, shape) : find(name);
}

bool Checkpoint::has(const std::string& name) const {
  return dummy_ != nullptr ? dummy_->offers(name) : find(name) != nullptr;
}

void Checkpoint::release() const {
  if (dummy_ != nullptr) dummy_->release();
}

namespace {

// madvise of the pages that hold a view, whole ones.
void advise(const TensorView& view, int advice) {
  const auto begin = reinterpret_cast<uintptr_t>(view.data.stored());
  if (begin == 0) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = begin / page * page;
  const uintptr_t end = (begin + view.extent_bytes() + page - 1) / page * page;
  // Advice only: it is no failure if the system does not take it.
  madvise(reinterpret_cast<void*>(first), end - first, advice);
}

}  // namespace

void Checkpoint::prefetch(const TensorView& view) const {
  advise(view, MADV_WILLNEED);
}

void Checkpoint::release(const TensorView& view) const {
  release();
  advise(view, MADV_DONTNEED);
}

void Checkpoint::read_ahead(bool on) const {
  for (const auto& mapping : mappings_) {
    madvise(mapping->base, mapping->size, on ? MADV_NORMAL : MADV_RANDOM);
  }
}

uint64_t Checkpoint::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors()) bytes += tensor.bytes;
  return bytes;
}

}  // namespace asap
