// What the op tests share: the tables under test, random stored matrices whose exact values are
// known, naive double arithmetic, and comparisons. Nothing here calls the code under test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "asap/base/check.h"
#include "asap/base/prng.h"
#include "asap/compute/ops.h"

namespace asap::optest {

inline size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}
inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();  // "not written"

// "ref" or an ISA of the CPU table; null if this machine lacks it.
inline std::unique_ptr<Ops> make_table(const std::string& name, Team& team) {
  return name == "ref" ? make_ops_ref() : make_ops_cpu(team, name);
}

// Tables that round rows to bf16 for products with bf16 weights.
inline bool rounds_rows(const std::string& name) {
  return name == "avx512bf16" || name == "amx";
}
// What expect_close() allows unless told otherwise; OpsTest sets it by the table.
inline double table_tolerance = 1e-5;

// A test that runs over every table of this machine, each led by a team of three.
class OpsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ops_ = make_table(GetParam(), team_);
    if (ops_ == nullptr) GTEST_SKIP() << "this machine has no " << GetParam();
    table_tolerance = rounds_rows(GetParam()) ? 2e-2 : 1e-5;
  }
  void TearDown() override { table_tolerance = 1e-5; }
  Team team_{3};
  std::unique_ptr<Ops> ops_;
  Arena arena_;
  Prng prng_{42};
};

#define ASAP_FOR_ALL_TABLES(suite)                                                             \
  INSTANTIATE_TEST_SUITE_P(                                                                    \
      Table, suite,                                                                            \
      ::testing::Values("ref", "scalar", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"), \
      [](const auto& table) { return table.param; })

// Exactly representable in bf16: eight significant bits in (-1, 1).
inline float bf16_value(Prng& prng) {
  const auto significand = static_cast<int>(prng.below(511)) - 255;
  return std::ldexp(static_cast<float>(significand), -8 - static_cast<int>(prng.below(3)));
}
inline float f32_value(Prng& prng) {
  return static_cast<float>(2 * prng.uniform() - 1);
}
inline std::vector<float> random_floats(Prng& prng, int64_t n, DType dtype = DType::f32) {
  std::vector<float> out(sz(n));
  for (float& v : out) v = dtype == DType::bf16 ? bf16_value(prng) : f32_value(prng);
  return out;
}

// A matrix as a checkpoint stores it, with its exact values.
struct Stored {
  int rows = 0, cols = 0;
  std::vector<std::byte> data;
  std::vector<float> scales;   // fp8: [ceil(rows/128), ceil(cols/128)]
  std::vector<double> values;  // [rows, cols]
  TensorView view;

  Stored() = default;
  Stored(Stored&&) = default;
  Stored& operator=(Stored&&) = default;
  const double* row(int r) const { return values.data() + int64_t{r} * cols; }
};

// One random element of `dtype` at `at`; returns its value.
inline double store_random(Prng& prng, DType dtype, std::byte* at) {
  switch (dtype) {
    case DType::f32: {
      const float value = f32_value(prng);
      std::memcpy(at, &value, sizeof(value));
      return value;
    }
    case DType::bf16: {
      const float value = bf16_value(prng);
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      std::memcpy(at, &bits, sizeof(bits));
      return value;
    }
    case DType::f16: {  // 2^(e-15)·(1 + m/1024)
      const uint64_t sign = prng.below(2), e = 11 + prng.below(4), m = prng.below(1024);
      const auto bits = static_cast<uint16_t>(sign << 15 | e << 10 | m);
      std::memcpy(at, &bits, sizeof(bits));
      const double value = std::ldexp(1 + static_cast<double>(m) / 1024, static_cast<int>(e) - 15);
      return sign != 0 ? -value : value;
    }
    case DType::f8_e4m3: {  // 2^(e-7)·(1 + m/8); e == 0: 2^-6·m/8
      const uint64_t sign = prng.below(2), e = prng.below(7), m = prng.below(8);
      *at = static_cast<std::byte>(sign << 7 | e << 3 | m);
      const double fraction = static_cast<double>(m) / 8;
      const double value =
          e == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, static_cast<int>(e) - 7);
      return sign != 0 ? -value : value;
    }
    case DType::mxfp4:
    case DType::f8_e8m0:
    case DType::i8: break;  // no elements of their own
  }
  CHECK(false, "no random {}", dtype_name(dtype));
  return 0;
}

// `pad` unused elements between rows.
inline Stored random_matrix(Prng& prng, int rows, int cols, DType dtype, int pad = 0) {
  Stored out;
  out.rows = rows;
  out.cols = cols;
  const size_t bytes = dtype_bytes(dtype);
  const int64_t stride = cols + pad;
  out.data.resize(sz(rows * stride) * bytes);
  const int scale_cols = (cols + 127) / 128;
  if (dtype == DType::f8_e4m3) {
    out.scales.resize(sz((rows + 127) / 128 * scale_cols));
    for (float& s : out.scales) s = static_cast<float>(0.5 + prng.uniform());
  }
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      double value = store_random(prng, dtype, out.data.data() + sz(r * stride + c) * bytes);
      // A dequantised weight is the float32 product.
      if (dtype == DType::f8_e4m3) {
        value = static_cast<float>(value) * out.scales[sz(r / 128 * scale_cols + c / 128)];
      }
      out.values.push_back(value);
    }
  }
  out.view.name = "test matrix";
  out.view.dtype = dtype;
  out.view.rows = rows;
  out.view.cols = cols;
  out.view.stride = stride;
  out.view.data = out.data.data();
  out.view.scales = reinterpret_cast<const std::byte*>(out.scales.data());
  out.view.scale_cols = scale_cols;
  return out;
}

template <typename A, typename B>
double dot(const A* a, const B* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// An FFN's three matrices, and what it gives for x [hidden]. With a clamped glu it has biases.
struct Ffn {
  GluSpec glu;
  Stored gate, up, down;
  Stored gate_bias, up_bias, down_bias;
  Ffn(Prng& prng, int hidden, int intermediate, DType dtype, GluSpec glu_now = {})
      : glu(glu_now),
        gate(random_matrix(prng, intermediate, hidden, dtype)),
        up(random_matrix(prng, intermediate, hidden, dtype)),
        down(random_matrix(prng, hidden, intermediate, dtype)) {
    if (!glu.clamped) return;
    gate_bias = random_matrix(prng, 1, intermediate, dtype);
    up_bias = random_matrix(prng, 1, intermediate, dtype);
    down_bias = random_matrix(prng, 1, hidden, dtype);
  }
  FfnViews views(bool int8 = false) const {
    FfnViews out{gate.view, up.view, down.view, gate_bias.view, up_bias.view, down_bias.view};
    for (TensorView* view : {&out.gate, &out.up, &out.down}) view->as_int8 = int8;
    return out;
  }
  std::vector<double> apply(const float* x) const {
    const auto biased = [](const Stored& bias, int j, double sum) {
      return bias.values.empty() ? sum : sum + bias.values[sz(j)];
    };
    std::vector<double> act, out;
    for (int j = 0; j < gate.rows; ++j) {
      double g = biased(gate_bias, j, dot(gate.row(j), x, gate.cols));
      double u = biased(up_bias, j, dot(up.row(j), x, gate.cols));
      if (glu.clamped) {
        g = std::min(g, glu.limit);
        u = std::max(-glu.limit, std::min(u, glu.limit)) + 1;
      }
      act.push_back(g / (1 + std::exp(-(glu.clamped ? glu.alpha : 1.0) * g)) * u);
    }
    for (int j = 0; j < down.rows; ++j) {
      out.push_back(biased(down_bias, j, dot(down.row(j), act.data(), down.cols)));
    }
    return out;
  }
};

// |got - want| <= tolerance·max|want| for every element.
inline void expect_close(std::span<const float> got, std::span<const double> want,
                         const std::string& what, double tolerance = table_tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(static_cast<double>(got[i]) - want[i]) <= tolerance * largest)) {
      ADD_FAILURE() << what << ": element " << i << " of " << got.size() << " is " << got[i]
                    << ", expected " << want[i] << " (largest " << largest << ")";
      return;
    }
  }
}

// The same bits.
template <typename T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& want,
                      const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) {
      ADD_FAILURE() << what << ": element " << i << " of " << got.size() << " is " << got[i]
                    << ", expected the bits of " << want[i];
      return;
    }
  }
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Expert of one token and its router weight.
struct Routed {
  int expert;
  float weight;
};
using Routing = std::vector<std::vector<Routed>>;  // [tokens], experts ascending

// The arrays of one ExpertWork.
class Work {
 public:
  // x: [tokens, hidden], representable in `dtype`.
  Work(int layer, int experts, int hidden, DType dtype, const Routing& routing,
       const std::vector<float>& x)
      : hidden_(hidden), token_rows_of_(routing.size()) {
    work_.layer = layer;
    work_.tokens = static_cast<int>(routing.size());
    work_.dtype = dtype;
    group_by_expert(experts, routing);
    fill_payload(x);
  }
  // [tokens, hidden]
  std::vector<float> run(Ops& ops, const ExpertTable& table) {
    std::vector<float> out(sz(work_.tokens) * sz(hidden_), kPoison);
    work_.out = out.data();
    ops.experts(table, work_);
    return out;
  }

 private:
  void group_by_expert(int experts, const Routing& routing) {
    expert_offsets_.push_back(0);
    for (int e = 0; e < experts; ++e) {
      for (size_t token = 0; token < routing.size(); ++token) {
        for (const Routed& routed : routing[token]) {
          if (routed.expert != e) continue;
          token_rows_of_[token].push_back(static_cast<int32_t>(row_token_.size()));
          row_token_.push_back(static_cast<int32_t>(token));
          row_weight_.push_back(routed.weight);
        }
      }
      expert_offsets_.push_back(static_cast<int32_t>(row_token_.size()));
    }
    token_offsets_.push_back(0);
    for (const auto& rows : token_rows_of_) {
      append(token_rows_, rows);
      token_offsets_.push_back(static_cast<int32_t>(token_rows_.size()));
    }
    work_.expert_offsets = expert_offsets_;
    work_.row_token = row_token_.data();
    work_.row_weight = row_weight_.data();
    work_.token_offsets = token_offsets_.data();
    work_.token_rows = token_rows_.data();
  }
  void fill_payload(const std::vector<float>& x) {
    const size_t bytes = dtype_bytes(work_.dtype);
    const size_t stride = sz(hidden_) * bytes + 24;  // rows need not follow each other
    bytes_.resize(stride * sz(work_.tokens));
    for (int token = 0; token < work_.tokens; ++token) {
      std::byte* row = bytes_.data() + stride * sz(token);
      payload_.push_back(row);
      for (int i = 0; i < hidden_; ++i) {
        const auto bits = std::bit_cast<uint32_t>(x[sz(token) * sz(hidden_) + sz(i)]);
        const auto high = static_cast<uint16_t>(bits >> 16);
        if (bytes == 4) std::memcpy(row + 4 * i, &bits, 4);
        if (bytes == 2) std::memcpy(row + 2 * i, &high, 2);
      }
    }
    work_.payload = payload_.data();
  }

  int hidden_;
  ExpertWork work_;
  std::vector<std::vector<int32_t>> token_rows_of_;
  std::vector<int32_t> expert_offsets_, row_token_, token_offsets_, token_rows_;
  std::vector<float> row_weight_;
  std::vector<std::byte> bytes_;
  std::vector<const std::byte*> payload_;
};

// Two layers of experts: layer 0 is dense (empty matrices), layer 1 holds `experts` FFNs.
struct Experts {
  int count, hidden;
  std::vector<Ffn> ffns;
  Experts(Prng& prng, int experts, int hidden_size, int intermediate, DType dtype)
      : count(experts), hidden(hidden_size) {
    for (int e = 0; e < experts; ++e) ffns.emplace_back(prng, hidden, intermediate, dtype);
  }
  // The table's entries, packed for `ops`.
  std::vector<ExpertMatrix> pack(Ops& ops, Arena& arena, bool int8 = false) const {
    std::vector<ExpertMatrix> entries(sz(2 * count));
    for (int e = 0; e < count; ++e) {
      const Ffn& ffn = ffns[sz(e)];
      entries[sz(count + e)] = ops.pack_expert(ffn.views(int8), arena);
    }
    return entries;
  }
  static constexpr int kLayer = 1;
};

inline ModelSpec ffn_spec(int hidden, int intermediate, int experts = 1, int top_k = 1) {
  ModelSpec spec;
  spec.hidden = hidden;
  spec.layers = 2;
  spec.vocab = 64;
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = 16;
  spec.moe_layer = {0, 1};
  spec.dense_intermediate = spec.moe_intermediate = spec.shared_intermediate = intermediate;
  spec.experts = experts;
  spec.top_k = top_k;
  return spec;
}

}  // namespace asap::optest
