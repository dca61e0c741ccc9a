// Every op but attention (ops_attention_test.cc), of every table of this machine, against naive
// double arithmetic written here.
#include <gtest/gtest-spi.h>

#include <numeric>
#include <set>

#include "asap/compute/ops_test_util.h"

namespace asap::optest {
namespace {

ASAP_FOR_ALL_TABLES(OpsTest);

TEST(ExpectClose, NoticesOneWrongElement) {
  static const std::vector<float> got = {1, 2, 3.0001f};
  static const std::vector<double> want = {1, 2, 3};
  EXPECT_NONFATAL_FAILURE(expect_close(got, want, "x"), "element 2");
  static const std::vector<float> unwritten = {1, kPoison, 3};
  EXPECT_NONFATAL_FAILURE(expect_close(unwritten, want, "x"), "element 1");
}

// y = x·Wᵀ with rows of x and y apart; what lies between the rows of y stays untouched.
void check_linear(Ops& ops, Arena& arena, Prng& prng, const Stored& w, int n) {
  const int ldx = w.cols + 3;
  const int ldy = w.rows + 5;
  const Matrix packed = ops.pack(w.view, arena);
  ASSERT_EQ(packed.n, w.rows);
  ASSERT_EQ(packed.k, w.cols);
  const std::vector<float> x = random_floats(prng, int64_t{n} * ldx);
  std::vector<float> y(sz(n) * sz(ldy), kPoison);
  ops.linear(packed, x.data(), n, ldx, y.data(), ldy);
  std::vector<float> got;
  std::vector<double> want;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < ldy; ++j) {
      const float value = y[sz(i * ldy + j)];
      if (j >= w.rows) {
        EXPECT_TRUE(std::isnan(value)) << "row " << i << " spills into column " << j;
        continue;
      }
      got.push_back(value);
      want.push_back(dot(x.data() + i * ldx, w.row(j), w.cols));
    }
  }
  expect_close(got, want, fmt::format("[{}, {}] rows {}", w.rows, w.cols, n));
}

TEST_P(OpsTest, LinearOfEveryRowCountAndOddShapes) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  const std::pair<int, int> shapes[] = {{1, 1}, {5, 3}, {31, 17}, {32, 32}, {33, 129}, {100, 67}};
  for (const auto& [rows, cols] : shapes) {
    const Stored w = random_matrix(prng_, rows, cols, DType::f32);
    for (int n = 1; n <= 20; ++n) check_linear(*ops_, arena_, prng_, w, n);
  }
  check_linear(*ops_, arena_, prng_, random_matrix(prng_, 70, 515, DType::f32), 64);
}

TEST_P(OpsTest, LinearOfEverySourceType) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3}) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const int n : {1, 2, 7, 33}) {
      check_linear(*ops_, arena_, prng_, random_matrix(prng_, 45, 77, dtype), n);
      check_linear(*ops_, arena_, prng_, random_matrix(prng_, 150, 300, dtype, 9), n);
    }
  }
}

// Rows that bf16 holds are multiplied as precisely by tables that round rows as by all others, in
// one block of k or in several; and other rows as what they round to, bit for bit.
TEST_P(OpsTest, LinearOfBf16Rows) {
  ops_->reserve(ffn_spec(1200, 64), {64, 64, 64});
  for (const int k : {31, 64, 77, 512, 1100}) {
    const Stored w = random_matrix(prng_, 70, k, DType::bf16);
    const Matrix packed = ops_->pack(w.view, arena_);
    for (const int n : {1, 13, 33}) {
      const auto multiply = [&](const std::vector<float>& x) {
        std::vector<float> y(sz(n * w.rows), kPoison);
        ops_->linear(packed, x.data(), n, k, y.data(), w.rows);
        return y;
      };
      const std::vector<float> x = random_floats(prng_, int64_t{n} * k, DType::bf16);
      std::vector<double> want;
      for (int i = 0; i < n * w.rows; ++i) {
        want.push_back(dot(x.data() + i / w.rows * k, w.row(i % w.rows), k));
      }
      expect_close(multiply(x), want, fmt::format("k {}, {} rows", k, n), 1e-5);
      if (!rounds_rows(GetParam())) continue;
      const std::vector<float> other = random_floats(prng_, int64_t{n} * k);
      std::vector<std::byte> narrow(other.size() * 2);
      std::vector<float> rounded(other.size());
      ops_->narrow(other.data(), n * k, DType::bf16, narrow.data());
      ops_->widen(narrow.data(), n * k, DType::bf16, rounded.data());
      expect_same_bits(multiply(other), multiply(rounded), fmt::format("k {}, {} rows", k, n));
    }
  }
}

// A slice of an fp8 matrix keeps the scales of its place in the whole.
TEST_P(OpsTest, LinearOfSlices) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    const Stored whole = random_matrix(prng_, 200, 260, dtype);
    Stored slice;
    slice.view = whole.view.slice_rows(100, 157).slice_cols(90, 251);
    slice.rows = 57;
    slice.cols = 161;
    for (int r = 100; r < 157; ++r) {
      slice.values.insert(slice.values.end(), whole.row(r) + 90, whole.row(r) + 251);
    }
    check_linear(*ops_, arena_, prng_, slice, 5);
  }
}

TEST_P(OpsTest, LinearAddsItsBias) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  for (const int rows : {1, 16, 33, 100}) {
    const Stored w = random_matrix(prng_, rows, 40, DType::bf16);
    const Stored bias = random_matrix(prng_, 1, rows, DType::bf16);
    const Matrix packed = ops_->pack(w.view, bias.view, arena_);
    for (const int n : {1, 5, 40}) {
      const std::vector<float> x = random_floats(prng_, int64_t{n} * 40);
      std::vector<float> y(sz(n * rows), kPoison);
      ops_->linear(packed, x.data(), n, 40, y.data(), rows);
      std::vector<double> want;
      for (int i = 0; i < n * rows; ++i) {
        const int column = i % rows;
        want.push_back(dot(x.data() + i / rows * 40, w.row(column), 40) + bias.values[sz(column)]);
      }
      expect_close(y, want, fmt::format("{} rows with bias, {} tokens", rows, n));
    }
  }
}

// MXFP4 and power-of-two FP8 lose nothing in bf16, so they are packed as that.
TEST_P(OpsTest, LinearOfMxfp4) {
  ops_->reserve(ffn_spec(512, 512), {64, 64, 64});
  constexpr int kRows = 37, kCols = 96, kGroups = kCols / 32;
  std::vector<std::byte> blocks, scales;
  for (int i = 0; i < kRows * kCols / 2; ++i) {
    blocks.push_back(static_cast<std::byte>(prng_.below(256)));
  }
  for (int i = 0; i < kRows * kGroups; ++i) {
    scales.push_back(static_cast<std::byte>(120 + prng_.below(14)));
  }
  Stored w;
  w.rows = kRows;
  w.cols = kCols;
  w.view.dtype = DType::mxfp4;
  w.view.rows = kRows;
  w.view.stride = w.view.cols = kCols;
  w.view.data = blocks.data();
  w.view.scales = scales.data();
  w.view.scale_cols = kGroups;
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int i = 0; i < kRows * kCols; ++i) {
    const auto byte = static_cast<unsigned>(blocks[sz(i / 2)]);
    const unsigned code = i % 2 == 0 ? byte & 15 : byte >> 4;
    const double value = std::ldexp(kValues[code & 7], static_cast<int>(scales[sz(i / 32)]) - 127);
    w.values.push_back(code & 8 ? -value : value);
  }
  check_linear(*ops_, arena_, prng_, w, 9);
}

TEST_P(OpsTest, Ffn) {
  for (const auto& [hidden, width] : {std::pair(96, 64), std::pair(70, 33), std::pair(7, 5)}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      ops_->reserve(ffn_spec(hidden, width), {40, 64, 64});
      for (const bool clamped : {false, true}) {
        const Ffn ffn(prng_, hidden, width, dtype, {.clamped = clamped, .limit = 1.5});
        const ExpertMatrix packed = ops_->pack_expert(ffn.views(), ffn.glu, arena_);
        ASSERT_EQ(packed.hidden, hidden);
        ASSERT_EQ(packed.intermediate, width);
        for (const int n : {1, 3, 8, 40}) {
          const std::vector<float> x = random_floats(prng_, int64_t{n} * hidden);
          std::vector<float> y(x.size(), kPoison);
          ops_->ffn(packed, x.data(), n, y.data());
          std::vector<double> want;
          for (int i = 0; i < n; ++i) append(want, ffn.apply(x.data() + i * hidden));
          expect_close(y, want, fmt::format("ffn {}x{} rows {}", hidden, width, n));
        }
      }
    }
  }
}

void check_experts(Ops& ops, const Experts& experts, const ExpertTable& table, DType dtype,
                   Prng& prng, const Routing& routing) {
  const auto tokens = static_cast<int>(routing.size());
  const std::vector<float> x = random_floats(prng, int64_t{tokens} * experts.hidden, dtype);
  Work work(Experts::kLayer, experts.count, experts.hidden, dtype, routing, x);
  const std::vector<float> got = work.run(ops, table);
  std::vector<double> want;
  for (int t = 0; t < tokens; ++t) {
    std::vector<double> sum(sz(experts.hidden));
    for (const Routed& routed : routing[sz(t)]) {
      const auto y = experts.ffns[sz(routed.expert)].apply(x.data() + t * experts.hidden);
      for (size_t i = 0; i < y.size(); ++i) sum[i] += static_cast<double>(routed.weight) * y[i];
    }
    append(want, sum);
  }
  expect_close(got, want, fmt::format("{} tokens", tokens));
}

// Each token takes `top_k` distinct experts.
Routing random_routing(Prng& prng, int tokens, int experts, int top_k) {
  Routing routing(sz(tokens));
  for (auto& token : routing) {
    std::set<int> chosen;
    while (static_cast<int>(chosen.size()) < top_k) {
      chosen.insert(static_cast<int>(prng.below(sz(experts))));
    }
    for (const int e : chosen) token.push_back({e, f32_value(prng)});
  }
  return routing;
}

TEST_P(OpsTest, Experts) {
  constexpr int kExperts = 5;
  for (const auto& [hidden, width] : {std::pair(96, 64), std::pair(70, 33)}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{} x {} {}", hidden, width, dtype_name(dtype)));
      ops_->reserve(ffn_spec(hidden, width, kExperts, 3), {400, 64, 1200});
      const optest::Experts experts(prng_, kExperts, hidden, width, dtype);
      const std::vector<ExpertMatrix> entries = experts.pack(*ops_, arena_);
      const ExpertTable table{2, kExperts, entries};
      const auto check = [&](const Routing& routing) {
        check_experts(*ops_, experts, table, dtype, prng_, routing);
      };
      check({});                                                  // no token at all
      check({{{2, 0.5f}}});                                       // one token, four empty experts
      check(Routing(17, {{3, -1.25f}}));                          // all tokens to one expert
      check({{{0, 1}}, {{1, 1}}, {{2, 1}}, {{3, 1}}, {{4, 1}}});  // one each
      check(random_routing(prng_, 33, kExperts, 3));
      check(random_routing(prng_, 9, kExperts, kExperts));
      check(random_routing(prng_, 400, kExperts, 2));  // hundreds of rows
    }
  }
}

TEST_P(OpsTest, RmsNorm) {
  ops_->reserve(ffn_spec(600, 64), {64, 64, 64});
  for (const int width : {1, 7, 16, 33, 515}) {
    const int n = 5, ldx = width + 2, ldy = width + 1;
    std::vector<float> x = random_floats(prng_, int64_t{n} * ldx);
    const std::vector<float> w = random_floats(prng_, width);
    std::vector<float> y(sz(n * ldy), kPoison);
    const double eps = 1e-2;  // large enough to matter
    ops_->rms_norm(x.data(), n, width, ldx, w.data(), eps, y.data(), ldy);
    for (int i = 0; i < n; ++i) {
      const float* row = x.data() + i * ldx;
      const double scale = std::pow(dot(row, row, width) / width + eps, -0.5);
      std::vector<double> want;
      for (int j = 0; j < width; ++j) want.push_back(row[j] * scale * w[sz(j)]);
      expect_close({y.data() + i * ldy, sz(width)}, want, fmt::format("width {}", width));
      EXPECT_TRUE(std::isnan(y[sz(i * ldy + width)]));
    }
    ops_->rms_norm(x.data(), n, width, ldx, w.data(), eps, x.data(), ldx);  // in place
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(0, std::memcmp(x.data() + i * ldx, y.data() + i * ldy, sz(width) * sizeof(float)));
    }
  }
}

TEST_P(OpsTest, LayerNorm) {
  ops_->reserve(ffn_spec(600, 64), {64, 64, 64});
  for (const int width : {1, 7, 16, 33, 128}) {
    const int n = 4, ldx = width + 3, ldy = width + 1;
    std::vector<float> x = random_floats(prng_, int64_t{n} * ldx);
    for (float& v : x) v = 0.01f * v + 0.5f;  // a mean that matters, a variance near the epsilon
    const std::vector<float> w = random_floats(prng_, width);
    const std::vector<float> b = random_floats(prng_, width);
    std::vector<float> y(sz(n * ldy), kPoison);
    ops_->layer_norm(x.data(), n, width, ldx, w.data(), b.data(), y.data(), ldy);
    for (int i = 0; i < n; ++i) {
      const float* row = x.data() + i * ldx;
      const double mean = std::accumulate(row, row + width, 0.0) / width;
      double variance = 0;
      for (int j = 0; j < width; ++j) variance += std::pow(row[j] - mean, 2) / width;
      std::vector<double> want;
      for (int j = 0; j < width; ++j) {
        want.push_back((row[j] - mean) / std::sqrt(variance + 1e-6) * w[sz(j)] + b[sz(j)]);
      }
      // The mean of numbers near 0.5 costs a float32 table some digits of a deviation of 0.006.
      expect_close({y.data() + i * ldy, sz(width)}, want, fmt::format("width {}", width), 5e-5);
    }
    ops_->layer_norm(x.data(), n, width, ldx, w.data(), b.data(), x.data(), ldx);
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(0, std::memcmp(x.data() + i * ldx, y.data() + i * ldy, sz(width) * sizeof(float)));
    }
  }
}

TEST_P(OpsTest, RopeBothLayouts) {
  ops_->reserve(ffn_spec(600, 64), {64, 64, 64});
  constexpr int kRows = 3, kHeads = 2;
  for (const bool interleaved : {false, true}) {
    for (const int dim : {2, 10, 16, 64}) {
      const int stride = dim + 5, ld = kHeads * stride + 7;
      const std::vector<float> before = random_floats(prng_, kRows * ld);
      std::vector<float> angles;
      for (int i = 0; i < kRows * dim / 2; ++i) {
        const double angle = 1000 * prng_.uniform();
        angles.push_back(static_cast<float>(1.3 * std::cos(angle)));  // with an amplitude
        angles.push_back(static_cast<float>(1.3 * std::sin(angle)));
      }
      std::vector<double> want(before.begin(), before.end());
      for (int i = 0; i < kRows; ++i) {
        for (int h = 0; h < kHeads; ++h) {
          for (int j = 0; j < dim / 2; ++j) {
            const int head = i * ld + h * stride;
            const size_t first = sz(head + (interleaved ? 2 * j : j));
            const size_t second = sz(head + (interleaved ? 2 * j + 1 : j + dim / 2));
            const double c = angles[sz(i * dim + 2 * j)], s = angles[sz(i * dim + 2 * j + 1)];
            want[first] = before[first] * c - before[second] * s;
            want[second] = before[second] * c + before[first] * s;
          }
        }
      }
      std::vector<float> x = before;
      ops_->rope(x.data(), kRows, ld, kHeads, stride, dim, interleaved, angles.data());
      expect_close(x, want, fmt::format("dim {} interleaved {}", dim, interleaved), 1e-6);
      for (int i = 0; i < kRows; ++i) {  // what is not rotated keeps its bits
        for (int j = dim; j < stride; ++j) EXPECT_EQ(x[sz(i * ld + j)], before[sz(i * ld + j)]);
      }
    }
  }
}

TEST_P(OpsTest, KvStore) {
  ops_->reserve(ffn_spec(64, 64), {64, 64, 64});
  constexpr int kSlots = 130, kWidth = 37, kLd = 40;
  const int32_t slots[] = {129, 0, 64};
  const std::vector<float> x = random_floats(prng_, 3 * kLd);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const size_t bytes = dtype_bytes(dtype);
    std::vector<std::byte> cache(kSlots * kWidth * bytes, std::byte{0xA5});
    std::vector<std::byte> want = cache;
    ops_->kv_store({cache.data(), dtype, kWidth}, slots, x.data(), 3, kLd);
    for (size_t i = 0; i < 3; ++i) {
      ops_->narrow(x.data() + i * kLd, kWidth, dtype, want.data() + sz(slots[i]) * kWidth * bytes);
    }
    EXPECT_TRUE(cache == want) << dtype_name(dtype);
  }
}

TEST_P(OpsTest, EveryBf16PatternSurvivesARoundTrip) {
  std::vector<uint16_t> patterns(65536), back(65536);
  std::iota(patterns.begin(), patterns.end(), uint16_t{0});
  std::vector<float> wide(65536);
  ops_->widen(reinterpret_cast<const std::byte*>(patterns.data()), 65536, DType::bf16, wide.data());
  ops_->narrow(wide.data(), 65536, DType::bf16, reinterpret_cast<std::byte*>(back.data()));
  for (uint32_t i = 0; i < 65536; ++i) {
    if ((i & 0x7FFFu) > 0x7F80u) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
      ASSERT_GT(back[i] & 0x7FFF, 0x7F80) << i;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), i << 16);
    ASSERT_EQ(back[i], i);
  }
}

TEST_P(OpsTest, NarrowRoundsToNearestEven) {
  // Around every finite pattern p: p + 1/2 ulp (a tie), a little less, a little more.
  std::vector<float> x;
  std::vector<uint16_t> want;
  for (uint32_t p = 0; p < 65536; ++p) {
    if ((p & 0x7F80u) == 0x7F80u) continue;
    const auto up = static_cast<uint16_t>(p + 1);
    const auto even = static_cast<uint16_t>(p % 2 == 0 ? p : p + 1);
    for (const auto& [low, rounded] :
         {std::pair(0x7FFFu, static_cast<uint16_t>(p)), {0x8000u, even}, {0x8001u, up}}) {
      x.push_back(std::bit_cast<float>(p << 16 | low));
      want.push_back(rounded);
    }
  }
  std::vector<uint16_t> got(x.size());
  ops_->narrow(x.data(), static_cast<int64_t>(x.size()), DType::bf16,
               reinterpret_cast<std::byte*>(got.data()));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << x[i];
}

TEST_P(OpsTest, NarrowKeepsNan) {
  std::vector<float> x;
  for (const uint32_t bits : {0x7F800001u, 0x7F80FFFFu, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu,
                              0x7FC00000u, 0xFFFF8000u, 0x7FFF8000u, 0x7F808000u}) {
    x.push_back(std::bit_cast<float>(bits));
  }
  std::vector<uint16_t> got(x.size());
  ops_->narrow(x.data(), static_cast<int64_t>(x.size()), DType::bf16,
               reinterpret_cast<std::byte*>(got.data()));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_GT(got[i] & 0x7FFF, 0x7F80) << i;
}

TEST_P(OpsTest, ConversionsOfEveryLength) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (int count = 0; count <= 40; ++count) {
      const std::vector<float> x = random_floats(prng_, count, dtype);
      const std::vector<float> base = random_floats(prng_, count + 1);
      std::vector<std::byte> stored(sz(count + 1) * dtype_bytes(dtype), std::byte{0x5A});
      ops_->narrow(x.data(), count, dtype, stored.data());
      EXPECT_EQ(stored.back(), std::byte{0x5A}) << "narrow wrote beyond " << count;
      std::vector<float> wide(sz(count + 1), 77.0f);
      ops_->widen(stored.data(), count, dtype, wide.data());
      std::vector<float> sum = base;
      ops_->add(stored.data(), count, dtype, sum.data());
      for (size_t i = 0; i < sz(count); ++i) {
        ASSERT_EQ(wide[i], x[i]);
        ASSERT_EQ(sum[i], base[i] + x[i]);
      }
      EXPECT_EQ(wide.back(), 77.0f);
      EXPECT_EQ(sum.back(), base.back());
    }
  }
}

struct RouteCase {
  const char* name;
  RouterSpec router;
  int experts, top_k;
};

std::vector<RouteCase> route_cases() {
  const auto softmax = RouterScore::softmax;
  const auto sigmoid = RouterScore::sigmoid;
  const auto selected = RouterScore::softmax_selected;
  const auto top2 = GroupScore::top2_sum;
  const auto best = GroupScore::max;
  return {
      {"plain softmax", {softmax, false, false, 1, 1, top2, false, 1.0}, 60, 4},
      {"normalised softmax", {softmax, false, false, 1, 1, top2, true, 1.0}, 128, 8},
      {"softmax of the selected", {selected, false, true, 1, 1, top2, false, 1.0}, 32, 4},
      {"sigmoid with bias", {sigmoid, true, false, 1, 1, top2, true, 2.5}, 37, 6},
      {"groups", {sigmoid, true, false, 8, 4, top2, true, 2.5}, 256, 8},
      {"groups by their best", {softmax, false, false, 4, 2, best, false, 16.0}, 160, 6},
      {"groups of one", {sigmoid, true, false, 8, 3, top2, false, 16.0}, 8, 2},
      {"one group of several", {sigmoid, true, false, 4, 1, top2, true, 1.0}, 16, 4},
      {"every expert", {softmax, false, false, 1, 1, top2, false, 1.0}, 5, 5},
      {"single expert", {sigmoid, false, false, 1, 1, top2, true, 1.0}, 1, 1},
  };
}

// Sorts 0..n-1 by value descending, then index.
std::vector<int> ranking(const std::vector<double>& values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return values[sz(a)] != values[sz(b)] ? values[sz(a)] > values[sz(b)] : a < b;
  });
  return order;
}

// Experts and weights of one token.
void naive_route(const RouteCase& c, const float* logits, const float* bias, std::vector<int>* ids,
                 std::vector<double>* weights) {
  std::vector<double> scores, biased;
  double total = 0;
  for (int e = 0; e < c.experts; ++e) total += std::exp(static_cast<double>(logits[e]));
  for (int e = 0; e < c.experts; ++e) {
    const double z = logits[e];
    scores.push_back(c.router.score == RouterScore::sigmoid   ? 1 / (1 + std::exp(-z))
                     : c.router.score == RouterScore::softmax ? std::exp(z) / total
                                                              : z);
    biased.push_back(scores.back() + (bias == nullptr ? 0.0 : bias[e]));
  }
  const int size = c.experts / c.router.groups;
  std::vector<double> group_scores;
  for (int g = 0; g < c.router.groups; ++g) {
    std::vector<double> members(biased.begin() + g * size, biased.begin() + (g + 1) * size);
    std::sort(members.rbegin(), members.rend());
    const bool both = c.router.group_score == GroupScore::top2_sum && size > 1;
    group_scores.push_back(members[0] + (both ? members[1] : 0.0));
  }
  const std::vector<int> groups = ranking(group_scores);
  for (int i = c.router.groups > 1 ? c.router.top_groups : 1; i < c.router.groups; ++i) {
    std::fill_n(biased.begin() + groups[sz(i)] * size, size, -INFINITY);
  }
  *ids = ranking(biased);
  ids->resize(sz(c.top_k));
  double sum = 0;
  if (c.router.score == RouterScore::softmax_selected) {
    for (double& score : scores) score = std::exp(score);
    for (const int e : *ids) sum += scores[sz(e)];
    for (double& score : scores) score /= sum;
  }
  sum = 0;
  for (const int e : *ids) sum += scores[sz(e)];
  weights->clear();
  for (const int e : *ids) {
    weights->push_back(scores[sz(e)] / (c.router.normalize ? sum : 1.0) * c.router.scale);
  }
}

TEST_P(OpsTest, Route) {
  constexpr int kTokens = 50;
  for (const RouteCase& c : route_cases()) {
    SCOPED_TRACE(c.name);
    ops_->reserve(ffn_spec(64, 64, c.experts, c.top_k), {kTokens, 64, 64});
    for (const bool grid : {false, true}) {  // a grid of few values makes many exact ties
      const auto draw = [&](double scale) {
        const double value = (2 * prng_.uniform() - 1) * scale;
        return static_cast<float>(grid ? std::round(value * 2) / 2 : value);
      };
      std::vector<float> logits, bias;
      for (int i = 0; i < kTokens * c.experts; ++i) logits.push_back(draw(3));
      for (int e = 0; e < c.experts; ++e) bias.push_back(draw(1) - 1.5f);  // mostly negative
      const float* used_bias = c.router.has_bias ? bias.data() : nullptr;
      std::vector<int32_t> ids(sz(kTokens * c.top_k), -7);
      std::vector<float> weights(ids.size(), kPoison);
      ops_->route(c.router, c.experts, c.top_k, logits.data(), used_bias, kTokens, ids.data(),
                  weights.data());
      for (int t = 0; t < kTokens; ++t) {
        std::vector<int> want_ids;
        std::vector<double> want_weights;
        naive_route(c, logits.data() + t * c.experts, used_bias, &want_ids, &want_weights);
        const auto begin = ids.begin() + t * c.top_k;
        ASSERT_EQ(std::vector<int>(begin, begin + c.top_k), want_ids) << "token " << t;
        expect_close({weights.data() + t * c.top_k, sz(c.top_k)}, want_weights, "weights", 2e-6);
      }
    }
  }
}

// A softmax far beyond the range of exp, and scores that only a bias brings up again.
TEST_P(OpsTest, RouteOfExtremeLogits) {
  ops_->reserve(ffn_spec(64, 64, 4, 2), {1, 64, 64});
  int32_t ids[2];
  float weights[2];
  const float huge[] = {1000, 999, -1000, 1000};
  ops_->route({.score = RouterScore::softmax, .normalize = true}, 4, 2, huge, nullptr, 1, ids,
              weights);
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 3);
  EXPECT_FLOAT_EQ(weights[0], 0.5f);
  const float tiny[] = {-20, -19, 5, 5};
  const float bias[] = {12, 12.5f, 0, 0};
  ops_->route({.score = RouterScore::sigmoid, .has_bias = true, .normalize = true}, 4, 2, tiny,
              bias, 1, ids, weights);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(ids[1], 0);
  EXPECT_NEAR(weights[0], 1 / (1 + std::exp(-1.0)), 1e-5);  // the scores' ratio is e
}

TEST_P(OpsTest, RouteOfNanStillNamesDistinctExperts) {
  ops_->reserve(ffn_spec(64, 64, 8, 4), {1, 64, 64});
  const std::vector<float> logits(8, kPoison);
  int32_t ids[4];
  float weights[4];
  for (const int groups : {1, 4}) {
    const RouterSpec router{
        .score = RouterScore::sigmoid, .groups = groups, .top_groups = 2, .normalize = true};
    ops_->route(router, 8, 4, logits.data(), nullptr, 1, ids, weights);
    const std::set<int32_t> distinct(ids, ids + 4);
    EXPECT_EQ(distinct.size(), 4u);
    EXPECT_GE(*distinct.begin(), 0);
    EXPECT_LT(*distinct.rbegin(), 8);
  }
}

}  // namespace
}  // namespace asap::optest
