// Products with stored bf16 weights by vdpbf16ps: the rows are rounded to bf16, and an instruction
// takes a pair of k. Right for cores that do two of its products in the time of one float32
// multiply-add (kernels/isa.h measures that); the sums differ from the other tables'.
//
// Blocks of k as in gemm_block.h, but weights need no widening, so a tile spans a whole panel and
// reads it in L2 or L1. Every output element is one chain over the pairs in ascending k, whatever
// the rows: sums that wait in memory between two blocks lose nothing.
#include "asap/compute/kernels/gemm_block.h"
#include "asap/compute/kernels/table.h"
#include "asap/compute/kernels/vec.h"

namespace asap {
namespace {

constexpr int kDotK = 2 * kGemmBlockK;      // steps of a block: bf16 rows are half as long
constexpr int64_t kDotLdx = 2 * kBlockLdx;  // elements between two rows in scratch
constexpr int kPairBytes = 4 * kPanel;      // of a panel, per pair of k

struct DotTile {
  const uint16_t* x;  // [rows, kDotLdx]
  int pairs;
  const char* w;
  const char* ahead;  // next block of weights, or what is near already
  float* sums;
  bool resume;
};

ASAP_INLINE void dot_into(V& acc, V x, V w) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
}

template <int MR>
__attribute__((noinline)) void dot_tile(const DotTile& t) {
  V acc[MR][2];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
    acc[m][0] = t.resume ? load(t.sums + m * kSumsLd) : V{};
    acc[m][1] = t.resume ? load(t.sums + m * kSumsLd + kWidth) : V{};
  }
  const char* x = reinterpret_cast<const char*>(t.x);
  const char* w = t.w;
  const char* ahead = t.ahead;
  for (int i = 0; i < t.pairs; ++i, x += 4, w += kPairBytes, ahead += kPairBytes) {
    __builtin_prefetch(ahead, 0, 2);
    __builtin_prefetch(ahead + 64, 0, 2);
    const V low = as_float(load_bits(w));
    const V high = as_float(load_bits(w + 64));
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      // A pair of bf16 in each lane.
      float pair;
      __builtin_memcpy(&pair, x + m * kDotLdx * 2, sizeof(pair));
      const V a = broadcast(pair);
      dot_into(acc[m][0], a, low);
      dot_into(acc[m][1], a, high);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
    store(t.sums + m * kSumsLd, acc[m][0]);
    store(t.sums + m * kSumsLd + kWidth, acc[m][1]);
  }
}

using DotTileFn = void (*)(const DotTile&);

// Tiles of MR = 1..kTileRows rows.
struct DotTiles {
  DotTileFn fn[kTileRows + 1];
  template <int MR>
  constexpr void fill() {
    fn[MR] = &dot_tile<MR>;
    if constexpr (MR > 1) fill<MR - 1>();
  }
  constexpr DotTiles() : fn{} { fill<kTileRows>(); }
};

constexpr DotTiles kDotTiles;

// All tiles of one panel and one block of k.
void dot_panel(DotTile t, int rows) {
  const uint16_t* x = t.x;
  float* sums = t.sums;
  const int tiles = (rows + kTileRows - 1) / kTileRows;
  for (int i = 0; i < tiles; ++i) {
    const int row = rows * i / tiles;
    t.x = x + row * kDotLdx;
    t.sums = sums + row * kSumsLd;
    kDotTiles.fn[rows * (i + 1) / tiles - row](t);
    t.ahead = t.w;
  }
}

// Panels [first, first + count) of g, at most kGemmPanels.
void dot_group(const GemmArgs& g, int first, int count) {
  auto* x = reinterpret_cast<uint16_t*>(g.scratch + kGemmWeightFloats);
  float* sums = g.scratch + kGemmWeightFloats + g.rows * kBlockLdx;
  const char* w = static_cast<const char*>(g.w) + first * g.panel_bytes;
  for (int k = 0; k < g.k; k += kDotK) {
    const int steps = g.k - k < kDotK ? g.k - k : kDotK;
    const int pairs = (steps + 1) / 2;
    for (int r = 0; r < g.rows; ++r) round_row(g.x + r * g.ldx + k, steps, x + r * kDotLdx);
    const int64_t offset = int64_t{k / 2} * kPairBytes;
    for (int i = 0; i < count; ++i) {
      const char* at = w + i * g.panel_bytes + offset;
      // The last panel brings the next block of the first one. Past the end a prefetch is void.
      const char* ahead = i + 1 < count ? at + g.panel_bytes : w + offset + kDotK / 2 * kPairBytes;
      dot_panel({x, pairs, at, ahead, sums + i * kPanel, k > 0}, g.rows);
      if (k + steps >= g.k) finish_panel(g, first + i, sums + i * kPanel);
    }
  }
}

}  // namespace

void gemm_avx512bf16(const GemmArgs& g) {
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;
  const int panels = (g.n + columns - 1) / columns;
  for (int first = 0; first < panels; first += kGemmPanels) {
    dot_group(g, first, panels - first < kGemmPanels ? panels - first : kGemmPanels);
  }
}

float dot_loop_avx512bf16(int64_t steps) {
  V acc[kFmaChains] = {};
  const V ones = as_float(VU{} + 0x3F803F80u);  // pairs of 1.0
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kFmaChains; ++c) dot_into(acc[c], ones, ones);
  }
  V sum = {};
#pragma GCC unroll 16
  for (int c = 0; c < kFmaChains; ++c) sum += acc[c];
  return reduce_add(sum);
}

}  // namespace asap
