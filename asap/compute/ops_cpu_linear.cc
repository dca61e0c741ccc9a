// linear: y = x·Wᵀ, cut into row blocks and groups of panels.
#include <algorithm>

#include "asap/base/check.h"
#include "asap/compute/fp8.h"
#include "asap/compute/ops_cpu.h"

namespace asap {

namespace {

// Fewer multiplications than this are not worth waking a helper for.
constexpr int64_t kSmallWork = int64_t{1} << 19;
// Panels of an item: few enough to share the work evenly, enough to stream.
constexpr int kPanelGroup = 16;
constexpr int kItemsPerThread = 4;

}  // namespace

GemmArgs panel_gemm(const Matrix& w, Part panels, const float* x, int64_t ldx, int rows) {
  GemmArgs g;
  g.x = x;
  g.ldx = ldx;
  g.rows = rows;
  g.k = w.k;
  g.bf16 = w.dtype == DType::bf16;
  g.panel_bytes = panel_bytes(w);
  g.w = w.data + panels.begin * g.panel_bytes;
  g.bias = w.bias == nullptr ? nullptr : w.bias + panels.begin * kPanel;
  g.prefetch = true;
  return g;
}

void OpsCpu::linear(const Matrix& w, const float* x, int n, int ldx, float* y, int ldy) {
  CHECK(ldx >= w.k && ldy >= w.n, "rows of {} and {} for a matrix {}x{}", ldx, ldy, w.n, w.k);
  if (w.fp8_rows != Fp8Rows::none) return linear_fp8(w, x, n, ldx, y, ldy);
  if (w.dtype != DType::i8) return linear_rows(w, {x, ldx}, n, y, ldy);
  CHECK(int8_.rows > 0, "an int8 matrix before reserve()");
  for (int row = 0; row < n; row += int8_.rows) {
    const int rows = std::min(int8_.rows, n - row);
    RowView chunk{x + int64_t{row} * ldx, ldx};
    quantize_rows(chunk, rows, w.k);
    chunk.int8 = int8_rows(int8_, 0, w.k);
    linear_rows(w, chunk, rows, y + int64_t{row} * ldy, ldy);
  }
}

// Rounds a chunk of rows, then multiplies it.
void OpsCpu::linear_fp8(const Matrix& w, const float* x, int n, int ldx, float* y, int ldy) {
  CHECK(w.k <= fp8_width_, "rows of {} in FP8: reserve() was for {}", w.k, fp8_width_);
  for (int row = 0; row < n; row += kFp8RowsAtOnce) {
    const int rows = std::min(kFp8RowsAtOnce, n - row);
    for_rows(rows, w.k, [&](int i) {
      float* rounded = fp8_x_ + int64_t{i} * w.k;
      std::copy_n(x + int64_t{row + i} * ldx, w.k, rounded);
      round_rows(w, rounded, 1, w.k);
    });
    linear_rows(w, {fp8_x_, w.k}, rows, y + int64_t{row} * ldy, ldy);
  }
}

void OpsCpu::linear_rows(const Matrix& w, const RowView& x, int n, float* y, int ldy) {
  if (n == 0) return;
  const int panels = (w.n + kPanel - 1) / kPanel;
  const bool small = int64_t{n} * w.n * w.k < kSmallWork;
  const int row_blocks = (n + kRowBlock - 1) / kRowBlock;
  const int wanted = small ? 1 : (kItemsPerThread * team_.threads() + row_blocks - 1) / row_blocks;
  const int coarse = (panels + kPanelGroup - 1) / kPanelGroup;
  const int groups = small ? 1 : std::min(panels, std::max(coarse, wanted));
  // A group's row blocks follow each other: its panels are read from memory once.
  team_.parallel_for(groups * row_blocks, [&](int item, int thread) {
    const Part group = part_of(panels, groups, item / row_blocks);
    const Part rows = part_of(n, row_blocks, item % row_blocks);
    const int column = group.begin * kPanel;
    const RowView in = x.from(rows.begin);
    GemmArgs g = panel_gemm(w, group, in.x, in.ld, rows.size());
    g.y = y + int64_t{rows.begin} * ldy + column;
    g.ldy = ldy;
    g.n = std::min(w.n, group.end * kPanel) - column;
    g.scratch = gemm_scratch(thread);
    multiply(g, w, in);
  });
}

}  // namespace asap
