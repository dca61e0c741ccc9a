// TensorView: a read-only window on a stored matrix or vector of a checkpoint, whatever its element
// type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "asap/base/units.h"
#include "asap/model/tensor_bytes.h"

namespace asap {

inline constexpr int kScaleBlock = 128;  // of FP8: rows and columns of weights that share a scale
inline constexpr int kMxBlock = 32;      // of MXFP4: values of a row that share an exponent

// How the rows that a matrix is multiplied with are rounded first: to E4M3, one scale per 128
// values (compute/fp8.h), as programs do that multiply FP8 by FP8.
enum class Fp8Rows : uint8_t {
  none,
  plain,  // scale = largest magnitude / 448
  ue8m0,  // the next power of two
};

// A matrix [rows, cols] (a vector has rows == 1), row-major with a row stride, inside a
// memory-mapped file. Slices share the memory, so a rank reads only the bytes of its shard. FP8
// tensors carry their 128×128 block multipliers, MXFP4 tensors one exponent per 32 values of a row,
// int8 tensors one multiplier per row.
struct TensorView {
  std::string name;  // as in the file, for messages
  DType dtype = DType::f32;
  int rows = 0;
  int cols = 0;
  int64_t stride = 0;  // elements between two rows
  int64_t step = 1;    // elements between two columns; not 1 in a transposed view
  TensorBytes data;

  // FP8: multiplier of element (r, c) is scales[(row / 128) * scale_cols + (c + col0) / 128] with
  // row = row0 + r·row_step, the row of the stored tensor. MXFP4: 2^(scales[row · scale_cols +
  // (c + col0) / 32] - 127), bytes. Int8: scales[row].
  TensorBytes scales;
  DType scale_dtype = DType::f32;  // FP8, int8: f32, bf16 or f8_e8m0
  int scale_cols = 0;
  int row0 = 0, col0 = 0;  // origin of this slice in the stored tensor
  int row_step = 1;        // stored rows between two rows
  int whole_cols = 0;      // of the rows that this is cut out of; 0: cols

  // To be multiplied as int8 (model/int8.h).
  bool as_int8 = false;
  Fp8Rows fp8_rows = Fp8Rows::none;

  explicit operator bool() const { return data != nullptr; }
  TensorView slice_rows(int begin, int end) const;
  TensorView slice_cols(int begin, int end) const;
  TensorView every_other_row(int first) const;  // rows first, first + 2, ...
  TensorView transposed() const;                // f32, bf16, f16
  TensorView whole_rows() const;                // as before any slice_cols
  // Where row r begins, its bytes there. Not of MXFP4, nor of a transposed view.
  const std::byte* stored_row(int r) const;
  // Row r as float32 (exact for every source type), `cols` elements.
  void read_row(int r, float* out) const;
  // From the first byte at `data` to the last one of this view.
  uint64_t extent_bytes() const;
  float row_scale(int r) const;  // int8: multiplier of row r
  // Whether every element is a bfloat16, so that a bfloat16 copy loses nothing. For FP8 that needs
  // multipliers that are powers of two (scale_fmt ue8m0).
  bool fits_bf16() const;
};

// The three matrices of an FFN, [I, H], [I, H], [H, I], and their biases if it has any.
struct FfnViews {
  TensorView gate, up, down;
  TensorView gate_bias, up_bias, down_bias;
};

}  // namespace asap
