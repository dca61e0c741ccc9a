// W8A8: matrices as int8 with one float32 scale per output channel (row of W), products with
// activations that are quantised per row when they are multiplied (compute/kernels/table.h).
//
// Symmetric: scale = max|w| / 127 over the stored row, q = w / scale rounded to nearest, ties to
// even. Checkpoints of the compressed-tensors format "int-quantized" with strategy "channel" hold
// the same numbers, so a matrix gives the same results stored so or quantised here.
#pragma once

#include <cstdint>
#include <vector>

#include "asap/model/tensor.h"

namespace asap {

// What is done to weights when they are loaded.
enum class Quantization : uint8_t {
  none,  // they stay what they are; stored int8 is multiplied as int8
  int8,  // W8A8 for the matrices that quantizable_matrices() (model/weights.h) lists
  fp8,   // stored FP8 is multiplied with activations that are rounded to FP8 (W8A8)
};

// Longest row that is multiplied as int8: 127²·this fits an int32.
inline constexpr int kMaxInt8Cols = 1 << 17;

// The scale of a row; NaN if it is not finite.
float int8_scale(const float* row, int n);
void quantize_int8(const float* row, int n, float scale, int8_t* q);

// Row r of any view as int8: its elements, and returns its scale. The scale is that of the whole
// stored row, also if the view is a slice of columns, so that shards and whole matrices agree.
// `scratch` saves allocations.
float read_int8_row(const TensorView& view, int r, std::vector<float>& scratch, int8_t* q);

}  // namespace asap
