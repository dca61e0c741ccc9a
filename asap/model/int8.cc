#include "asap/model/int8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace asap {

namespace {

constexpr float kLargest = 127;
// Below this a row is taken for zero: its scale would lose digits.
constexpr float kLeast = 1e-35f;
// Adding it rounds a small float to a whole number, ties to even.
constexpr float kRounder = 0x1.8p23f;

}  // namespace

float int8_scale(const float* row, int n) {
  // As bits, magnitudes order like floats, and above them all come the infinities and NaNs.
  int32_t bits = 0;
  for (int i = 0; i < n; ++i) bits = std::max(bits, std::bit_cast<int32_t>(row[i]) & 0x7FFFFFFF);
  const auto most = std::bit_cast<float>(bits);
  if (!std::isfinite(most)) return std::numeric_limits<float>::quiet_NaN();
  return most < kLeast ? 0.0f : most / kLargest;
}

void quantize_int8(const float* row, int n, float scale, int8_t* q) {
  if (!(scale > 0)) {
    std::fill_n(q, n, int8_t{0});
    return;
  }
  for (int i = 0; i < n; ++i) {
    q[i] = static_cast<int8_t>(static_cast<int>(row[i] / scale + kRounder - kRounder));
  }
}

float read_int8_row(const TensorView& view, int r, std::vector<float>& scratch, int8_t* q) {
  if (view.dtype == DType::i8) {
    std::memcpy(q, view.data + r * view.stride, static_cast<size_t>(view.cols));
    return view.row_scale(r);
  }
  const TensorView whole = view.whole_rows();
  scratch.resize(static_cast<size_t>(whole.cols));
  whole.read_row(r, scratch.data());
  const float scale = int8_scale(scratch.data(), whole.cols);
  quantize_int8(scratch.data() + (view.whole_cols == 0 ? 0 : view.col0), view.cols, scale, q);
  return scale;
}

}  // namespace asap
