// What the files of the oracle (ops_ref.cc, ref_attention.cc) share: float32 in memory, sums in
// double.
#pragma once

#include <cstddef>
#include <cstdint>

#include "asap/compute/convert.h"
#include "asap/compute/ops.h"

namespace asap::ref {

inline size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

inline double dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// A packed matrix, [n, k] row-major.
inline const float* floats(const Matrix& w) {
  return reinterpret_cast<const float*>(w.data);
}

// Row j of W·x + bias.
inline double row_product(const Matrix& w, int j, const float* x) {
  const double sum = dot(x, floats(w) + int64_t{j} * w.k, w.k);
  return w.bias == nullptr ? sum : sum + static_cast<double>(w.bias[j]);
}

// y[w.n] = W·x + bias.
inline void multiply(const Matrix& w, const float* x, float* y) {
  for (int j = 0; j < w.n; ++j) y[j] = static_cast<float>(row_product(w, j, x));
}

// Element i of a float32 or bfloat16 array.
inline float element(const std::byte* at, DType dtype, int64_t i) {
  if (dtype == DType::f32) return reinterpret_cast<const float*>(at)[i];
  return bf16_to_f32(reinterpret_cast<const uint16_t*>(at)[i]);
}

// As the ops of the same names.
void attention_gqa(const GqaArgs& args);
void attention_mla(const MlaArgs& args);
void indexer(const IndexerArgs& args);

}  // namespace asap::ref
