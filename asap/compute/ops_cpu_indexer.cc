// The DSA lightning indexer: scores of all visible keys of a row, then its topk largest, in
// ascending order.
#include <algorithm>
#include <bit>
#include <functional>

#include "asap/base/check.h"
#include "asap/compute/ops_cpu.h"

namespace asap {

namespace {

// A number that orders as the float does (zeros equal, NaN above all): selection must not depend on
// NaN comparisons.
uint32_t order_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Positions of the topk largest of n > topk scores, ties to the lower position, ascending. `order`
// is scratch.
void select_top(const float* scores, int n, int topk, uint32_t* order, int32_t* out) {
  for (int i = 0; i < n; ++i) order[i] = order_of(scores[i]);
  std::nth_element(order, order + topk - 1, order + n, std::greater<>());
  const uint32_t least = order[topk - 1];
  int ties = topk;  // how many of the scores equal to `least` are in
  for (int i = 0; i < n; ++i) ties -= order[i] > least;
  for (int i = 0; i < n; ++i) {
    const uint32_t value = order_of(scores[i]);
    if (value < least) continue;
    if (value == least && ties-- <= 0) continue;
    *out++ = i;
  }
}

}  // namespace

// keys_ = K panels of positions [0, keys), per block as AttendTile::Keys has them.
void OpsCpu::pack_index_keys(const IndexerArgs& args, const Sequence& sequence, int keys) {
  const int64_t dim4 = round_up(args.dim, 4);
  const int blocks = (keys + kKeyBlock - 1) / kKeyBlock;
  CHECK(blocks * kKeyBlock * dim4 <= key_capacity_, "context of {}: reserve() was for less", keys);
  team_.parallel_for(blocks, [&](int block, int thread) {
    float* rows = threads_[static_cast<size_t>(thread)].rows;
    const int first = block * kKeyBlock;
    const int count = std::min(kKeyBlock, keys - first);
    const int held = static_cast<int>(round_up(count, kPanel));
    std::fill_n(rows, held * dim4, 0.0f);
    widen_rows(args.keys, sequence.blocks, first, count, 0, args.dim, rows, dim4);
    transpose_keys(rows, dim4, held, dim4, keys_ + first * dim4);
  });
}

void OpsCpu::index_row(const IndexerArgs& args, int row, int position, Thread& scratch) {
  const int64_t dim4 = round_up(args.dim, 4);
  for (int first = 0; first <= position; first += kKeyBlock) {
    GemmArgs g;
    g.x = args.u + int64_t{row} * args.heads * args.dim;
    g.ldx = args.dim;
    g.rows = args.heads;
    g.k = args.dim;
    g.w = keys_ + first * dim4;
    g.ldw = kernels_.tile_columns;
    g.tile_floats = dim4 * kernels_.tile_columns;
    g.panel_bytes = kPanel * dim4 * static_cast<int64_t>(sizeof(float));
    g.y = scratch.products;
    g.ldy = kKeyBlock;
    g.n = static_cast<int>(round_up(std::min(kKeyBlock, position + 1 - first), kPanel));
    kernels_.gemm(g);
    kernels_.relu_sum(scratch.products, args.w + int64_t{row} * args.heads, args.heads,
                      scratch.scores + first);
  }
  select_top(scratch.scores, position + 1, args.topk, scratch.order,
             args.selected + int64_t{row} * args.topk);
}

void OpsCpu::indexer(const IndexerArgs& args) {
  for (const Sequence& sequence : args.sequences) {
    const int begin = std::max(args.begin, sequence.row) - sequence.row;
    const int end = std::min(args.end, sequence.row + sequence.n) - sequence.row;
    const int shift = sequence.row - args.begin;  // from rows of the sequence to rows of the call
    // Rows that see no more than topk keys select them all.
    const int scored = std::clamp(args.topk - sequence.past, begin, std::max(begin, end));
    for (int i = begin; i < std::min(scored, end); ++i) {
      int32_t* out = args.selected + int64_t{i + shift} * args.topk;
      const int seen = sequence.past + i + 1;
      for (int key = 0; key < args.topk; ++key) out[key] = key < seen ? key : -1;
    }
    if (scored >= end) continue;
    pack_index_keys(args, sequence, sequence.past + end);
    team_.parallel_for(end - scored, [&](int item, int thread) {
      const int i = end - 1 - item;  // longest first
      index_row(args, i + shift, sequence.past + i, threads_[static_cast<size_t>(thread)]);
    });
  }
}

}  // namespace asap
