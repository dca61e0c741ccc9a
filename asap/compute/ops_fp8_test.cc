// Products with activations rounded to FP8 (W8A8): the scheme of DeepSeek's programs, written here
// block by block, against every table; slices of columns against the whole.
#include "asap/compute/fp8.h"
#include "asap/compute/ops_test_util.h"

namespace asap::optest {
namespace {

class Fp8RowsTest : public OpsTest {
 protected:
  std::vector<float> linear(const Matrix& w, const std::vector<float>& x, int ldx) {
    const auto n = static_cast<int>(x.size()) / ldx;
    std::vector<float> y(sz(n) * sz(w.n), kPoison);
    ops_->linear(w, x.data(), n, ldx, y.data(), w.n);
    return y;
  }
};
ASAP_FOR_ALL_TABLES(Fp8RowsTest);

// Per block of 128 values: activations x8 = e4m3(x / s) with their scale s, Σ x8·w8, times s and
// the weight's scale; blocks summed. `w` holds the multiplied-out weights.
double reference(const Stored& w, int row, const float* x, bool ue8m0) {
  double sum = 0;
  for (int begin = 0; begin < w.cols; begin += 128) {
    const int end = std::min(w.cols, begin + 128);
    float amax = 1e-4f;
    for (int i = begin; i < end; ++i) amax = std::max(amax, std::abs(x[i]));
    double scale = static_cast<double>(amax) / 448;
    if (ue8m0) scale = std::exp2(std::ceil(std::log2(scale)));
    double block = 0;
    for (int i = begin; i < end; ++i) {
      block += static_cast<double>(round_to_e4m3(static_cast<float>(x[i] / scale))) * w.row(row)[i];
    }
    sum += block * scale;
  }
  return sum;
}

TEST_P(Fp8RowsTest, LinearFollowsTheReference) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  for (const bool ue8m0 : {false, true}) {
    for (const int cols : {100, 128, 300}) {
      Stored w = random_matrix(prng_, 70, cols, DType::f8_e4m3);
      w.view.fp8_rows = ue8m0 ? Fp8Rows::ue8m0 : Fp8Rows::plain;
      const Matrix packed = ops_->pack(w.view, arena_);
      std::vector<float> x = random_floats(prng_, int64_t{9} * cols);
      std::fill_n(x.begin() + 2 * cols, cols, 0.0f);
      std::vector<double> want;
      for (int i = 0; i < 9 * 70; ++i) {
        want.push_back(reference(w, i % 70, x.data() + i / 70 * cols, ue8m0));
      }
      // A value within rounding of a tie may fall to the other side.
      expect_close(linear(packed, x, cols), want, fmt::format("{} columns", cols), 3e-3);
    }
  }
}

// A rank holds some columns: its groups are those of the whole row where they lie in its part.
TEST_P(Fp8RowsTest, SlicesOfColumnsAddUpToTheWhole) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  Stored w = random_matrix(prng_, 40, 512, DType::f8_e4m3);
  w.view.fp8_rows = Fp8Rows::ue8m0;
  const std::vector<float> x = random_floats(prng_, int64_t{5} * 512);
  const std::vector<float> whole = linear(ops_->pack(w.view, arena_), x, 512);
  std::vector<double> sum(whole.size());
  for (const auto& [begin, end] : {std::pair(0, 128), {128, 384}, {384, 512}}) {
    std::vector<float> part;
    for (int i = 0; i < 5; ++i) {
      part.insert(part.end(), x.begin() + i * 512 + begin, x.begin() + i * 512 + end);
    }
    const Matrix slice = ops_->pack(w.view.slice_cols(begin, end), arena_);
    EXPECT_EQ(slice.fp8_first, 128);
    const std::vector<float> y = linear(slice, part, end - begin);
    for (size_t i = 0; i < y.size(); ++i) sum[i] += static_cast<double>(y[i]);
  }
  expect_close(whole, sum, "slices");
  EXPECT_EQ(ops_->pack(w.view.slice_cols(100, 300), arena_).fp8_first, 28);
}

TEST_P(Fp8RowsTest, FfnRoundsItsInputAndItsActivations) {
  for (const int rows : {1, 40}) {
    ops_->reserve(ffn_spec(200, 140), {64, 64, 64});
    Ffn ffn(prng_, 200, 140, DType::f8_e4m3);
    for (Stored* part : {&ffn.gate, &ffn.up, &ffn.down}) part->view.fp8_rows = Fp8Rows::ue8m0;
    const ExpertMatrix w = ops_->pack_expert(ffn.views(), arena_);
    const std::vector<float> x = random_floats(prng_, int64_t{rows} * 200);
    std::vector<float> y(sz(rows * 200), kPoison);
    ops_->ffn(w, x.data(), rows, y.data());
    std::vector<double> want;
    for (int i = 0; i < rows; ++i) {
      std::vector<float> act;
      for (int j = 0; j < 140; ++j) {
        const double gate = reference(ffn.gate, j, x.data() + i * 200, true);
        const double up = reference(ffn.up, j, x.data() + i * 200, true);
        act.push_back(static_cast<float>(gate / (1 + std::exp(-gate)) * up));
      }
      for (int j = 0; j < 200; ++j) want.push_back(reference(ffn.down, j, act.data(), true));
    }
    expect_close(y, want, fmt::format("{} rows", rows), 2e-2);
  }
}

}  // namespace
}  // namespace asap::optest
