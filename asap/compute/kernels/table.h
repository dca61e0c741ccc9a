// KernelTable: the border between the CPU ops and code compiled for one ISA. kernels.cc is compiled
// once per ISA and gives one table each; the ops pick a table once at start.
//
// Code compiled with ISA flags must not leak into the rest of the program: if an inline function of
// a shared header were emitted there, the linker might keep that copy and the program would die on
// an older machine. So this header and all that kernels.cc includes hold plain structs only,
// everything else of a kernel is static, and kernels do not allocate, lock, throw or call the
// library.
//
// BATCH INVARIANCE rests on these functions: a value of an output row is one fixed sequence of
// operations on that row's inputs, whatever the number of rows, their place in a tile, or the
// column split.
#pragma once

#include <cstdint>

namespace asap {

inline constexpr int kPanel = 32;      // columns of a packed panel
inline constexpr int kKeyBlock = 256;  // keys of one attention step
inline constexpr int kFmaChains = 12;  // of KernelTable::fma_loop
// Memory of KernelTable::gemm for blocks of k: steps of a block and panels of a group, at most.
inline constexpr int kGemmBlockK = 256;
inline constexpr int kGemmPanels = 16;
inline constexpr int64_t kGemmWeightFloats = 256 * 16;
constexpr int64_t gemm_scratch_floats(int64_t rows) {
  return kGemmWeightFloats + rows * (kGemmBlockK + kGemmPanels * kPanel + 32);
}
// Rows whose largest magnitude is below this are taken for zero when they are quantised: 127
// divided by it is still finite.
inline constexpr float kInt8Least = 1e-35f;

enum class GemmMode : int {
  store,       // y  = x·W + bias
  scale,       // y  = (x·W + bias)·scale[row]
  accumulate,  // y  = y·scale[row] + x·W; n must be a multiple of kPanel
  silu,  // y  = silu(x·W_gate + bias)·(x·W_up + bias); a panel is 16 gate and 16 up columns and
         // gives 16 columns of y
  clamped_glu,  // the same columns: g·sigmoid(alpha·g)·(u + 1), g and u clamped (model/spec.h)
};

// Columns [0, n) of y = x·W for `rows` rows. W consists of panels of kPanel columns, n padded with
// zeros: bf16 [k/2][32][2] (pairs of consecutive k, the last padded with zero), f32 [k] rows of 32
// that are `ldw` apart.
struct GemmArgs {
  const float* x = nullptr;  // [rows, k]
  int64_t ldx = 0;
  int rows = 0;
  int k = 0;
  const void* w = nullptr;  // first panel
  bool bf16 = false;
  int64_t ldw = kPanel;  // f32 only: elements between two k
  // f32 only, modes store and accumulate: the columns of a tile are packed by themselves, and this
  // is the distance to those of the next tile, elements. 0: a panel's columns follow each other.
  int64_t tile_floats = 0;
  int64_t panel_bytes = 0;  // from one panel to the next
  bool prefetch = false;    // bring panel p + 1 near while working on p: W comes from memory
  float* y = nullptr;       // [rows, n]
  int64_t ldy = 0;
  int n = 0;                     // columns of y
  const float* scale = nullptr;  // [rows]
  const float* bias = nullptr;   // in the order of the packed columns, whole panels; or null
  float alpha = 0, limit = 0;    // of clamped_glu
  float* scratch = nullptr;      // gemm_scratch_floats(rows), or null: k is not cut
  GemmMode mode = GemmMode::store;
};

// How a table wants int8 operands. A panel is weights [k/group][kPanel][group], bytes that are the
// int8 value plus `offset`, k padded with zero weights; then the float32 scales of its columns.
// Elements of quantised rows take x_bytes.
struct Int8Form {
  int group = 0;
  int x_bytes = 0;
  int offset = 0;
};

// Rows quantised to int8: x ≈ scale·q with q in [-127, 127].
struct Int8Rows {
  const void* q = nullptr;       // [rows], padded with zeros to a multiple of 16 elements
  int64_t ld = 0;                // bytes between two rows
  const float* scale = nullptr;  // [rows]
  const int32_t* sum = nullptr;  // [rows] Σ q, where the form has an offset
};

// One key block of a softmax that runs over blocks: `rows` rows of scores in units of log2.
struct SoftmaxArgs {
  float* s = nullptr;  // [rows, kKeyBlock]: scores in, exp2(score - max) out
  int rows = 0;
  int begin = 0, end = kKeyBlock;    // keys that count for any row; multiples of a vector
  const int32_t* visible = nullptr;  // [rows]: keys [0, visible) count, the others give 0
  const int32_t* hidden = nullptr;   // [rows]: of those, keys [0, hidden) do not; or null
  float* max = nullptr;              // [rows] running maximum
  float* sum = nullptr;              // [rows] running sum
  float* alpha = nullptr;  // [rows] out: factor for what was accumulated before this block
};

// What a table for int8 replaces in another one.
struct Int8Kernels {
  Int8Form form;
  void (*gemm)(const GemmArgs& g, const Int8Rows& x);
  void (*quantize)(const float* x, int k, void* q, float* scale, int32_t* sum);
};

struct KernelTable {
  const char* isa;
  int width;         // floats of a vector
  int tile_columns;  // columns of a GEMM tile, a divisor of kPanel
  // The ceiling that GEMM is measured against: kFmaChains independent chains of `steps` vector
  // multiply-adds in registers.
  float (*fma_loop)(int64_t steps);
  void (*gemm)(const GemmArgs&);
  // Products with stored bf16 weights; g.scratch is never null. As `gemm`, or with the rows rounded
  // to bf16.
  void (*gemm_bf16)(const GemmArgs&);
  Int8Form int8;
  // The same with int8 panels and rows: y = (Σ q·w)·(x scale · w scale), the sum exact. g.x, ldx,
  // bf16 and ldw mean nothing; no mode `accumulate`.
  void (*gemm_int8)(const GemmArgs& g, const Int8Rows& x);
  // One row: scale = max|x| / 127, q = x·(127 / max|x|) rounded to nearest, ties to even. A row
  // that is not finite gets the scale NaN.
  void (*quantize_int8)(const float* x, int k, void* q, float* scale, int32_t* sum);
  void (*softmax)(const SoftmaxArgs&);
  // y[i] = x[i]·scale[i] for rows of `width` elements, negative zeros made positive.
  void (*scale_rows)(const float* x, int64_t ldx, const float* scale, int rows, int width, float* y,
                     int64_t ldy);
  // y = x·scale.
  void (*scale)(const float* x, float scale, int64_t count, float* y);
  // Key-major rows to a K panel packed by tile: for c = tile_columns,
  // panel[(j / c)·width·c + i·c + j % c] = x[j·ldx + i] for i < width, j < 32; width a multiple
  // of 4.
  void (*transpose)(const float* x, int64_t ldx, int width, float* panel);
  // Rows to panels packed by tile, value-major: out[(j / c)·ld·c + i·c + j % c] = x[i·ldx + j] for
  // i < rows <= ld, j < width; width a multiple of kPanel.
  void (*pack_columns)(const float* x, int64_t ldx, int rows, int width, float* out, int64_t ld);
  // scores[j] = Σ_h w[h]·max(s[h·kKeyBlock + j], 0), h ascending, j < kKeyBlock.
  void (*relu_sum)(const float* s, const float* w, int heads, float* scores);
  void (*rms_norm)(const float* x, int width, const float* w, float eps, float* y);
  void (*layer_norm)(const float* x, int width, const float* w, const float* b, float eps,
                     float* y);
  // One row and head: rotates `dim` elements in place; angles [dim/2][2].
  void (*rope)(float* x, int dim, bool interleaved, const float* angles);
  void (*narrow)(const float* x, int64_t count, uint16_t* y);  // to bf16, nearest even
  void (*widen)(const uint16_t* x, int64_t count, float* y);
  void (*add)(const float* x, int64_t count, float* y);  // y += x
  void (*add_bf16)(const uint16_t* x, int64_t count, float* y);
};

// What the objects give; kernels/isa.h makes tables of them.
extern const KernelTable kernels_scalar;
#if defined(__x86_64__)
extern const KernelTable kernels_avx2;
extern const KernelTable kernels_avx512;
extern const Int8Kernels int8_avx512vnni;
void gemm_avx512bf16(const GemmArgs& g);   // vdpbf16ps
float dot_loop_avx512bf16(int64_t steps);  // as KernelTable::fma_loop, of vdpbf16ps
void gemm_amx(const GemmArgs& g);          // tdpbf16ps
extern const Int8Kernels int8_amx;         // tdpbssd
#endif

}  // namespace asap
