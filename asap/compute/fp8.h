// Round trips through FP8 (E4M3) that some reference programs make where others keep bfloat16 or
// float32: of the index queries and keys of sparse attention, and of the latent of MLA. Plain code,
// the same for every op table, so that tables agree on them to the bit. Source: DeepSeek-V3.2's
// inference program (act_quant with scale_fmt ue8m0).
#pragma once

#include "asap/compute/ops.h"

namespace asap {

// The nearest E4M3 value of x, ties to even; |x| above 448 becomes 448.
float round_to_e4m3(float x);

// Values of a group that share a scale.
inline constexpr int kFp8Group = 128;

// Rows i < n of x at x + i·ld: each group of 128 values (the last may be shorter, and so may the
// first: `first` values) becomes e4m3(x / s)·s with s = max(amax, 1e-4) / 448, or the smallest
// power of two that is not less.
void fp8_round_trip(float* x, int n, int64_t ld, int width, bool power_of_two = true,
                    int first = kFp8Group);

// What pack() notes of a view.
inline void mark_fp8_rows(const TensorView& view, Matrix* w) {
  w->fp8_rows = view.fp8_rows;
  w->fp8_first = kFp8Group - view.col0 % kFp8Group;
}
// Rounds rows as a product with `w` wants them.
inline void round_rows(const Matrix& w, float* x, int n, int64_t ld) {
  if (w.fp8_rows == Fp8Rows::none) return;
  fp8_round_trip(x, n, ld, w.k, w.fp8_rows == Fp8Rows::ue8m0, w.fp8_first);
}

// Rows become x·H·width^-1/2 with H the Hadamard matrix in Sylvester's order; width is a power of
// two.
void hadamard(float* x, int n, int64_t ld, int width);

}  // namespace asap
