// Absorbed MLA: rows attend over the cached latents themselves. For generated rows it saves
// expanding the whole context for one token; for DSA rows the listed keys are gathered once for all
// heads. Three loops over at most absorbed_limit_ rows: q into latent space (per head), attention
// (per row and some heads), values out of latent space (per head).
#include <algorithm>
#include <numbers>

#include "asap/compute/ops_cpu.h"

namespace asap {

namespace {

// Keys of a step: latents are wide, and both forms of a block are to fit L2.
constexpr int kAbsorbedKeys = 64;
constexpr int kMinHeads = 16;  // heads of one item: fewer would only gather keys again

}  // namespace

// absorbed_[i][head] = scale·log2(e)·[q_nope·k_up ; q_rope], for all rows of the chunk.
void OpsCpu::absorb_queries(const MlaArgs& args, int head, int thread) {
  Thread& scratch = threads_[static_cast<size_t>(thread)];
  const int heads = static_cast<int>(args.heads.size());
  const int width = args.nope + args.rope;
  const int rows = static_cast<int>(absorbed_rows_.size());
  const float scale = args.scale * std::numbers::log2e_v<float>;
  const int64_t ld = heads * row_width_;
  float* out = absorbed_ + head * row_width_;
  float* q = scratch.key_rows;
  for (int i = 0; i < rows; ++i) {
    const int64_t row = absorbed_rows_[static_cast<size_t>(i)].row;
    kernels_.scale(args.q + (row * heads + head) * width, scale, width, q + i * row_width_);
    std::copy_n(q + i * row_width_ + args.nope, args.rope, out + i * ld + args.latent);
  }
  const Matrix& w = args.heads[static_cast<size_t>(head)].q_absorb;
  GemmArgs g = panel_gemm(w, {0, 0}, q, row_width_, rows);
  g.y = out;
  g.ldy = ld;
  g.n = args.latent;
  g.scratch = gemm_scratch(thread);
  multiply_stored(g);
}

// The row's keys are its list if it sees more than topk, else all positions up to its own.
void OpsCpu::attend_absorbed(const MlaArgs& args, int index, Part heads, Thread& scratch) {
  const AbsorbedRow& row = absorbed_rows_[static_cast<size_t>(index)];
  const bool listed = args.selected != nullptr && row.position + 1 > args.topk;
  const int32_t* list = listed ? args.selected + int64_t{row.row} * args.topk : nullptr;
  const int keys =
      listed ? static_cast<int>(std::find(list, list + args.topk, -1) - list) : row.position + 1;
  const int width = args.latent + args.rope;
  const int64_t d4 = round_up(width, 4);
  const int64_t at = (int64_t{index} * static_cast<int>(args.heads.size()) + heads.begin);
  AttendTile& tile = scratch.tile;
  tile.begin(heads.size(), args.latent);
  std::fill_n(tile.limit, tile.rows, keys);
  for (int first = 0; first < keys; first += kAbsorbedKeys) {
    const int count = std::min(kAbsorbedKeys, keys - first);
    std::fill_n(scratch.rows, kAbsorbedKeys * row_width_, 0.0f);
    for (int i = 0; i < count && listed; ++i) {
      widen_rows(args.kv, row.sequence->blocks, list[first + i], 1, 0, width,
                 scratch.rows + i * row_width_, row_width_);
    }
    if (!listed) {
      widen_rows(args.kv, row.sequence->blocks, first, count, 0, width, scratch.rows, row_width_);
    }
    transpose_keys(scratch.rows, row_width_, kAbsorbedKeys, d4, scratch.panels);
    tile.block(kernels_, first, absorbed_ + at * row_width_, row_width_,
               {scratch.panels, width, scratch.rows, row_width_, kAbsorbedKeys});
  }
  tile.finish(kernels_, 0, tile.rows, args.latent, contexts_ + at * row_width_, row_width_);
}

// out[row][head] = v_up·context.
void OpsCpu::expand_values(const MlaArgs& args, int head, int thread) {
  Thread& scratch = threads_[static_cast<size_t>(thread)];
  const int heads = static_cast<int>(args.heads.size());
  const int rows = static_cast<int>(absorbed_rows_.size());
  GemmArgs g = panel_gemm(args.heads[static_cast<size_t>(head)].v_up, {0, 0},
                          contexts_ + head * row_width_, heads * row_width_, rows);
  g.y = scratch.key_rows;
  g.ldy = row_width_;
  g.n = args.v;
  g.scratch = gemm_scratch(thread);
  multiply_stored(g);
  for (int i = 0; i < rows; ++i) {
    const int64_t row = absorbed_rows_[static_cast<size_t>(i)].row;
    std::copy_n(scratch.key_rows + i * row_width_, args.v,
                args.out + (row * heads + head) * args.v);
  }
}

void OpsCpu::run_absorbed(const MlaArgs& args) {
  const int rows = static_cast<int>(absorbed_rows_.size());
  if (rows == 0) return;
  const int heads = static_cast<int>(args.heads.size());
  const auto scratch_of = [&](int i) -> Thread& { return threads_[static_cast<size_t>(i)]; };
  team_.parallel_for(heads, [&](int head, int thread) { absorb_queries(args, head, thread); });
  const int least = (heads + kQueryRows - 1) / kQueryRows;
  const int most = std::max(least, heads / kMinHeads);
  const int parts = std::clamp((team_.threads() + rows - 1) / rows, least, most);
  team_.parallel_for(rows * parts, [&](int item, int thread) {
    attend_absorbed(args, item / parts, part_of(heads, parts, item % parts), scratch_of(thread));
  });
  team_.parallel_for(heads, [&](int head, int thread) { expand_values(args, head, thread); });
  absorbed_rows_.clear();
}

}  // namespace asap
