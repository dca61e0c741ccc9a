// What the files of the oracle (ops_ref.cc, ref_attention.cc) share: float32 in memory, sums in
// double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "asap/compute/convert.h"
#include "asap/compute/fp8.h"
#include "asap/compute/kernels/table.h"
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

// An int8 matrix: [n, k] row-major, then (at a multiple of 4 bytes) the scales [n].
inline uint64_t int8_scales_at(int n, int k) {
  return (sz(n) * sz(k) + 3) / 4 * 4;
}

// x as a product with `w` sees it: for an int8 matrix q = x·(127 / max|x|) rounded to nearest, ties
// to even, and x ≈ scale·q. A row that is not finite gets the scale NaN.
struct Operand {
  const float* x;
  std::vector<int8_t> q;
  float scale = 0;
  std::vector<float> rounded;  // x, where it is rounded to fp8
  Operand(const Matrix& w, const float* row) : x(row) {
    if (w.fp8_rows != Fp8Rows::none) {
      rounded.assign(row, row + w.k);
      round_rows(w, rounded.data(), 1, w.k);
      x = rounded.data();
    }
    if (w.dtype != DType::i8) return;
    float most = 0;
    bool finite = true;
    for (int i = 0; i < w.k; ++i) {
      finite = finite && std::isfinite(x[i]);
      most = std::max(most, std::abs(x[i]));
    }
    scale = finite ? most / 127.0f : std::numeric_limits<float>::quiet_NaN();
    q.assign(sz(w.k), 0);
    if (!finite || most < kInt8Least) return;
    const float inverse = 127.0f / most;
    for (int i = 0; i < w.k; ++i) q[sz(i)] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  }
};

// Row j of W·x: the sum in double, or exact in integers and then scaled in float32.
inline double row_sum(const Matrix& w, int j, const Operand& x) {
  if (w.dtype != DType::i8) return dot(x.x, floats(w) + int64_t{j} * w.k, w.k);
  const auto* row = reinterpret_cast<const int8_t*>(w.data) + int64_t{j} * w.k;
  int64_t sum = 0;
  for (int i = 0; i < w.k; ++i) sum += int64_t{row[i]} * x.q[sz(i)];
  const float scale = reinterpret_cast<const float*>(w.data + int8_scales_at(w.n, w.k))[j];
  return static_cast<float>(sum) * (x.scale * scale);
}

// Row j of W·x + bias.
inline double row_product(const Matrix& w, int j, const Operand& x) {
  const double sum = row_sum(w, j, x);
  return w.bias == nullptr ? sum : sum + static_cast<double>(w.bias[j]);
}

// y[w.n] = W·x + bias.
inline void multiply(const Matrix& w, const float* x, float* y) {
  const Operand operand(w, x);
  for (int j = 0; j < w.n; ++j) y[j] = static_cast<float>(row_product(w, j, operand));
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
