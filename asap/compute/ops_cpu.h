// OpsCpu: the op table of a CPU device. It cuts each op into items for the team and calls the
// kernels of one ISA (kernels/table.h); how the items are cut never shows in the results.
//
// Packed weights: panels of 32 columns, bf16 [k/2][32][2] or f32 [k][32], n and (bf16) k padded
// with zeros, one layout for every ISA; int8 in the layout of the table (kernels/table.h). A
// gate_up panel holds 16 gate and 16 up columns, so that silu(gate)·up happens in registers.
//
// The class is split over files by subject: ops_cpu.cc (choice of ISA, scratch, row-wise ops),
// ops_cpu_pack.cc, ops_cpu_linear.cc, ops_cpu_int8.cc, ops_cpu_experts.cc, ops_cpu_attention.cc
// (expanded keys), ops_cpu_mla.cc (absorbed) and ops_cpu_indexer.cc.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "asap/compute/kernels/table.h"
#include "asap/compute/ops.h"
#include "asap/compute/ops_cpu_tile.h"

namespace asap {

// Most rows of x that one item takes: enough to make light of what the weights cost, and a block of
// k of them fits L2 (kernels/gemm_block.h).
inline constexpr int kRowBlock = 192;
// Most rows of a GEMM in blocks: those, or the keys of a block.
inline constexpr int kGemmRows = std::max(kRowBlock, kKeyBlock);
// Most query rows of an item of attention.
inline constexpr int kQueryRows = 96;
// Elements that are worth a helper's time.
inline constexpr int64_t kRowsGrain = 16384;
// Rows that linear() rounds to FP8 before it multiplies them.
inline constexpr int kFp8RowsAtOnce = 1024;
// Most key units of one chunk.
inline constexpr size_t kMaxUnits = 4096;

class OpsCpu final : public Ops {
 public:
  OpsCpu(Team& team, const KernelTable& kernels);

  std::string_view name() const override { return "cpu"; }
  std::string_view isa() const override { return kernels_.isa; }
  void reserve(const ModelSpec& spec, const OpLimits& limits) override;

  using Ops::pack;
  using Ops::pack_expert;
  Matrix pack(const TensorView& w, const TensorView& bias, Arena& arena) override;
  ExpertMatrix pack_expert(const FfnViews& ffn, const GluSpec& glu, Arena& arena) override;
  MlaHead pack_mla_head(const TensorView& kv_b, int nope, int v, Arena& arena) override;

  void linear(const Matrix& w, const float* x, int n, int ldx, float* y, int ldy) override;
  void ffn(const ExpertMatrix& w, const float* x, int n, float* y) override;
  void experts(const ExpertTable& table, const ExpertWork& work) override;

  void rms_norm(const float* x, int n, int width, int ldx, const float* w, double eps, float* y,
                int ldy) override;
  void layer_norm(const float* x, int n, int width, int ldx, const float* w, const float* b,
                  float* y, int ldy) override;
  void rope(float* x, int n, int ld, int heads, int head_stride, int dim, bool interleaved,
            const float* angles) override;
  void kv_store(const KvCache& cache, const int32_t* slots, const float* x, int n,
                int ldx) override;
  void attention_gqa(const GqaArgs& args) override;
  void attention_mla(const MlaArgs& args) override;
  void indexer(const IndexerArgs& args) override;
  void route(const RouterSpec& router, int experts, int top_k, const float* logits,
             const float* bias, int n, int32_t* ids, float* weights) override;
  void narrow(const float* x, int64_t count, DType to, std::byte* y) override;
  void widen(const std::byte* x, int64_t count, DType from, float* y) override;
  void add(const std::byte* x, int64_t count, DType from, float* y) override;

 private:
  // Rows [row, row + rows) of an expert's work: the unit in which experts are computed.
  struct RowBlock {
    int expert = 0;
    int row = 0;
    int rows = 0;
  };
  // What ffn() and experts() have in common.
  struct FfnCall {
    const ExpertMatrix* experts = nullptr;  // of one layer
    const ExpertWork* work = nullptr;       // null: rows are rows of x
    const float* x = nullptr;               // [rows, hidden]
    const float* scale = nullptr;           // [rows] factor of a row's output, or null
    float* y = nullptr;                     // [rows, hidden]
  };
  // Where row r of a packed matrix comes from; no view: it is padding.
  struct RowOf {
    const TensorView* view = nullptr;
    int row = 0;
  };
  // Room for rows that are quantised to int8.
  struct Int8Buffer {
    std::byte* q = nullptr;
    float* scale = nullptr;
    int32_t* sum = nullptr;
    int64_t row_bytes = 0;  // most of a row
    int rows = 0;
  };
  // Rows of a product: float32, or quantised for an int8 matrix.
  struct RowView {
    const float* x = nullptr;
    int64_t ld = 0;
    Int8Rows int8 = {};
    RowView from(int row) const;
  };
  // Expanded keys and values of one head of one sequence, positions [0, keys), in key blocks:
  // per block K and V as AttendTile::Keys has them.
  struct KeyUnit {
    const Sequence* sequence = nullptr;
    int head = 0;  // kv head
    int keys = 0;
    int queries = 0;      // the sequence's rows [0, queries) attend here
    int first_block = 0;  // number of this unit's first block in the chunk
    float* data = nullptr;
  };
  // Query positions [begin, end) of a unit's sequence, counted from `past`.
  struct QueryItem {
    int unit = 0;
    int begin = 0;
    int end = 0;
    int64_t cost = 0;  // pairs of rows and keys
  };
  // Attention over key units: the shape shared by GQA and expanded MLA.
  struct UnitCall {
    const float* q = nullptr;  // [rows, heads, d]
    float* out = nullptr;      // [rows, heads, dv]
    int heads = 0;
    int group = 0;  // query heads per unit
    int d = 0, dv = 0;
    float scale = 0;
    int window = 0;                // as in GqaArgs
    const float* sinks = nullptr;  // [heads]
    const GqaArgs* gqa = nullptr;  // one of the two
    const MlaArgs* mla = nullptr;
    int64_t block_floats() const;
  };
  // A row that attends in the absorbed form.
  struct AbsorbedRow {
    const Sequence* sequence = nullptr;
    int row = 0;
    int position = 0;
  };
  struct Thread {
    float* x = nullptr;         // [kRowBlock, hidden + pad] gathered rows
    float* act = nullptr;       // [kRowBlock, intermediate + pad]
    Int8Buffer int8;            // kRowBlock rows of either
    float* rows = nullptr;      // [kKeyBlock, row_width_] widened cache rows
    float* key_rows = nullptr;  // [kKeyBlock, row_width_] expanded keys
    float* panels = nullptr;    // [row_width_][kKeyBlock]
    float* products = nullptr;  // [index heads, kKeyBlock]
    float* scores = nullptr;    // [context]
    uint32_t* order = nullptr;  // [context]
    AttendTile tile;
  };

  float* floats(int64_t count);  // from scratch_
  float* gemm_scratch(int thread) const { return gemm_scratch_[static_cast<size_t>(thread)]; }
  void reserve_experts(const ModelSpec& spec, const OpLimits& limits);
  void reserve_attention(const ModelSpec& spec, const OpLimits& limits);
  template <typename Fn>
  void for_rows(int n, int64_t elements, Fn&& fn);  // fn(row) for n rows of `elements` each

  // Packs a bias: read(out) fills whole panels.
  template <typename Read>
  static const float* pack_bias(int panels, Arena& arena, const Read& read);
  // Says where row r < n comes from.
  using RowSource = std::function<RowOf(int)>;
  // How panels of rows are stored: `words` of a row, each row's next to the others'.
  struct PanelForm {
    int words = 0, word_bytes = 0;
    std::byte padding{0};     // of rows that there are none
    int64_t panel_bytes = 0;  // from one panel to the next
  };
  // Row `row` of the matrix as stored, or put into `out`.
  using ReadRow = std::function<const std::byte*(const RowOf& from, int row,
                                                 std::vector<float>& scratch, std::byte* out)>;
  void pack_rows(int n, const PanelForm& form, const RowSource& row_of, const ReadRow& read,
                 std::byte* data);
  Matrix pack_panels(int n, int k, bool bf16, Arena& arena, const RowSource& row_of);
  Matrix pack_int8(int n, int k, Arena& arena, const RowSource& row_of);
  void reserve_int8(const ModelSpec& spec);
  Int8Buffer int8_buffer(int rows, int width);
  int64_t int8_ld(int k) const;
  Int8Rows int8_rows(const Int8Buffer& buffer, int first, int k) const;
  void quantize_row(const float* x, int k, const Int8Buffer& to, int row);
  void quantize_rows(const RowView& x, int rows, int k);  // to int8_
  void multiply(const GemmArgs& g, const Matrix& w, const RowView& x);
  // A product with stored weights of floats.
  void multiply_stored(const GemmArgs& g) { g.bf16 ? kernels_.gemm_bf16(g) : kernels_.gemm(g); }
  void linear_fp8(const Matrix& w, const float* x, int n, int ldx, float* y, int ldy);
  void linear_rows(const Matrix& w, const RowView& x, int n, float* y, int ldy);

  void split_rows(int expert, int begin, int end);  // appends to blocks_
  void run_ffn(const FfnCall& call);
  void run_blocks(const FfnCall& call);
  void run_columns(const FfnCall& call);
  RowView input(const FfnCall& call, const RowBlock& block, Thread& scratch);
  void gate_up(const ExpertMatrix& w, const RowView& in, int rows, Part panels, float* act,
               int64_t ld, int thread);
  void quantize_inputs(const FfnCall& call, const RowBlock& block, Part rows, Thread& scratch,
                       const Int8Buffer& to, int first);
  void down(const FfnCall& call, const RowBlock& block, const RowView& act, Part panels,
            int thread);
  void sum_slots(const ExpertWork& work, int hidden);

  void widen_rows(const KvCache& cache, const int32_t* blocks, int first, int count, int column,
                  int width, float* out, int64_t ld);
  void transpose_keys(const float* rows, int64_t ld, int keys, int64_t width, float* panels) const;
  void add_unit(const UnitCall& call, const Sequence& sequence, int head, int queries);
  void run_units(const UnitCall& call);
  void pack_gqa_block(const UnitCall& call, const KeyUnit& unit, int block, Thread& scratch);
  void pack_mla_block(const UnitCall& call, const KeyUnit& unit, int block, int thread);
  void attend_item(const UnitCall& call, const QueryItem& item, Thread& scratch);

  void run_absorbed(const MlaArgs& args);
  void absorb_queries(const MlaArgs& args, int head, int thread);
  void attend_absorbed(const MlaArgs& args, int index, Part heads, Thread& scratch);
  void expand_values(const MlaArgs& args, int head, int thread);

  void pack_index_keys(const IndexerArgs& args, const Sequence& sequence, int keys);
  void index_row(const IndexerArgs& args, int row, int position, Thread& scratch);

  Team& team_;
  const KernelTable& kernels_;
  Arena scratch_;
  std::vector<Thread> threads_;
  Arena gemm_memory_;
  std::vector<float*> gemm_scratch_;  // [threads] for kGemmRows rows each

  float* slots_ = nullptr;  // [max_expert_rows, hidden] weighted outputs of expert rows
  float* acts_ =
      nullptr;  // [blocks, kRowBlock, intermediate] when few blocks are split over columns
  int64_t act_ld_ = 0;
  int64_t x_ld_ = 0;
  float* fp8_x_ = nullptr;  // [kFp8RowsAtOnce, fp8_width_] rows rounded to FP8
  int fp8_width_ = 0;
  Int8Buffer int8_;  // rows of a chunk of linear(), or of the blocks that are split over columns
  int max_expert_rows_ = 0;
  std::vector<RowBlock> blocks_;

  int64_t row_width_ = 0;  // floats of a row in Thread::rows
  float* keys_ = nullptr;  // [key_capacity_] blocks of the units of a chunk
  int64_t key_capacity_ = 0;
  int64_t keys_used_ = 0;
  std::vector<KeyUnit> units_;
  std::vector<QueryItem> queries_;

  float* absorbed_ = nullptr;  // [absorbed_limit_, heads, row_width_] q in latent space
  float* contexts_ = nullptr;  // [absorbed_limit_, heads, row_width_] Σ p·c
  int absorbed_limit_ = 0;
  std::vector<AbsorbedRow> absorbed_rows_;
};

constexpr int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Bytes of one packed panel.
inline int64_t panel_bytes(const Matrix& w) {
  if (w.dtype == DType::i8) return static_cast<int64_t>(w.bytes) / ((w.n + kPanel - 1) / kPanel);
  return w.dtype == DType::bf16 ? round_up(w.k, 2) * kPanel * 2 : int64_t{w.k} * kPanel * 4;
}
// A GEMM over panels [panels.begin, panels.end) of w; the caller adds y, ldy, n and mode.
GemmArgs panel_gemm(const Matrix& w, Part panels, const float* x, int64_t ldx, int rows);

template <typename Fn>
void OpsCpu::for_rows(int n, int64_t elements, Fn&& fn) {
  const int grain =
      static_cast<int>(std::max<int64_t>(1, kRowsGrain / std::max<int64_t>(elements, 1)));
  team_.parallel_for((n + grain - 1) / grain, [&](int item, int) {
    const int end = std::min(n, (item + 1) * grain);
    for (int row = item * grain; row < end; ++row) fn(row);
  });
}

}  // namespace asap
