#include "asap/model/tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr int kScaleBlock = 128;

// Little-endian loads that need no alignment: a header's length decides where the data starts.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float bf16_to_f32(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

float f16_to_f32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float subnormal = static_cast<float>(mantissa) * 0x1.0p-24f;
  return sign != 0 ? -subnormal : subnormal;
}

// E4M3FN: bias 7, no infinity, NaN is 0x7F and 0xFF, subnormal step 2^-9.
constexpr float e4m3_value(unsigned byte) {
  const unsigned exponent = (byte >> 3) & 0xF;
  const unsigned mantissa = byte & 0x7;
  float value = 0;
  if (exponent == 0xF && mantissa == 0x7) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = static_cast<float>(mantissa) * 0x1.0p-9f;
  } else {
    value = static_cast<float>(8 + mantissa) * static_cast<float>(1u << exponent) * 0x1.0p-10f;
  }
  return (byte & 0x80) != 0 ? -value : value;
}

constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte) table[byte] = e4m3_value(byte);
  return table;
}
constexpr std::array<float, 256> kE4m3 = make_e4m3_table();

// Row `r` of an FP8 view, block by block: a block of a row has one multiplier.
void read_f8_row(const TensorView& view, int r, const std::byte* at, float* out) {
  const int64_t scale_row = static_cast<int64_t>((r + view.row0) / kScaleBlock) * view.scale_cols;
  for (int begin = 0; begin < view.cols;) {
    const int block = (begin + view.col0) / kScaleBlock;
    const int end = std::min(view.cols, (block + 1) * kScaleBlock - view.col0);
    const int64_t index = scale_row + block;
    const float scale = view.scale_dtype == DType::f32
                            ? load<float>(view.scales + 4 * index)
                            : bf16_to_f32(load<uint16_t>(view.scales + 2 * index));
    for (int i = begin; i < end; ++i) out[i] = kE4m3[static_cast<uint8_t>(at[i])] * scale;
    begin = end;
  }
}

int64_t element_bytes(DType type) {
  return static_cast<int64_t>(dtype_bytes(type));
}

}  // namespace

TensorView TensorView::slice_rows(int begin, int end) const {
  CHECK(begin >= 0 && begin <= end && end <= rows, "rows [{}, {}) of {} {}", begin, end, name,
        rows);
  TensorView out = *this;
  out.rows = end - begin;
  out.row0 += begin;
  out.data += begin * stride * element_bytes(dtype);
  return out;
}

TensorView TensorView::slice_cols(int begin, int end) const {
  CHECK(begin >= 0 && begin <= end && end <= cols, "cols [{}, {}) of {} {}", begin, end, name,
        cols);
  TensorView out = *this;
  out.cols = end - begin;
  out.col0 += begin;
  out.data += begin * element_bytes(dtype);
  return out;
}

void TensorView::read_row(int r, float* out) const {
  CHECK(r >= 0 && r < rows, "row {} of {} with {} rows", r, name, rows);
  const std::byte* at = data + r * stride * element_bytes(dtype);
  switch (dtype) {
    case DType::f32: std::memcpy(out, at, static_cast<size_t>(cols) * sizeof(float)); return;
    case DType::bf16:
      for (int i = 0; i < cols; ++i) out[i] = bf16_to_f32(load<uint16_t>(at + 2 * i));
      return;
    case DType::f16:
      for (int i = 0; i < cols; ++i) out[i] = f16_to_f32(load<uint16_t>(at + 2 * i));
      return;
    case DType::f8_e4m3: read_f8_row(*this, r, at, out); return;
  }
}

}  // namespace asap
