#include "asap/model/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace asap {
namespace {

template <typename T>
TensorView view_of(const std::vector<T>& values, DType dtype, int rows, int cols) {
  TensorView view;
  view.name = std::string("tensor");
  view.dtype = dtype;
  view.rows = rows;
  view.cols = cols;
  view.stride = cols;
  view.data = reinterpret_cast<const std::byte*>(values.data());
  return view;
}

std::vector<float> row(const TensorView& view, int r) {
  std::vector<float> out(static_cast<size_t>(view.cols));
  view.read_row(r, out.data());
  return out;
}

TEST(TensorView, ReadsF32AndSlices) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const TensorView all = view_of(values, DType::f32, 3, 4);
  EXPECT_EQ(row(all, 1), (std::vector<float>{4, 5, 6, 7}));
  const TensorView part = all.slice_rows(1, 3).slice_cols(1, 3);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 2);
  EXPECT_EQ(row(part, 1), (std::vector<float>{9, 10}));
  EXPECT_EQ(all.slice_rows(3, 3).rows, 0);
}

TEST(TensorView, TransposedAndAlternatingRows) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const TensorView columns = view_of(values, DType::f32, 3, 4).transposed();
  EXPECT_EQ(columns.rows, 4);
  EXPECT_EQ(row(columns, 1), (std::vector<float>{1, 5, 9}));
  EXPECT_EQ(row(columns.slice_cols(1, 3), 3), (std::vector<float>{7, 11}));
  const TensorView odd = columns.every_other_row(1);
  EXPECT_EQ(odd.rows, 2);
  EXPECT_EQ(row(odd, 1), (std::vector<float>{3, 7, 11}));
  EXPECT_EQ(row(odd.slice_rows(1, 2), 0), (std::vector<float>{3, 7, 11}));
}

// Two values per byte, the low half first; one exponent per 32 values, 127 for 1.
TEST(TensorView, ReadsMxfp4) {
  std::vector<uint8_t> blocks(4 * 32, 0x21);  // 4 rows of 64: 0.5, 1, 0.5, 1, ...
  blocks[0] = 0xF7;                           // 6, -6
  blocks[3 * 32 + 16] = 0x90;                 // row 3, column 32: 0, -0.5
  const std::vector<uint8_t> scales = {127, 128, 127, 126, 0, 127, 130, 124};
  TensorView view = view_of(blocks, DType::mxfp4, 4, 64);
  view.scales = reinterpret_cast<const std::byte*>(scales.data());
  view.scale_cols = 2;
  EXPECT_TRUE(view.fits_bf16());
  const std::vector<float> first = row(view, 0);
  EXPECT_EQ(first[0], 6.0f);
  EXPECT_EQ(first[1], -6.0f);
  EXPECT_EQ(first[2], 0.5f);
  EXPECT_EQ(first[33], 2.0f);
  EXPECT_EQ(row(view, 2)[0], 0x1.0p-128f);
  const TensorView odd = view.every_other_row(1);
  EXPECT_EQ(row(odd, 0)[63], 0.5f);
  const std::vector<float> last = row(odd.slice_rows(1, 2).slice_cols(31, 34), 0);
  EXPECT_EQ(last[0], 8.0f);
  EXPECT_EQ(last[1], 0.0f);
  EXPECT_EQ(last[2], -0.0625f);
}

TEST(TensorView, ReadsBf16) {
  const std::vector<uint16_t> values = {0x3F80, 0xC000, 0x0001, 0x7F80, 0x8000};
  const std::vector<float> out = row(view_of(values, DType::bf16, 1, 5), 0);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(std::bit_cast<uint32_t>(out[2]), 0x00010000u);
  EXPECT_EQ(out[3], INFINITY);
  EXPECT_TRUE(std::signbit(out[4]));
}

TEST(TensorView, ReadsF16) {
  const std::vector<uint16_t> values = {0x3C00, 0xC000, 0x0001, 0x83FF,
                                        0x7BFF, 0x0400, 0xFC00, 0x7E00};
  const std::vector<float> out = row(view_of(values, DType::f16, 1, 8), 0);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], 0x1.0p-24f);
  EXPECT_EQ(out[3], -1023 * 0x1.0p-24f);
  EXPECT_EQ(out[4], 65504.0f);
  EXPECT_EQ(out[5], 0x1.0p-14f);
  EXPECT_EQ(out[6], -INFINITY);
  EXPECT_TRUE(std::isnan(out[7]));
}

TEST(TensorView, ReadsUnalignedMemory) {
  std::vector<uint8_t> bytes(9);
  const float values[2] = {1.5f, -3.0f};
  std::memcpy(bytes.data() + 1, values, sizeof(values));
  TensorView view = view_of(bytes, DType::f32, 1, 2);
  view.data += 1;
  EXPECT_EQ(row(view, 0), (std::vector<float>{1.5f, -3.0f}));
}

// All 256 codes against their definition.
TEST(TensorView, ReadsEveryE4m3Code) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  const std::vector<float> scales = {1.0f, 1.0f};
  TensorView view = view_of(codes, DType::f8_e4m3, 1, 256);
  view.scales = reinterpret_cast<const std::byte*>(scales.data());
  view.scale_cols = 2;
  const std::vector<float> out = row(view, 0);
  for (int i = 0; i < 256; ++i) {
    const int exponent = (i >> 3) & 15, mantissa = i & 7;
    const double magnitude = exponent == 0 ? std::ldexp(mantissa / 8.0, -6)
                                           : std::ldexp(1 + mantissa / 8.0, exponent - 7);
    const float got = out[static_cast<size_t>(i)];
    if ((i & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(got)) << i;
    } else {
      EXPECT_EQ(static_cast<double>(got), i < 128 ? magnitude : -magnitude) << i;
    }
  }
  EXPECT_EQ(out[0x7E], 448.0f);
}

// 130 × 260 in ragged 2 × 3 blocks; element value 1, so that a row shows the multipliers.
class BlockScales : public testing::Test {
 protected:
  static constexpr int kRows = 130, kCols = 260;
  std::vector<uint8_t> ones_ = std::vector<uint8_t>(size_t{kRows} * kCols, 0x38);
  std::vector<float> scales_ = {1, 2, 3, 4, 5, 6};
  TensorView view_ = make();

  TensorView make() {
    TensorView view = view_of(ones_, DType::f8_e4m3, kRows, kCols);
    view.scales = reinterpret_cast<const std::byte*>(scales_.data());
    view.scale_cols = 3;
    return view;
  }
};

TEST_F(BlockScales, FollowRowsAndColumns) {
  const std::vector<float> first = row(view_, 127);
  EXPECT_EQ(first[0], 1);
  EXPECT_EQ(first[127], 1);
  EXPECT_EQ(first[128], 2);
  EXPECT_EQ(first[255], 2);
  EXPECT_EQ(first[259], 3);
  EXPECT_EQ(row(view_, 128)[256], 6);
}

TEST_F(BlockScales, FollowSlicesOfSlices) {
  const TensorView part = view_.slice_rows(100, 130).slice_cols(60, 258).slice_cols(40, 198);
  ASSERT_EQ(part.cols, 158);
  const std::vector<float> before = row(part, 27);  // stored row 127, columns from 100
  EXPECT_EQ(before[27], 1);
  EXPECT_EQ(before[28], 2);
  EXPECT_EQ(before[156], 3);
  EXPECT_EQ(row(part, 28)[0], 4);
}

TEST_F(BlockScales, FollowAlternatingRows) {
  const TensorView odd = view_.every_other_row(1);
  for (int r = 0; r < odd.rows; ++r) EXPECT_EQ(row(odd, r), row(view_, 2 * r + 1)) << r;
}

TEST_F(BlockScales, MayBeBf16) {
  const std::vector<uint16_t> halves = {0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0};
  view_.scales = reinterpret_cast<const std::byte*>(halves.data());
  view_.scale_dtype = DType::bf16;
  EXPECT_EQ(row(view_, 0)[259], 3);
  EXPECT_EQ(row(view_, 129)[128], 5);
}

}  // namespace
}  // namespace asap
