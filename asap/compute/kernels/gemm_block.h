// GEMM of many rows, in blocks of k that fit the caches.
//
// A block is kBlockK steps of k for some panels. The rows' part of it is copied together once and
// stays in L2 while the panels pass by; the columns of a tile come from memory once, in the first
// tile of rows, which leaves them behind as float32 in L1 for all others. So the inner loop of the
// others is two loads of W and MR of x for 2·MR multiply-adds, and nothing of it waits for memory.
// Sums wait in scratch memory between blocks; the epilogue reads them there. For kernels.cc only.
#pragma once

#include "asap/compute/kernels/gemm_tile.h"
#include "asap/compute/kernels/table.h"
#include "asap/compute/kernels/vec.h"

namespace asap {
namespace {

// Vectors and columns of a tile.
constexpr int kBlockVectors = 2;
constexpr int kBlockColumns = kTileColumns;
constexpr int kBlockPasses = kPanel / kBlockColumns;
// The widened columns of a tile take half of L1.
constexpr int kBlockK = kWidth == 16 ? 128 : 256;
// Up to this many rows are read where they are: to copy them is not worth it.
constexpr int kRowsInPlace = 48;
// Row lengths in scratch, padded so that rows do not fall into the same cache sets.
constexpr int64_t kBlockLdx = kGemmBlockK + 16;
constexpr int64_t kSumsLd = kGemmPanels * kPanel + 16;
static_assert(kBlockK <= kGemmBlockK && kBlockK % 2 == 0);
static_assert(kGemmWeightFloats >= kBlockK * kBlockColumns);

// Where the columns of a tile come from: stored weights, which the tile leaves in `b` as float32,
// or `b` itself.
enum class From { bf16, f32, block };

struct BlockTile {
  const float* x;
  int64_t ldx;
  int k;              // steps of this block
  const char* w;      // the tile's first column
  int64_t ldw;        // bytes between two k (f32) or two pairs (bf16)
  const char* ahead;  // next block of weights, or null
  float* b;           // [k][kBlockColumns]
  float* sums;
  bool resume;  // sums hold those of the blocks before
};

// Lines of the next block that a tile brings near for kUnroll steps of its own.
template <From FROM>
ASAP_INLINE const char* prefetch_block(const char* ahead) {
  constexpr int kBytes = (FROM == From::f32 ? 4 : 2) * kPanel * kUnroll / kBlockPasses;
#pragma GCC unroll 8
  for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
  return ahead + kBytes;
}

// One k; row(v) loads the columns, and b keeps them.
template <int MR, typename Row>
ASAP_INLINE void step_and_keep(V (&acc)[MR][kBlockVectors], const float* x, int64_t ldx, float* b,
                               const Row& row) {
  step<MR, kBlockVectors>(acc, x, ldx, [&](int v) ASAP_INLINE_LAMBDA {
    const V w = row(v);
    store(b + v * kWidth, w);
    return w;
  });
}

// One pair of k; `both`: not the last k of an odd number.
template <int MR>
ASAP_INLINE void pair_and_keep(V (&acc)[MR][kBlockVectors], const float* x, int64_t ldx,
                               const char* w, float* b, bool both) {
  step_and_keep<MR>(acc, x, ldx, b,
                    [&](int v) ASAP_INLINE_LAMBDA { return even_at(w + 4 * kWidth * v); });
  if (!both) return;
  step_and_keep<MR>(acc, x + 1, ldx, b + kBlockColumns,
                    [&](int v) ASAP_INLINE_LAMBDA { return odd_at(w + 4 * kWidth * v); });
}

template <int MR>
ASAP_INLINE void block_bf16(V (&acc)[MR][kBlockVectors], const BlockTile& t) {
  const float* x = t.x;
  const char* w = t.w;
  const char* ahead = t.ahead;
  float* b = t.b;
  int k = 0;
  for (; k + kUnroll <= t.k; k += kUnroll) {
    ahead = prefetch_block<From::bf16>(ahead);
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; u += 2, x += 2, w += t.ldw, b += 2 * kBlockColumns) {
      pair_and_keep<MR>(acc, x, t.ldx, w, b, true);
    }
  }
  for (; k < t.k; k += 2, x += 2, w += t.ldw, b += 2 * kBlockColumns) {
    pair_and_keep<MR>(acc, x, t.ldx, w, b, k + 1 < t.k);
  }
}

template <int MR>
ASAP_INLINE void block_f32(V (&acc)[MR][kBlockVectors], const BlockTile& t) {
  const float* x = t.x;
  const char* w = t.w;
  const char* ahead = t.ahead;
  float* b = t.b;
  const auto one = [&]() ASAP_INLINE_LAMBDA {
    step_and_keep<MR>(acc, x, t.ldx, b, [&](int v) ASAP_INLINE_LAMBDA {
      return load(reinterpret_cast<const float*>(w) + v * kWidth);
    });
    ++x;
    w += t.ldw;
    b += kBlockColumns;
  };
  int k = 0;
  for (; k + kUnroll <= t.k; k += kUnroll) {
    ahead = prefetch_block<From::f32>(ahead);
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) one();
  }
  for (; k < t.k; ++k) one();
}

template <int MR, From FROM>
__attribute__((noinline)) void block_tile(const BlockTile& t) {
  V acc[MR][kBlockVectors];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kBlockVectors; ++v) {
      acc[m][v] = V{};
      if (t.resume) acc[m][v] = load(t.sums + m * kSumsLd + v * kWidth);
    }
  }
  if constexpr (FROM == From::bf16) {
    block_bf16<MR>(acc, t);
  } else if constexpr (FROM == From::f32) {
    block_f32<MR>(acc, t);
  } else {
    multiply_f32<MR, kBlockVectors, false>(
        acc, {t.x, t.ldx, t.k, reinterpret_cast<const char*>(t.b), kBlockColumns * 4, nullptr});
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kBlockVectors; ++v) store(t.sums + m * kSumsLd + v * kWidth, acc[m][v]);
  }
}

using BlockTileFn = void (*)(const BlockTile&);

// Tiles of MR = 1..kTileRows rows.
template <From FROM>
struct BlockTiles {
  BlockTileFn fn[kTileRows + 1];
  template <int MR>
  constexpr void fill() {
    fn[MR] = &block_tile<MR, FROM>;
    if constexpr (MR > 1) fill<MR - 1>();
  }
  constexpr BlockTiles() : fn{} { fill<kTileRows>(); }
};

template <From FROM>
constexpr BlockTiles<FROM> kBlockTiles;

// The parts of GemmArgs::scratch.
struct BlockScratch {
  float* b;     // [kBlockK][kBlockColumns]
  float* x;     // [rows][kBlockLdx]
  float* sums;  // [rows][kSumsLd]
};

ASAP_INLINE void copy_rows(const GemmArgs& g, int first, int count, float* to) {
  for (int r = 0; r < g.rows; ++r, to += kBlockLdx) {
    const float* from = g.x + r * g.ldx + first;
    int i = 0;
    for (; i + kWidth <= count; i += kWidth) store(to + i, load(from + i));
    for (; i < count; ++i) to[i] = from[i];
  }
}

// A row rounded to bf16, padded with zeros to a multiple of 32 elements: for kernels that multiply
// bf16 by bf16.
ASAP_INLINE void round_row(const float* from, int count, uint16_t* to) {
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) store_bf16(to + i, load(from + i));
  if (i < count) {
    store_bf16(to + i, load_part(from + i, count - i));
    i += kWidth;
  }
  for (; i % 32 != 0; i += kWidth) store_bf16(to + i, V{});
}

// A panel's part of y, from its sums over all of k.
ASAP_INLINE void finish_panel(const GemmArgs& g, int panel, float* sums) {
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;  // of y, per panel
  const int left = g.n - panel * columns;
  finish(g, {sums, kSumsLd, 0, g.rows, g.bias == nullptr ? nullptr : g.bias + panel * kPanel,
             g.y + panel * columns, left < columns ? left : columns});
}

// All tiles of one panel and one block of k. t.w and t.ahead: the panel's, and the next one's.
template <From FROM>
ASAP_INLINE void block_panel(BlockTile t, int rows, float* sums) {
  const int tiles = (rows + kTileRows - 1) / kTileRows;
  const float* x = t.x;
  const char* w = t.w;
  const char* ahead = t.ahead;
  for (int pass = 0; pass < kBlockPasses; ++pass) {
    t.w = w + pass * kBlockColumns * 4;
    t.ahead = ahead + int64_t{pass} * t.k * (FROM == From::f32 ? 4 : 2) * kPanel / kBlockPasses;
    for (int i = 0; i < tiles; ++i) {
      const int row = rows * i / tiles;
      const int count = rows * (i + 1) / tiles - row;
      t.x = x + row * t.ldx;
      t.sums = sums + row * kSumsLd + pass * kBlockColumns;
      if (i == 0) {
        kBlockTiles<FROM>.fn[count](t);
      } else {
        kBlockTiles<From::block>.fn[count](t);
      }
    }
  }
}

// Panels [first, first + count) of g, at most kGemmPanels.
template <bool BF16>
void block_group(const GemmArgs& g, const BlockScratch& scratch, int first, int count) {
  constexpr From kFrom = BF16 ? From::bf16 : From::f32;
  const int64_t ldw = BF16 ? kPanel * 4 : g.ldw * 4;  // of a pair, or of a k
  const char* w = static_cast<const char*>(g.w) + first * g.panel_bytes;
  for (int k = 0; k < g.k; k += kBlockK) {
    const int steps = g.k - k < kBlockK ? g.k - k : kBlockK;
    const int64_t offset = (BF16 ? k / 2 : k) * ldw;
    const int64_t next = (BF16 ? kBlockK / 2 : kBlockK) * ldw;
    BlockTile t{g.x + k, g.ldx, steps, nullptr, ldw, nullptr, scratch.b, nullptr, k > 0};
    if (g.rows > kRowsInPlace) {
      copy_rows(g, k, steps, scratch.x);
      t.x = scratch.x;
      t.ldx = kBlockLdx;
    }
    for (int i = 0; i < count; ++i) {
      t.w = w + i * g.panel_bytes + offset;
      // The last panel brings the next block of the first one. Past the end a prefetch is void.
      t.ahead = i + 1 < count ? t.w + g.panel_bytes : w + offset + next;
      block_panel<kFrom>(t, g.rows, scratch.sums + i * kPanel);
      if (k + steps >= g.k) finish_panel(g, first + i, scratch.sums + i * kPanel);
    }
  }
}

template <bool BF16>
void block_panels(const GemmArgs& g) {
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;
  BlockScratch scratch;
  scratch.b = g.scratch;
  scratch.x = scratch.b + kGemmWeightFloats;
  scratch.sums = scratch.x + g.rows * kBlockLdx;
  const int panels = (g.n + columns - 1) / columns;
  const int groups = (panels + kGemmPanels - 1) / kGemmPanels;
  for (int i = 0; i < groups; ++i) {
    const int first = panels * i / groups;
    block_group<BF16>(g, scratch, first, panels * (i + 1) / groups - first);
  }
}

}  // namespace
}  // namespace asap
