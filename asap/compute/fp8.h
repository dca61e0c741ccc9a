// Round trips through FP8 (E4M3) that some reference programs make where others keep bfloat16 or
// float32: of the index queries and keys of sparse attention, and of the latent of MLA. Plain code,
// the same for every op table, so that tables agree on them to the bit. Source: DeepSeek-V3.2's
// inference program (act_quant with scale_fmt ue8m0).
#pragma once

namespace asap {

// The nearest E4M3 value of x, ties to even; |x| above 448 becomes 448.
float round_to_e4m3(float x);

// Rows i < n of x at x + i·ld: each group of 128 values (the last may be shorter) becomes
// e4m3(x / s)·s with s the smallest power of two that is at least max(amax, 1e-4) / 448.
void fp8_round_trip(float* x, int n, int ld, int width);

// Rows become x·H·width^-1/2 with H the Hadamard matrix in Sylvester's order; width is a power of
// two.
void hadamard(float* x, int n, int ld, int width);

}  // namespace asap
