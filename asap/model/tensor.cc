#include "asap/model/tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "asap/base/check.h"

namespace asap {

namespace {

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

// Without a branch: the exponent is moved by a product, which is exact for subnormals too.
float f16_to_f32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const float moved = std::bit_cast<float>((half & 0x7FFFu) << 13) * 0x1.0p112f;
  const uint32_t special = (half & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(moved) | special | sign);
}

// A loop over neighbours is another one, which the compiler turns into vectors.
template <typename Convert>
void read_halves(const std::byte* at, int64_t step, int n, const Convert& convert, float* out) {
  if (step == 1) {
    for (int i = 0; i < n; ++i) out[i] = convert(load<uint16_t>(at + 2 * int64_t{i}));
    return;
  }
  for (int i = 0; i < n; ++i) out[i] = convert(load<uint16_t>(at + 2 * i * step));
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

// E2M1: sign, two exponent bits, one mantissa bit.
constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// 2^(byte - 127); the byte 0 is a subnormal, 255 is NaN.
float e8m0_value(uint8_t byte) {
  if (byte == 0) return 0x1.0p-127f;
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23);
}

float stored_scale(const TensorView& view, int64_t index) {
  switch (view.scale_dtype) {
    case DType::f32: return load<float>(view.scales + 4 * index);
    case DType::bf16: return bf16_to_f32(load<uint16_t>(view.scales + 2 * index));
    default: return e8m0_value(static_cast<uint8_t>(view.scales[index]));
  }
}

// Row `r` of an MXFP4 view. The even element of a byte is its low half.
void read_mxfp4_row(const TensorView& view, int r, const std::byte* at, float* out) {
  const int64_t row = view.row0 + static_cast<int64_t>(r) * view.row_step;
  const std::byte* scales = view.scales.part(row * view.scale_cols, view.scale_cols);
  float scale = 0;
  for (int i = 0; i < view.cols; ++i) {
    const int column = i + view.col0;
    if (i == 0 || column % kMxBlock == 0) {
      scale = e8m0_value(static_cast<uint8_t>(scales[column / kMxBlock]));
    }
    const auto pair = static_cast<unsigned>(at[column / 2]);
    out[i] = kE2m1[column % 2 == 0 ? pair & 0xF : pair >> 4] * scale;
  }
}

// Row `r` of an FP8 view, block by block: a block of a row has one multiplier.
void read_f8_row(const TensorView& view, int r, const std::byte* at, float* out) {
  const int64_t row = view.row0 + static_cast<int64_t>(r) * view.row_step;
  const int64_t scale_row = row / kScaleBlock * view.scale_cols;
  for (int begin = 0; begin < view.cols;) {
    const int block = (begin + view.col0) / kScaleBlock;
    const int end = std::min(view.cols, (block + 1) * kScaleBlock - view.col0);
    const float scale = stored_scale(view, scale_row + block);
    for (int i = begin; i < end; ++i) out[i] = kE4m3[static_cast<uint8_t>(at[i])] * scale;
    begin = end;
  }
}

// Bytes of `elements` elements; whole for MXFP4 because its rows hold whole blocks.
int64_t bytes_of(DType type, int64_t elements) {
  return elements * static_cast<int64_t>(dtype_bits(type)) / 8;
}

// A power of two, or zero.
bool is_power_of_two(float x) {
  return (std::bit_cast<uint32_t>(x) & 0x7FFFFFu) == 0;
}

}  // namespace

TensorView TensorView::slice_rows(int begin, int end) const {
  CHECK(begin >= 0 && begin <= end && end <= rows, "rows [{}, {}) of {} {}", begin, end, name,
        rows);
  TensorView out = *this;
  out.rows = end - begin;
  out.row0 += begin * row_step;
  if (data != nullptr) out.data += bytes_of(dtype, begin * stride);
  return out;
}

TensorView TensorView::slice_cols(int begin, int end) const {
  CHECK(begin >= 0 && begin <= end && end <= cols, "cols [{}, {}) of {} {}", begin, end, name,
        cols);
  TensorView out = *this;
  out.cols = end - begin;
  out.col0 += begin;
  if (whole_cols == 0) out.whole_cols = cols;
  // Columns of MXFP4 are found from col0: half bytes have no address.
  if (data != nullptr && dtype != DType::mxfp4) out.data += bytes_of(dtype, begin * step);
  return out;
}

TensorView TensorView::every_other_row(int first) const {
  TensorView out = slice_rows(first, rows);
  out.rows = (out.rows + 1) / 2;
  out.stride *= 2;
  out.row_step *= 2;
  return out;
}

TensorView TensorView::whole_rows() const {
  if (whole_cols == 0) return *this;
  TensorView out = *this;
  out.cols = whole_cols;
  out.col0 = out.whole_cols = 0;
  if (data != nullptr && dtype != DType::mxfp4) out.data -= bytes_of(dtype, col0 * step);
  return out;
}

TensorView TensorView::transposed() const {
  CHECK(whole_cols == 0, "{} was sliced by columns", name);
  CHECK(scales == nullptr, "{} is {}, whose scales belong to rows", name, dtype_name(dtype));
  TensorView out = *this;
  std::swap(out.rows, out.cols);
  std::swap(out.stride, out.step);
  return out;
}

float TensorView::row_scale(int r) const {
  CHECK(dtype == DType::i8, "{} is {}", name, dtype_name(dtype));
  return stored_scale(*this, row0 + int64_t{r} * row_step);
}

const std::byte* TensorView::stored_row(int r) const {
  CHECK(r >= 0 && r < rows && dtype != DType::mxfp4 && step == 1, "row {} of {} with {} rows", r,
        name, rows);
  return data.part(bytes_of(dtype, r * stride), bytes_of(dtype, cols));
}

void TensorView::read_row(int r, float* out) const {
  CHECK(r >= 0 && r < rows, "row {} of {} with {} rows", r, name, rows);
  // MXFP4 rows begin at column 0 of the stored tensor, whatever the slice.
  const int64_t elements = dtype == DType::mxfp4 ? (col0 + cols + 1) / 2 * 2
                                                 : std::max<int64_t>(0, (cols - 1) * step + 1);
  const std::byte* at = data.part(bytes_of(dtype, r * stride), bytes_of(dtype, elements));
  switch (dtype) {
    case DType::f32:
      if (step == 1) {
        std::memcpy(out, at, static_cast<size_t>(cols) * sizeof(float));
        return;
      }
      for (int i = 0; i < cols; ++i) out[i] = load<float>(at + 4 * i * step);
      return;
    case DType::bf16:
      read_halves(
          at, step, cols, [](uint16_t half) { return bf16_to_f32(half); }, out);
      return;
    case DType::f16:
      read_halves(
          at, step, cols, [](uint16_t half) { return f16_to_f32(half); }, out);
      return;
    case DType::f8_e4m3: read_f8_row(*this, r, at, out); return;
    case DType::mxfp4: read_mxfp4_row(*this, r, at, out); return;
    case DType::i8: {
      const float scale = row_scale(r);
      for (int i = 0; i < cols; ++i)
        out[i] = static_cast<float>(static_cast<int8_t>(at[i])) * scale;
      return;
    }
    case DType::f8_e8m0: CHECK(false, "{} is a table of scales", name);
  }
}

uint64_t TensorView::extent_bytes() const {
  if (rows == 0 || cols == 0) return 0;
  // The address of MXFP4 is that of column 0, and its elements are half bytes.
  const int64_t first = dtype == DType::mxfp4 ? col0 : 0;
  const int64_t last = (rows - 1) * stride + (first + cols - 1) * step;
  return static_cast<uint64_t>(bytes_of(dtype, dtype == DType::mxfp4 ? last + 2 : last + 1));
}

bool TensorView::fits_bf16() const {
  if (dtype == DType::bf16 || dtype == DType::mxfp4) return true;
  if (dtype != DType::f8_e4m3) return false;
  const int first = row0 / kScaleBlock;
  const int last = (row0 + std::max(0, rows - 1) * row_step) / kScaleBlock;
  for (int64_t i = int64_t{first} * scale_cols; i < int64_t{last + 1} * scale_cols; ++i) {
    if (!is_power_of_two(stored_scale(*this, i))) return false;
  }
  return true;
}

}  // namespace asap
