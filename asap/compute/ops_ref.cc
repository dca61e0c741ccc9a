// ops_ref: the oracle. One thread, plain loops, float32 in memory, every sum in double. It is the
// readable definition of each op; the fast tables are tested against it, and so it allocates where
// that reads better. Formulas follow the reference programs of DeepSeek (V3, V3.2) and Hugging Face
// transformers (the others); attention and the indexer are in ref_attention.cc.
//
// Packed form: the float32 matrix, row-major, or its int8 form (ref_math.h); an expert's gate_up is
// the gate rows followed by the up rows.
#include <algorithm>
#include <cmath>
#include <vector>

#include "asap/base/check.h"
#include "asap/compute/ops.h"
#include "asap/compute/ref_math.h"
#include "asap/compute/router.h"
#include "asap/model/int8.h"

namespace asap {

namespace {

using namespace ref;

// Room for a packed float32 matrix [n, k].
Matrix new_matrix(int n, int k, Arena& arena) {
  const uint64_t bytes = sz(n) * sz(k) * sizeof(float);
  return {n, k, DType::f32, arena.allocate(bytes), bytes, nullptr};
}

// Room for the bias of w; the caller fills [begin, begin + view.cols) from the views.
float* new_bias(Matrix& w, Arena& arena) {
  auto* bias = reinterpret_cast<float*>(arena.allocate(sz(w.n) * sizeof(float)));
  w.bias = bias;
  return bias;
}

// The int8 form of the rows of `parts`, one after the other.
Matrix pack_int8(std::initializer_list<const TensorView*> parts, Arena& arena) {
  const int k = (*parts.begin())->cols;
  int n = 0;
  for (const TensorView* part : parts) n += part->rows;
  const uint64_t bytes = int8_scales_at(n, k) + sz(n) * sizeof(float);
  std::byte* data = arena.allocate(bytes);
  auto* q = reinterpret_cast<int8_t*>(data);
  auto* scales = reinterpret_cast<float*>(data + int8_scales_at(n, k));
  std::vector<float> scratch;
  for (const TensorView* part : parts) {
    for (int r = 0; r < part->rows; ++r, q += k) *scales++ = read_int8_row(*part, r, scratch, q);
  }
  return {n, k, DType::i8, data, bytes, nullptr};
}

Matrix pack_float(std::initializer_list<const TensorView*> parts, Arena& arena) {
  int n = 0;
  for (const TensorView* part : parts) n += part->rows;
  const Matrix out = new_matrix(n, (*parts.begin())->cols, arena);
  float* row = const_cast<float*>(floats(out));
  for (const TensorView* part : parts) {
    for (int r = 0; r < part->rows; ++r, row += out.k) part->read_row(r, row);
  }
  return out;
}

float* rows_of(const Matrix& w, int row) {
  return const_cast<float*>(floats(w)) + int64_t{row} * w.k;
}

double glu(const GluSpec& spec, double gate, double up) {
  if (!spec.clamped) return gate / (1 + std::exp(-gate)) * up;
  const double g = std::min(gate, spec.limit);
  const double u = std::clamp(up, -spec.limit, spec.limit);
  return g / (1 + std::exp(-spec.alpha * g)) * (u + 1);
}

// y[hidden] = w_down·glu(w_gate·x, w_up·x).
void ffn_row(const ExpertMatrix& w, const float* x, float* y) {
  std::vector<float> act(sz(w.intermediate));
  const Operand operand(w.gate_up, x);
  for (int j = 0; j < w.intermediate; ++j) {
    const double gate = row_product(w.gate_up, j, operand);
    const double up = row_product(w.gate_up, w.intermediate + j, operand);
    act[sz(j)] = static_cast<float>(glu(w.glu, gate, up));
  }
  multiply(w.down, act.data(), y);
}

// Rotates one head: pair j becomes (a·cos - b·sin, b·cos + a·sin); angles [dim/2, 2].
void rotate(float* head, int dim, bool interleaved, const float* angles) {
  for (int j = 0; j < dim / 2; ++j) {
    float& first = head[interleaved ? 2 * j : j];
    float& second = head[interleaved ? 2 * j + 1 : j + dim / 2];
    const double a = first;
    const double b = second;
    const double cosine = angles[2 * j];
    const double sine = angles[2 * j + 1];
    first = static_cast<float>(a * cosine - b * sine);
    second = static_cast<float>(b * cosine + a * sine);
  }
}

class RefOps final : public Ops {
 public:
  std::string_view name() const override { return "ref"; }
  std::string_view isa() const override { return "scalar"; }
  void reserve(const ModelSpec&, const OpLimits&) override {}

  using Ops::pack;
  Matrix pack(const TensorView& w, const TensorView& bias, Arena& arena) override {
    Matrix out = w.as_int8 ? pack_int8({&w}, arena) : pack_float({&w}, arena);
    if (bias) bias.read_row(0, new_bias(out, arena));
    mark_fp8_rows(w, &out);
    return out;
  }

  ExpertMatrix pack_expert(const FfnViews& ffn, const GluSpec& glu, Arena& arena) override {
    const TensorView& gate = ffn.gate;
    CHECK(gate.rows == ffn.up.rows && gate.cols == ffn.up.cols && ffn.down.cols == gate.rows, "{}",
          gate.name);
    const bool int8 = gate.as_int8 && ffn.up.as_int8;
    Matrix gate_up =
        int8 ? pack_int8({&gate, &ffn.up}, arena) : pack_float({&gate, &ffn.up}, arena);
    mark_fp8_rows(gate, &gate_up);
    if (ffn.gate_bias) {
      float* bias = new_bias(gate_up, arena);
      ffn.gate_bias.read_row(0, bias);
      ffn.up_bias.read_row(0, bias + gate.rows);
    }
    return {gate.cols, gate.rows, gate_up, pack(ffn.down, ffn.down_bias, arena), glu};
  }

  MlaHead pack_mla_head(const TensorView& kv_b, int nope, int v, Arena& arena) override {
    MlaHead head;
    head.k_up = pack(kv_b.slice_rows(0, nope), arena);
    head.v_up = pack(kv_b.slice_rows(nope, nope + v), arena);
    head.q_absorb = new_matrix(kv_b.cols, nope, arena);
    for (int r = 0; r < nope; ++r) {
      for (int c = 0; c < kv_b.cols; ++c) rows_of(head.q_absorb, c)[r] = rows_of(head.k_up, r)[c];
    }
    return head;
  }

  void linear(const Matrix& w, const float* x, int n, int ldx, float* y, int ldy) override {
    CHECK(n <= 1 || (ldx >= w.k && ldy >= w.n), "[{}, {}], rows of {}, {}", w.n, w.k, ldx, ldy);
    for (int i = 0; i < n; ++i) multiply(w, x + int64_t{i} * ldx, y + int64_t{i} * ldy);
  }

  void ffn(const ExpertMatrix& w, const float* x, int n, float* y) override {
    for (int i = 0; i < n; ++i) ffn_row(w, x + int64_t{i} * w.hidden, y + int64_t{i} * w.hidden);
  }

  // Experts ascend, so each token's sum is in ascending expert order.
  void experts(const ExpertTable& table, const ExpertWork& work) override {
    CHECK(work.layer >= 0 && work.layer < table.layers, "layer {}", work.layer);
    const ExpertMatrix* layer = table.entries.data() + int64_t{work.layer} * table.experts;
    const int hidden = layer[0].hidden;
    std::vector<float> x(sz(hidden));
    std::vector<float> y(sz(hidden));
    std::fill_n(work.out, int64_t{work.tokens} * hidden, 0.0f);
    for (int e = 0; e < table.experts; ++e) {
      for (int r = work.expert_offsets[sz(e)]; r < work.expert_offsets[sz(e) + 1]; ++r) {
        widen(work.payload[work.row_token[r]], hidden, work.dtype, x.data());
        ffn_row(layer[e], x.data(), y.data());
        float* out = work.out + int64_t{work.row_token[r]} * hidden;
        for (int i = 0; i < hidden; ++i) out[i] += work.row_weight[r] * y[sz(i)];
      }
    }
  }

  void rms_norm(const float* x, int n, int width, int ldx, const float* w, double eps, float* y,
                int ldy) override {
    for (int i = 0; i < n; ++i, x += ldx, y += ldy) {
      const double scale = 1.0 / std::sqrt(dot(x, x, width) / width + eps);
      for (int j = 0; j < width; ++j) y[j] = static_cast<float>(x[j] * scale * w[j]);
    }
  }

  void layer_norm(const float* x, int n, int width, int ldx, const float* w, const float* b,
                  float* y, int ldy) override {
    for (int i = 0; i < n; ++i, x += ldx, y += ldy) {
      double mean = 0;
      for (int j = 0; j < width; ++j) mean += x[j];
      mean /= width;
      double variance = 0;
      for (int j = 0; j < width; ++j) variance += (x[j] - mean) * (x[j] - mean);
      const double scale = 1.0 / std::sqrt(variance / width + 1e-6);
      for (int j = 0; j < width; ++j) {
        y[j] = static_cast<float>((x[j] - mean) * scale * w[j] + b[j]);
      }
    }
  }

  void rope(float* x, int n, int ld, int heads, int head_stride, int dim, bool interleaved,
            const float* angles) override {
    for (int i = 0; i < n; ++i) {
      for (int h = 0; h < heads; ++h) {
        rotate(x + int64_t{i} * ld + int64_t{h} * head_stride, dim, interleaved,
               angles + int64_t{i} * dim);
      }
    }
  }

  void kv_store(const KvCache& cache, const int32_t* slots, const float* x, int n,
                int ldx) override {
    const uint64_t slot_bytes = sz(cache.width) * dtype_bytes(cache.dtype);
    for (int i = 0; i < n; ++i) {
      narrow(x + int64_t{i} * ldx, cache.width, cache.dtype,
             cache.data + sz(slots[i]) * slot_bytes);
    }
  }

  void attention_gqa(const GqaArgs& args) override { ref::attention_gqa(args); }
  void attention_mla(const MlaArgs& args) override { ref::attention_mla(args); }
  void indexer(const IndexerArgs& args) override { ref::indexer(args); }

  void route(const RouterSpec& router, int experts, int top_k, const float* logits,
             const float* bias, int n, int32_t* ids, float* weights) override {
    route_tokens(router, experts, top_k, logits, bias, n, ids, weights);
  }

  void narrow(const float* x, int64_t count, DType to, std::byte* y) override {
    CHECK(to == DType::f32 || to == DType::bf16, "{}", dtype_name(to));
    if (to == DType::f32) {
      std::copy_n(reinterpret_cast<const std::byte*>(x), sz(count) * sizeof(float), y);
      return;
    }
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<uint16_t*>(y)[i] = f32_to_bf16(x[i]);
  }
  void widen(const std::byte* x, int64_t count, DType from, float* y) override {
    for (int64_t i = 0; i < count; ++i) y[i] = element(x, from, i);
  }
  void add(const std::byte* x, int64_t count, DType from, float* y) override {
    for (int64_t i = 0; i < count; ++i) y[i] += element(x, from, i);
  }
};

}  // namespace

std::unique_ptr<Ops> make_ops_ref() {
  return std::make_unique<RefOps>();
}

}  // namespace asap
