// TensorView: a read-only window on a stored matrix or vector of a checkpoint, whatever its element
// type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "asap/base/units.h"

namespace asap {

// A matrix [rows, cols] (a vector has rows == 1), row-major with a row stride, inside a
// memory-mapped file. Slices share the memory, so a rank reads only the bytes of its shard. FP8
// tensors carry their 128×128 block multipliers.
struct TensorView {
  std::string name;  // as in the file, for messages
  DType dtype = DType::f32;
  int rows = 0;
  int cols = 0;
  int64_t stride = 0;  // elements between two rows
  const std::byte* data = nullptr;

  // FP8 only: multiplier of element (r, c) is scales[((r + row0) / 128) * scale_cols + (c + col0) /
  // 128].
  const std::byte* scales = nullptr;
  DType scale_dtype = DType::f32;  // f32 or bf16
  int scale_cols = 0;
  int row0 = 0, col0 = 0;  // origin of this slice in the stored tensor

  explicit operator bool() const { return data != nullptr; }
  TensorView slice_rows(int begin, int end) const;
  TensorView slice_cols(int begin, int end) const;
  // Row r as float32 (exact for every source type), `cols` elements.
  void read_row(int r, float* out) const;
};

}  // namespace asap
