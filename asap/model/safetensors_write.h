// SafetensorsWriter: one safetensors file, written front to back with bounded memory.
//
// The header is known before the data: the caller lists the tensors, then appends their bytes in
// the same order. The file has another name until it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "asap/base/result.h"

namespace asap {

struct TensorHeader {
  std::string name;
  std::string dtype;  // "F32", "I8", ...
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

class SafetensorsWriter {
 public:
  // Begins `path`.partial.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          const std::vector<TensorHeader>& tensors);
  Status append(const void* data, uint64_t bytes);
  // Flushes to the disk and gives the file its name. CHECKs that all bytes were appended.
  Status finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t expected_ = 0;
  uint64_t appended_ = 0;
};

// The name of a file that is not complete.
std::string partial_name(const std::string& path);
// Writes a small file whole, as finish() does.
Status write_file(const std::string& path, const std::string& text);

}  // namespace asap
