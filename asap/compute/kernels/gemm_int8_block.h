// The int8 GEMM of many rows, in blocks of k: gemm_block.h with int32 sums. The first tile of rows
// leaves the columns of a tile in L1 as dot_into() wants them (pairs: widened to int16), so the
// others do nothing but load and multiply. Rows are read where they are: they are a half or a
// quarter as long as float32 ones, and padded apart. For kernels.cc only.
#pragma once

#include "asap/compute/kernels/gemm_block.h"
#include "asap/compute/kernels/gemm_int8.h"

namespace asap {
namespace {

// Groups of k of a block; its columns are as many bytes as those of a float32 block.
constexpr int kInt8Groups = kBlockK;

struct Int8BlockTile {
  const char* x;
  int64_t ldx;  // bytes
  int groups;
  const char* w;      // the tile's first column
  const char* ahead;  // next block of weights
  VI* b;              // [groups][kBlockVectors]
  int32_t* sums;
  const int32_t* x_sum;  // of the tile's rows
  bool resume;           // sums hold those of the blocks before
};

template <int MR>
ASAP_INLINE void int8_step(VI (&sum)[MR][kBlockVectors], const char* x, int64_t ldx,
                           const VI (&b)[kBlockVectors]) {
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
    const VI a = VI{} + *reinterpret_cast<const Word*>(x + m * ldx);
#pragma GCC unroll 2
    for (int v = 0; v < kBlockVectors; ++v) dot_into(sum[m][v], a, b[v]);
  }
}

template <int MR, bool STORED>
ASAP_INLINE void int8_one(VI (&sum)[MR][kBlockVectors], const Int8BlockTile& t, int i) {
  VI b[kBlockVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kBlockVectors; ++v) {
    if (STORED) {
      b[v] = int8_weights(t.w + i * kGroupBytes + kInt8Form.group * v * kWidth);
      t.b[i * kBlockVectors + v] = b[v];
    } else {
      b[v] = t.b[i * kBlockVectors + v];
    }
  }
  int8_step<MR>(sum, t.x + 4 * i, t.ldx, b);
}

template <int MR, bool STORED>
__attribute__((noinline)) void int8_block_tile(const Int8BlockTile& t) {
  constexpr int kAhead = kGroupBytes * kUnroll / kBlockPasses;  // bytes per kUnroll groups
  VI sum[MR][kBlockVectors];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kBlockVectors; ++v) {
      sum[m][v] = VI{};
      if (t.resume) {
        sum[m][v] = *reinterpret_cast<const VIm*>(t.sums + m * kSumsLd + v * kWidth);
      } else if (kInt8Form.offset != 0) {
        sum[m][v] -= kInt8Form.offset * t.x_sum[m];
      }
    }
  }
  const char* ahead = t.ahead;
  int i = 0;
  for (; i + kUnroll <= t.groups; i += kUnroll) {
    if (STORED) {
#pragma GCC unroll 4
      for (int line = 0; line < kAhead; line += 64) __builtin_prefetch(ahead + line, 0, 2);
      ahead += kAhead;
    }
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) int8_one<MR, STORED>(sum, t, i + u);
  }
  for (; i < t.groups; ++i) int8_one<MR, STORED>(sum, t, i);
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kBlockVectors; ++v) {
      *reinterpret_cast<VIm*>(t.sums + m * kSumsLd + v * kWidth) = sum[m][v];
    }
  }
}

using Int8BlockFn = void (*)(const Int8BlockTile&);

// Tiles of MR = 1..kTileRows rows.
template <bool STORED>
struct Int8BlockTiles {
  Int8BlockFn fn[kTileRows + 1];
  template <int MR>
  constexpr void fill() {
    fn[MR] = &int8_block_tile<MR, STORED>;
    if constexpr (MR > 1) fill<MR - 1>();
  }
  constexpr Int8BlockTiles() : fn{} { fill<kTileRows>(); }
};

template <bool STORED>
constexpr Int8BlockTiles<STORED> kInt8BlockTiles;

// All tiles of one panel and one block of k; t.w and t.ahead: the panel's, and the next one's.
ASAP_INLINE void int8_block_panel(Int8BlockTile t, const Int8Rows& x, int rows, int first_group,
                                  int32_t* sums) {
  const int tiles = (rows + kTileRows - 1) / kTileRows;
  const char* w = t.w;
  const char* ahead = t.ahead;
  for (int pass = 0; pass < kBlockPasses; ++pass) {
    t.w = w + pass * kBlockColumns * kInt8Form.group;
    t.ahead = ahead + pass * t.groups * kGroupBytes / kBlockPasses;
    for (int i = 0; i < tiles; ++i) {
      const int row = rows * i / tiles;
      const int count = rows * (i + 1) / tiles - row;
      t.x = static_cast<const char*>(x.q) + row * x.ld + int64_t{first_group} * 4;
      t.x_sum = x.sum + row;
      t.sums = sums + row * kSumsLd + pass * kBlockColumns;
      if (i == 0) {
        kInt8BlockTiles<true>.fn[count](t);
      } else {
        kInt8BlockTiles<false>.fn[count](t);
      }
    }
  }
}

// Panels [first, first + count) of g, at most kGemmPanels.
void int8_block_group(const GemmArgs& g, const Int8Rows& x, int first, int count) {
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;  // of y, per panel
  const int groups = (g.k + kInt8Form.group - 1) / kInt8Form.group;
  const char* w = static_cast<const char*>(g.w) + first * g.panel_bytes;
  float* sums = g.scratch + kGemmWeightFloats;
  Int8BlockTile t{};
  t.ldx = x.ld;
  t.b = reinterpret_cast<VI*>(g.scratch);
  for (int group = 0; group < groups; group += kInt8Groups) {
    t.groups = groups - group < kInt8Groups ? groups - group : kInt8Groups;
    t.resume = group > 0;
    const int64_t offset = int64_t{group} * kGroupBytes;
    for (int i = 0; i < count; ++i) {
      t.w = w + i * g.panel_bytes + offset;
      // The last panel brings the next block of the first one. Past the end a prefetch is void.
      t.ahead = i + 1 < count ? t.w + g.panel_bytes : w + offset + kInt8Groups * kGroupBytes;
      float* panel_sums = sums + i * kPanel;
      int8_block_panel(t, x, g.rows, group, reinterpret_cast<int32_t*>(panel_sums));
      if (group + t.groups < groups) continue;
      const auto* w_scale =
          reinterpret_cast<const float*>(w + i * g.panel_bytes + int64_t{groups} * kGroupBytes);
      const int column = (first + i) * columns;
      const int left = g.n - column;
      finish_int8(g, x, w_scale, panel_sums,
                  {panel_sums, kSumsLd, 0, g.rows,
                   g.bias == nullptr ? nullptr : g.bias + (first + i) * kPanel, g.y + column,
                   left < columns ? left : columns});
    }
  }
}

void int8_block_panels(const GemmArgs& g, const Int8Rows& x) {
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;
  const int panels = (g.n + columns - 1) / columns;
  const int groups = (panels + kGemmPanels - 1) / kGemmPanels;
  for (int i = 0; i < groups; ++i) {
    const int first = panels * i / groups;
    int8_block_group(g, x, first, panels * (i + 1) / groups - first);
  }
}

void gemm_int8(const GemmArgs& g, const Int8Rows& x) {
  if (g.mode == GemmMode::accumulate) __builtin_trap();  // attention's; it has no int8 form
  if (g.scratch != nullptr && g.rows > kTileRows) {
    int8_block_panels(g, x);
  } else {
    int8_panels(g, x);
  }
}

}  // namespace
}  // namespace asap
