// Int8 matrices of every table: linear products bit for bit against integers computed here, FFNs
// against the oracle and against exact arithmetic, slices and stored int8 against the whole.
//
// The form of int8 that AVX-512 VNNI takes is tested on every machine, with scalar code in place of
// the instruction (table "quads").
#include "asap/compute/ops_cpu.h"
#include "asap/compute/ops_test_util.h"
#include "asap/model/int8.h"

namespace asap {

extern const Int8Kernels int8_quads;

}  // namespace asap

namespace asap::optest {
namespace {

class Int8Test : public OpsTest {
 protected:
  void SetUp() override {
    if (GetParam() == "quads") {
      static const KernelTable quads = [] {
        KernelTable out = kernels_scalar;
        out.int8 = int8_quads.form;
        out.gemm_int8 = int8_quads.gemm;
        out.quantize_int8 = int8_quads.quantize;
        return out;
      }();
      ops_ = std::make_unique<OpsCpu>(team_, quads);
    } else {
      OpsTest::SetUp();
    }
  }
  Matrix pack(const TensorView& view) {
    TensorView marked = view;
    marked.as_int8 = true;
    return ops_->pack(marked, arena_);
  }
  std::vector<float> linear(const Matrix& w, const std::vector<float>& x) {
    const auto n = static_cast<int>(x.size()) / w.k;
    std::vector<float> y(sz(n) * sz(w.n), kPoison);
    ops_->linear(w, x.data(), n, w.k, y.data(), w.n);
    return y;
  }
};
ASAP_FOR_ALL_TABLES(Int8Test);
INSTANTIATE_TEST_SUITE_P(Emulated, Int8Test, ::testing::Values("quads"),
                         [](const auto& table) { return table.param; });

// A row as int8: q times scale.
struct Quantized {
  std::vector<int> q;
  float scale = 0;
};

// By the letter: weights q = round(w / scale), activations q = round(x·(127 / max)).
template <typename T>
Quantized quantized(const T* row, int n, bool weights) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::abs(static_cast<float>(row[i])));
  Quantized out;
  out.scale = most / 127;
  for (int i = 0; i < n; ++i) {
    const auto value = static_cast<float>(row[i]);
    const float scaled = weights ? value / out.scale : value * (127 / most);
    out.q.push_back(most == 0 ? 0 : static_cast<int>(std::nearbyint(scaled)));
  }
  return out;
}

std::vector<float> expected(const Stored& w, const std::vector<float>& x) {
  std::vector<Quantized> columns;
  for (int j = 0; j < w.rows; ++j) columns.push_back(quantized(w.row(j), w.cols, true));
  std::vector<float> out;
  for (size_t at = 0; at < x.size(); at += sz(w.cols)) {
    const Quantized row = quantized(x.data() + at, w.cols, false);
    for (const Quantized& column : columns) {
      int64_t sum = 0;
      for (size_t i = 0; i < row.q.size(); ++i) sum += int64_t{row.q[i]} * column.q[i];
      out.push_back(static_cast<float>(sum) * (row.scale * column.scale));
    }
  }
  return out;
}

TEST_P(Int8Test, LinearIsExact) {
  ops_->reserve(ffn_spec(515, 515), {64, 64, 64});
  const std::pair<int, int> shapes[] = {{1, 1},    {5, 3},    {31, 17},  {32, 32},
                                        {33, 129}, {100, 67}, {70, 515}, {513, 96}};
  for (const auto& [rows, cols] : shapes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
      const Stored w = random_matrix(prng_, rows, cols, dtype);
      const Matrix packed = pack(w.view);
      EXPECT_EQ(packed.dtype, DType::i8);
      for (int n = 1; n <= 20; ++n) {
        const std::vector<float> x = random_floats(prng_, int64_t{n} * cols);
        expect_same_bits(linear(packed, x), expected(w, x),
                         fmt::format("[{}, {}] {} rows {}", rows, cols, dtype_name(dtype), n));
      }
    }
  }
}

// More rows than are quantised at once, and rows apart.
TEST_P(Int8Test, ManyRows) {
  ops_->reserve(ffn_spec(48, 48), {5000, 64, 64});
  constexpr int kRows = 4500, kLdx = 50, kLdy = 40;
  const Stored w = random_matrix(prng_, 33, 48, DType::bf16);
  const Matrix packed = pack(w.view);
  const std::vector<float> x = random_floats(prng_, int64_t{kRows} * kLdx);
  std::vector<float> y(sz(kRows * kLdy), kPoison), dense, got;
  ops_->linear(packed, x.data(), kRows, kLdx, y.data(), kLdy);
  for (int i = 0; i < kRows; ++i) {
    dense.insert(dense.end(), x.begin() + i * kLdx, x.begin() + i * kLdx + 48);
    got.insert(got.end(), y.begin() + i * kLdy, y.begin() + i * kLdy + 33);
    for (int j = 33; j < kLdy; ++j) ASSERT_TRUE(std::isnan(y[sz(i * kLdy + j)]));
  }
  expect_same_bits(got, expected(w, dense), "4500 rows");
}

// Every product at its largest: where 16-bit sums would saturate and 32-bit sums nearly overflow.
TEST_P(Int8Test, LargestSums) {
  ops_->reserve(ffn_spec(kMaxInt8Cols, 32), {64, 64, 64});
  for (const int cols : {64, 4096, kMaxInt8Cols}) {
    Stored w = random_matrix(prng_, 4, cols, DType::f32);
    auto* values = reinterpret_cast<float*>(w.data.data());
    std::vector<float> x(sz(2 * cols));
    for (int i = 0; i < 4 * cols; ++i) {
      // Constant rows, alternating rows, and their negatives.
      const float sign = i / cols < 2 || i % 2 == 0 ? 1.0f : -1.0f;
      values[i] = i / cols % 2 == 0 ? sign : -sign;
      w.values[sz(i)] = values[i];
    }
    for (int i = 0; i < 2 * cols; ++i) x[sz(i)] = i < cols || i % 2 == 0 ? 3.0f : -3.0f;
    const std::vector<float> got = linear(pack(w.view), x);
    expect_same_bits(got, expected(w, x), fmt::format("{} columns", cols));
    EXPECT_GT(got[0], 2.9f * static_cast<float>(cols));
  }
}

// Halves go to the even neighbour, on both sides.
TEST_P(Int8Test, TiesToEven) {
  ops_->reserve(ffn_spec(64, 64), {64, 64, 64});
  Stored w = random_matrix(prng_, 1, 8, DType::f32);
  std::vector<float> x;
  for (int i = 0; i < 8; ++i) {
    const float ties[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
    x.push_back(ties[i]);
    reinterpret_cast<float*>(w.data.data())[i] = static_cast<float>(w.values[sz(i)] = ties[i]);
  }
  const std::vector<int> even = {127, 0, 2, 2, 0, -2, -2, 126};
  EXPECT_EQ(quantized(x.data(), 8, false).q, even);
  EXPECT_EQ(quantized(x.data(), 8, true).q, even);
  EXPECT_EQ(linear(pack(w.view), x)[0], 127.0f * 127 + 16 + 126 * 126);
}

TEST_P(Int8Test, ZerosInfinitiesAndNans) {
  ops_->reserve(ffn_spec(64, 64), {64, 64, 64});
  Stored w = random_matrix(prng_, 40, 50, DType::f32);
  auto* values = reinterpret_cast<float*>(w.data.data());
  std::fill_n(values + 3 * 50, 50, 0.0f);
  values[7 * 50 + 49] = std::numeric_limits<float>::infinity();
  const Matrix packed = pack(w.view);
  std::vector<float> x = random_floats(prng_, 5 * 50);
  const std::vector<float> clean = linear(packed, x);
  std::fill_n(x.begin(), 50, 0.0f);                   // row 0: zeros
  x[50 + 49] = kPoison;                               // row 1: a NaN at its end
  x[100] = -std::numeric_limits<float>::infinity();   // row 2
  for (int i = 150; i < 200; ++i) x[sz(i)] = 1e-40f;  // row 3: too small for a scale
  const std::vector<float> got = linear(packed, x);
  for (int row = 0; row < 5; ++row) {
    for (int j = 0; j < 40; ++j) {
      const float value = got[sz(row * 40 + j)];
      SCOPED_TRACE(fmt::format("row {} column {}: {}", row, j, value));
      if (row == 1 || row == 2 || j == 7) {
        EXPECT_TRUE(std::isnan(value));
      } else if (row == 4 && j != 3) {
        EXPECT_EQ(value, clean[sz(row * 40 + j)]);
      } else {
        EXPECT_EQ(value, 0.0f);
      }
    }
  }
}

// The scale of a weight is that of its whole stored row, whatever part of it is packed.
TEST_P(Int8Test, SlicesKeepTheScaleOfTheRow) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    const Stored w = random_matrix(prng_, 200, 260, dtype, dtype == DType::bf16 ? 3 : 0);
    const TensorView slice = w.view.slice_rows(100, 157).slice_cols(90, 251).slice_cols(3, 150);
    const std::vector<float> x = random_floats(prng_, 147);
    std::vector<float> want;
    const Quantized row = quantized(x.data(), 147, false);
    for (int j = 100; j < 157; ++j) {
      const Quantized column = quantized(w.row(j), 260, true);
      int64_t sum = 0;
      for (size_t i = 0; i < 147; ++i) sum += int64_t{row.q[i]} * column.q[93 + i];
      want.push_back(static_cast<float>(sum) * (row.scale * column.scale));
    }
    expect_same_bits(linear(pack(slice), x), want, "a slice");
  }
}

// `source` as a checkpoint stores it in int8.
struct StoredInt8 {
  std::vector<int8_t> q;
  std::vector<float> scales;
  TensorView view;
  explicit StoredInt8(const TensorView& source) {
    std::vector<float> scratch;
    q.resize(sz(source.rows) * sz(source.cols));
    for (int r = 0; r < source.rows; ++r) {
      scales.push_back(read_int8_row(source, r, scratch, q.data() + sz(r) * sz(source.cols)));
    }
    view.name = "stored";
    view.dtype = DType::i8;
    view.rows = source.rows;
    view.stride = view.cols = source.cols;
    view.data = reinterpret_cast<const std::byte*>(q.data());
    view.scales = reinterpret_cast<const std::byte*>(scales.data());
  }
};

TEST_P(Int8Test, StoredInt8IsTheSame) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  const Stored w = random_matrix(prng_, 90, 131, DType::bf16);
  const StoredInt8 stored(w.view);
  const auto part = [](const TensorView& view) {
    return view.slice_rows(11, 80).slice_cols(20, 120);
  };
  const std::vector<float> x = random_floats(prng_, 3 * 131);
  expect_same_bits(linear(pack(stored.view), x), linear(pack(w.view), x), "whole");
  const std::vector<float> narrow(x.begin(), x.begin() + 300);
  expect_same_bits(linear(pack(part(stored.view)), narrow), linear(pack(part(w.view)), narrow),
                   "part");
  // Not marked, it is a float matrix like any other.
  const Matrix wide = ops_->pack(stored.view, arena_);
  EXPECT_NE(wide.dtype, DType::i8);
  std::vector<double> want;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 90; ++j) {
      double sum = 0;
      for (int c = 0; c < 131; ++c) {
        sum += static_cast<double>(static_cast<float>(stored.q[sz(j * 131 + c)]) *
                                   stored.scales[sz(j)]) *
               x[sz(i * 131 + c)];
      }
      want.push_back(sum);
    }
  }
  expect_close(linear(wide, x), want, "dequantised");
}

FfnViews marked(const Ffn& ffn, bool gate_up, bool down) {
  FfnViews views = ffn.views(gate_up);
  views.down.as_int8 = down;
  return views;
}

double rms_error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

// Against the oracle's int8, where a rounding of an activation may fall to the other side; and
// against exact arithmetic, within what 8 bits cost.
TEST_P(Int8Test, Ffn) {
  const std::unique_ptr<Ops> oracle = make_ops_ref();
  for (const auto& [hidden, width] : {std::pair(96, 64), {70, 33}, {256, 700}}) {
    for (const int n : {1, 3, 8, 40, 300, 700}) {  // split over columns, or not
      for (const int parts : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{}x{} rows {} parts {}", hidden, width, n, parts));
        ops_->reserve(ffn_spec(hidden, width), {800, 64, 64});
        const Ffn ffn(prng_, hidden, width, DType::bf16, {.clamped = n == 8});
        const FfnViews views = marked(ffn, (parts & 1) != 0, (parts & 2) != 0);
        const std::vector<float> x = random_floats(prng_, int64_t{n} * hidden);
        std::vector<float> y(x.size(), kPoison), want(x.size(), kPoison);
        ops_->ffn(ops_->pack_expert(views, ffn.glu, arena_), x.data(), n, y.data());
        oracle->ffn(oracle->pack_expert(views, ffn.glu, arena_), x.data(), n, want.data());
        const std::vector<double> wanted(want.begin(), want.end());
        expect_close(y, wanted, "oracle", 3e-3);
        EXPECT_LE(rms_error(y, wanted), 2e-4);
        std::vector<double> exact;
        for (int i = 0; i < n; ++i) append(exact, ffn.apply(x.data() + i * hidden));
        EXPECT_LE(rms_error(y, exact), 0.03);
        EXPECT_GE(rms_error(y, exact), 1e-4) << "was this int8 at all?";
      }
      if (n > 8 && hidden > 200) break;
    }
  }
}

// Experts of one layer may be packed differently.
TEST_P(Int8Test, Experts) {
  constexpr int kExperts = 5, kHidden = 70, kWidth = 33;
  ops_->reserve(ffn_spec(kHidden, kWidth, kExperts, 3), {400, 64, 1200});
  const optest::Experts experts(prng_, kExperts, kHidden, kWidth, DType::bf16);
  std::vector<ExpertMatrix> entries(2 * kExperts);
  for (int e = 0; e < kExperts; ++e) {
    entries[sz(kExperts + e)] =
        ops_->pack_expert(marked(experts.ffns[sz(e)], e != 1, e != 3), {}, arena_);
  }
  for (const int tokens : {1, 9, 400}) {
    Routing routing;
    for (int t = 0; t < tokens; ++t) {
      routing.push_back({{t % 2, 0.5f}, {2, -1.25f}, {3 + t % 2, f32_value(prng_)}});
    }
    const std::vector<float> x = random_floats(prng_, int64_t{tokens} * kHidden, DType::bf16);
    Work work(optest::Experts::kLayer, kExperts, kHidden, DType::bf16, routing, x);
    const std::vector<float> got = work.run(*ops_, {2, kExperts, entries});
    std::vector<double> want;
    for (int t = 0; t < tokens; ++t) {
      std::vector<double> sum(sz(kHidden));
      for (const Routed& routed : routing[sz(t)]) {
        const auto y = experts.ffns[sz(routed.expert)].apply(x.data() + t * kHidden);
        for (size_t i = 0; i < y.size(); ++i) sum[i] += static_cast<double>(routed.weight) * y[i];
      }
      append(want, sum);
    }
    EXPECT_LE(rms_error(got, want), 0.04) << tokens;
  }
}

}  // namespace
}  // namespace asap::optest
