// Checkpoint: the safetensors files of a model directory, memory-mapped; nothing in them is
// trusted.
//
// Accepts model.safetensors, or the shards named by model.safetensors.index.json. Opening reads
// headers only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/base/units.h"
#include "asap/model/tensor_bytes.h"

namespace asap {

struct TensorView;

struct StoredTensor {
  std::string dtype;           // as in the header: "F32", "BF16", "F16", "F8_E4M3", ...
  std::vector<int64_t> shape;  // row-major
  TensorBytes data;
  uint64_t bytes = 0;
  int file = 0;  // index into Checkpoint::files()
};

class DummyWeights;
struct DummyFormat;

class Checkpoint {
 public:
  // Errors: not_found (directory or file), invalid (truncated, overlapping, out-of-range or
  // malformed header; a shard that lacks a tensor of the index). Every message names file and
  // tensor.
  static Result<Checkpoint> open(const std::string& directory);
  // Whether the directory has a weight file or an index at all.
  static bool exists(const std::string& directory);

  // No files: random tensors of the wanted shapes (dummy_weights.h).
  static Checkpoint dummy(const DummyFormat& format);
  bool is_dummy() const { return dummy_ != nullptr; }

  const StoredTensor* find(const std::string& name) const;
  // The same for a caller that needs this shape; a dummy has any tensor. Null, or whatever shape it
  // has.
  const StoredTensor* find(const std::string& name, const std::vector<int64_t>& shape) const;
  // Whether the tensor is there, or a dummy prefers the layout that has it.
  bool has(const std::string& name) const;
  const std::map<std::string, StoredTensor>& tensors() const;
  const std::vector<std::string>& files() const { return files_; }
  uint64_t total_bytes() const;
  // Forgets what a dummy has made so far; it is made again if it is read again. Nobody may be
  // reading.
  void release() const;
  // Of one tensor, for who packs one after another: the system may read it from disk now; and it is
  // not needed soon, so that a file's pages do not count as this process's memory any more (they
  // come back if they are read again). A dummy forgets all it has made.
  void prefetch(const TensorView& view) const;
  void release(const TensorView& view) const;
  // Whether the system may read ahead of what is touched, as it does by default: megabytes for a
  // byte.
  void read_ahead(bool on) const;

 private:
  struct Mapping;  // one mapped file; unmapped with the last copy
  std::vector<std::shared_ptr<Mapping>> mappings_;
  std::vector<std::string> files_;
  std::map<std::string, StoredTensor> tensors_;
  std::shared_ptr<DummyWeights> dummy_;  // or null
};

// Parses one file's header: `bytes` is the whole file. Fuzzed.
Status parse_safetensors(const std::byte* bytes, uint64_t size, const std::string& file,
                         std::map<std::string, StoredTensor>* out);

}  // namespace asap
