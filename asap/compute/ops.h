// Ops: the op table, the border between the engine and a device. Above it no code knows an ISA;
// below it no code knows a model family, a batch or a link.
//
// Rules that every implementation keeps:
//  - activations in memory are float32, row-major, with an explicit row length `ld` (elements)
//  where rows may be apart;
//    weights are packed once by pack*(); caches and wire rows are float32 or bfloat16;
//  - accumulation, norms, softmax and router in float32 (ops_ref accumulates in double);
//  - BATCH-INVARIANT: the bits of an output row depend on that row's inputs alone, never on the
//  other rows of the call,
//    on the number of threads, or on how a prompt was cut into calls. One K-order per output
//    element; attention blocks start at absolute positions that are multiples of kKvBlock;
//  - no op allocates after reserve(); no op fails: bad sizes are bugs (CHECK).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "asap/base/units.h"
#include "asap/compute/arena.h"
#include "asap/compute/team.h"
#include "asap/model/spec.h"
#include "asap/model/tensor.h"

namespace asap {

// Tokens of one KV block; sequences own whole blocks. Also the key-block size of attention.
inline constexpr int kKvBlock = 64;

// y = x·Wᵀ + bias; W is [n, k]. Packed for the device that made it.
struct Matrix {
  int n = 0;
  int k = 0;
  DType dtype = DType::f32;         // f32, bf16 where that is exact, i8 if so marked
  const std::byte* data = nullptr;  // device layout, in the Arena given to pack()
  uint64_t bytes = 0;
  const float* bias = nullptr;  // [n] in the order of the packed columns, or null
  // Rows are rounded before the product; the first group of a row ends where it does in the whole
  // matrix of which this may be some columns.
  Fp8Rows fp8_rows = Fp8Rows::none;
  int fp8_first = 0;
};

// One FFN: w_down·glu(w_gate·x, w_up·x); an expert, the shared expert or a dense layer.
struct ExpertMatrix {
  int hidden = 0;
  int intermediate = 0;
  Matrix gate_up;  // device layout of gate and up together
  Matrix down;     // [hidden, intermediate]
  GluSpec glu;
};

// Addresses of all experts of all layers that a device holds: row `layer` of `experts` entries. The
// super kernel gets the whole table and reads the layer as data.
struct ExpertTable {
  int layers = 0;
  int experts = 0;  // local experts per layer
  std::span<const ExpertMatrix>
      entries;  // [layers][experts]; rows of dense layers are empty matrices
};

// Head h of MLA's kv_b: k_up [nope, latent] and v_up [v, latent] expand a latent; q_absorb [latent,
// nope] is k_up transposed, for the absorbed form.
struct MlaHead {
  Matrix k_up, v_up, q_absorb;
};

// A per-layer cache of one rank: `width` elements of `dtype` per slot; slot = block·kKvBlock +
// position % kKvBlock.
struct KvCache {
  std::byte* data = nullptr;
  DType dtype = DType::bf16;  // bf16 or f32
  int width = 0;
};

// One sequence's rows of a batch: rows [row, row + n) are absolute positions [past, past + n);
// positions < past are cached. blocks[b] is the KV block of positions [b·kKvBlock, (b+1)·kKvBlock).
// The caller stores the new rows first.
struct Sequence {
  int row = 0;
  int n = 0;
  int past = 0;
  int prompt =
      0;  // prompt length: positions >= prompt were generated. A property of the request, so a
          // choice of algorithm by it (MLA expanded or absorbed) keeps batch invariance.
  const int32_t* blocks = nullptr;
};

struct GqaArgs {
  std::span<const Sequence> sequences;
  const float* q = nullptr;            // [rows, heads, d], RoPE applied
  KvCache kv;                          // width 2·kv_heads·d: K heads, then V heads
  int heads = 0, kv_heads = 0, d = 0;  // local heads; head h uses kv head h / (heads / kv_heads)
  float scale = 0;
  int window = 0;                // keys that a row sees, its own included; 0: all up to its own
  const float* sinks = nullptr;  // [heads] a logit that joins the softmax without a value, or null
  float* out = nullptr;          // [rows, heads, d]
};

struct MlaArgs {
  std::span<const Sequence> sequences;
  const float* q = nullptr;  // [rows, heads, nope + rope], RoPE applied to the last `rope`
  KvCache kv;                // width latent + rope: normed latent c, then the rotated rope key
  std::span<const MlaHead> heads;
  int nope = 0, rope = 0, v = 0, latent = 0;
  float scale = 0;
  const int32_t* selected =
      nullptr;  // [rows, topk] ascending key positions, padded with -1; null: dense causal
  int topk = 0;
  float* out = nullptr;  // [rows, heads, v]
};

// DSA lightning indexer for batch rows [begin, end) (spec 3.4): I[t,s] = Σ_h
// w[t,h]·relu(u[t,h]·key[s]), the topk largest with ties to the lower position. Rows that see <=
// topk keys select all of them.
struct IndexerArgs {
  std::span<const Sequence> sequences;
  int begin = 0, end = 0;
  const float* u = nullptr;  // [end - begin, heads, dim], RoPE applied
  const float* w = nullptr;  // [end - begin, heads], already times heads^-1/2·dim^-1/2
  KvCache keys;              // width dim
  int heads = 0, dim = 0, topk = 0;
  int32_t* selected = nullptr;  // [end - begin, topk] ascending, padded with -1
};

// One piece of expert work: all rows of one layer of one item that fall on this device's experts.
struct ExpertWork {
  int layer = 0;   // row of the table; data, not code
  int tokens = 0;  // tokens with at least one local expert
  std::span<const int32_t>
      expert_offsets;                  // [experts + 1]: rows of expert i are [off[i], off[i+1])
  const int32_t* row_token = nullptr;  // [rows] token of a row; ascending within an expert
  const float* row_weight = nullptr;   // [rows] router weight
  const int32_t* token_offsets =
      nullptr;  // [tokens + 1]: rows of token i are token_rows[off[i] .. off[i+1])
  const int32_t* token_rows = nullptr;  // [rows] row numbers, ascending expert
  const std::byte* const* payload =
      nullptr;  // [tokens] address of a token's hidden state [hidden], of `dtype`
  DType dtype = DType::bf16;
  float* out = nullptr;  // [tokens, hidden] Σ weight·FFN over the token's rows, ascending expert
};

struct OpLimits {
  int max_rows = 0;         // rows (tokens) of one call
  int max_context = 0;      // longest sequence, cached and new
  int max_expert_rows = 0;  // rows of one ExpertWork
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual std::string_view name() const = 0;  // "ref", "cpu"
  virtual std::string_view isa() const = 0;   // as in compute/isa.h
  // Sizes the scratch memory for a model; before the first op.
  virtual void reserve(const ModelSpec& spec, const OpLimits& limits) = 0;

  // Packing: reads the views once, writes device layout into the arena. `bias` [1, n] may be empty.
  virtual Matrix pack(const TensorView& w, const TensorView& bias, Arena& arena) = 0;
  Matrix pack(const TensorView& w, Arena& arena) { return pack(w, {}, arena); }
  virtual ExpertMatrix pack_expert(const FfnViews& ffn, const GluSpec& glu, Arena& arena) = 0;
  ExpertMatrix pack_expert(const FfnViews& ffn, Arena& arena) {
    return pack_expert(ffn, {}, arena);
  }
  // kv_b: [nope + v, latent] of one head.
  virtual MlaHead pack_mla_head(const TensorView& kv_b, int nope, int v, Arena& arena) = 0;

  // y[i, :w.n] = x[i, :w.k]·Wᵀ + bias, rows i < n.
  virtual void linear(const Matrix& w, const float* x, int n, int ldx, float* y, int ldy) = 0;
  // y[i] = FFN(x[i]), rows i < n, [n, hidden] both (dense layers, shared experts).
  virtual void ffn(const ExpertMatrix& w, const float* x, int n, float* y) = 0;
  virtual void experts(const ExpertTable& table, const ExpertWork& work) = 0;

  // y[i] = x[i]·(mean(x[i]²) + eps)^-1/2 ⊙ w over `width` elements; x == y allowed.
  virtual void rms_norm(const float* x, int n, int width, int ldx, const float* w, double eps,
                        float* y, int ldy) = 0;
  // y[i] = (x[i] - mean)·(var + 1e-6)^-1/2 ⊙ w + b; x == y allowed.
  virtual void layer_norm(const float* x, int n, int width, int ldx, const float* w, const float* b,
                          float* y, int ldy) = 0;
  // Rotates in place `dim` elements at x[i·ld + h·head_stride] for rows i < n and heads h < heads.
  // angles: [n, dim/2, 2] cos and sin per row.
  virtual void rope(float* x, int n, int ld, int heads, int head_stride, int dim, bool interleaved,
                    const float* angles) = 0;
  // Writes rows of x [n, cache.width] (row length ldx) to the cache slots, rounding to its dtype.
  virtual void kv_store(const KvCache& cache, const int32_t* slots, const float* x, int n,
                        int ldx) = 0;
  virtual void attention_gqa(const GqaArgs& args) = 0;
  virtual void attention_mla(const MlaArgs& args) = 0;
  virtual void indexer(const IndexerArgs& args) = 0;
  // Selected experts and their final weights, [n, top_k], ids ascending by (selection score desc,
  // id asc). logits [n, experts]; bias [experts] or null.
  virtual void route(const RouterSpec& router, int experts, int top_k, const float* logits,
                     const float* bias, int n, int32_t* ids, float* weights) = 0;
  // Conversions for the wire and caches: `count` elements, round-to-nearest-even to bf16. These
  // three run on the calling thread, never on the team: the send agent of an expert rank converts
  // while its compute agent leads the team.
  virtual void narrow(const float* x, int64_t count, DType to, std::byte* y) = 0;
  virtual void widen(const std::byte* x, int64_t count, DType from, float* y) = 0;
  // y += widen(x).
  virtual void add(const std::byte* x, int64_t count, DType from, float* y) = 0;
};

// `team` must outlive the ops. The CPU table takes the kernels named `isa` (compute/isa.h); null if
// the machine lacks them.
std::unique_ptr<Ops> make_ops_ref();
std::unique_ptr<Ops> make_ops_cpu(Team& team, std::string_view isa = "");

}  // namespace asap
