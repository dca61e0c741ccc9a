// The one GEMM of the CPU: register tiles of MR rows by NV vectors.
//
// bf16 weights are widened in registers (a shift for even k, a mask for odd k) and multiplied in
// float32, which beats the bf16 dot instructions on the cores we know (docs/performance.md). Each
// output element is the chain acc = fma(x[k], w[k], acc) for k = 0, 1, 2, ..., for every MR, NV and
// mode: sums that wait in memory between two blocks of k lose nothing.
//
// Few rows, or W in cache: a tile takes the whole of k. More rows: gemm_block.h cuts k, so that
// what a tile reads stays in L1. For kernels.cc only.
#pragma once

#include "asap/compute/kernels/table.h"
#include "asap/compute/kernels/vec.h"

namespace asap {
namespace {

// Rows of a full tile: 2·MR accumulators, two vectors of W and one of x fill the registers.
constexpr int kTileRows = kWidth == 16 ? 12 : 6;
// Vectors that make up a whole panel. Up to kWideRows rows a tile spans all of it: more independent
// chains.
constexpr int kPanelVectors = kPanel / kWidth;
constexpr int kWideRows = kWidth == 8 ? 2 : 0;

// Steps of k that a loop takes at once: its own instructions cost a tenth of a step of AVX2. More
// than two of AVX-512, and the compiler spills.
constexpr int kUnroll = kWidth == 16 ? 2 : 4;

constexpr bool is_glu(GemmMode mode) {
  return mode == GemmMode::silu || mode == GemmMode::clamped_glu;
}

struct TileArgs {
  const float* x;
  int64_t ldx;
  int k;
  const char* w;      // the tile's first column
  int64_t ldw;        // bytes between two k (f32) or two pairs (bf16)
  const char* ahead;  // next panel, for PF
};

// acc[m][v] += x[m]·W[v] for one k; row(v) loads vector v of row k of W. A tile of many vectors
// keeps the x and takes one W after the other, others keep the W.
template <int MR, int NV, typename Row>
ASAP_INLINE void step(V (&acc)[MR][NV], const float* x, int64_t ldx, const Row& row) {
  if constexpr (NV > 2) {
    V a[MR];
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) a[m] = broadcast(x[m * ldx]);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      const V b = row(v);
#pragma GCC unroll 16
      for (int m = 0; m < MR; ++m) fma_into(acc[m][v], a[m], b);
    }
  } else {
    V b[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) b[v] = row(v);
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      const V a = broadcast(x[m * ldx]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) fma_into(acc[m][v], a, b[v]);
    }
  }
}

// Brings one row of the next panel (two lines) into L2; a tile that is part of a panel brings one
// line, so that the traffic spreads over two passes.
template <int NV>
ASAP_INLINE const char* prefetch_row(const char* ahead) {
  __builtin_prefetch(ahead, 0, 2);
  if (NV == kPanelVectors) __builtin_prefetch(ahead + 64, 0, 2);
  return ahead + 128;
}

// One k of bf16 weights, even or odd.
template <int MR, int NV>
ASAP_INLINE void step_even(V (&acc)[MR][NV], const float* x, int64_t ldx, const char* w) {
  step<MR, NV>(acc, x, ldx, [&](int v) ASAP_INLINE_LAMBDA { return even_at(w + 4 * kWidth * v); });
}
template <int MR, int NV>
ASAP_INLINE void step_pair(V (&acc)[MR][NV], const float* x, int64_t ldx, const char* w) {
  step_even<MR, NV>(acc, x, ldx, w);
  step<MR, NV>(acc, x + 1, ldx,
               [&](int v) ASAP_INLINE_LAMBDA { return odd_at(w + 4 * kWidth * v); });
}

template <int MR, int NV, bool PF>
ASAP_INLINE void multiply_bf16(V (&acc)[MR][NV], const TileArgs& t) {
  const float* x = t.x;
  const char* w = t.w;
  const char* ahead = t.ahead;
  int k = 0;
  for (; k + kUnroll <= t.k; k += kUnroll) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; u += 2, x += 2, w += t.ldw) {
      if (PF) ahead = prefetch_row<NV>(ahead);
      step_pair<MR, NV>(acc, x, t.ldx, w);
    }
  }
  for (; k + 1 < t.k; k += 2, x += 2, w += t.ldw) {
    if (PF) ahead = prefetch_row<NV>(ahead);
    step_pair<MR, NV>(acc, x, t.ldx, w);
  }
  if (t.k % 2 != 0) step_even<MR, NV>(acc, x, t.ldx, w);
}

// One k of float32 weights.
template <int MR, int NV>
ASAP_INLINE void step_f32(V (&acc)[MR][NV], const float* x, int64_t ldx, const char* w) {
  step<MR, NV>(acc, x, ldx, [&](int v) ASAP_INLINE_LAMBDA {
    return load(reinterpret_cast<const float*>(w + 4 * kWidth * v));
  });
}

template <int MR, int NV, bool PF>
ASAP_INLINE void multiply_f32(V (&acc)[MR][NV], const TileArgs& t) {
  const float* x = t.x;
  const char* w = t.w;
  const char* ahead = t.ahead;
  int k = 0;
  for (; k + kUnroll <= t.k; k += kUnroll) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u, ++x, w += t.ldw) {
      if (PF) ahead = prefetch_row<NV>(ahead);
      step_f32<MR, NV>(acc, x, t.ldx, w);
    }
  }
  for (; k < t.k; ++k, ++x, w += t.ldw) {
    if (PF) ahead = prefetch_row<NV>(ahead);
    step_f32<MR, NV>(acc, x, t.ldx, w);
  }
}

template <GemmMode MODE>
ASAP_INLINE V activate(V gate, V up, const GemmArgs& g) {
  if (MODE == GemmMode::silu) return silu(gate) * up;
  const V limit = broadcast(g.limit);
  const V gated = min(gate, limit);
  const V u = max(min(up, limit), V{} - limit);
  return gated * sigmoid(gated * broadcast(g.alpha)) * (u + broadcast(1.0f));
}

// Finished sums of rows [row, row + rows) of a panel, `ld` apart, to `columns` columns of y.
struct PanelSums {
  const float* sums;
  int64_t ld;
  int row, rows;
  const float* bias;  // of the panel, or null
  float* y;           // of row 0
  int columns;
};

template <GemmMode MODE>
void finish_as(const GemmArgs& g, const PanelSums& p) {
  constexpr int kOut = is_glu(MODE) ? kPanel / 2 : kPanel;
  const float* sums = p.sums;
  float* y = p.y + p.row * g.ldy;
  for (int r = 0; r < p.rows; ++r, sums += p.ld, y += g.ldy) {
#pragma GCC unroll 8
    for (int c = 0; c < kOut; c += kWidth) {
      V out = load(sums + c);
      if (p.bias != nullptr) out += load(p.bias + c);
      if (is_glu(MODE)) {
        V up = load(sums + c + kPanel / 2);
        if (p.bias != nullptr) up += load(p.bias + c + kPanel / 2);
        out = activate<MODE>(out, up, g);
      }
      if (MODE == GemmMode::scale) out = out * broadcast(g.scale[p.row + r]);
      const int left = p.columns - c;
      if (left >= kWidth) [[likely]] {
        store(y + c, out);
      } else if (left > 0) {
        store_part(y + c, out, left);
      }
    }
  }
}

// The epilogue of every mode but `accumulate`, which has none.
__attribute__((noinline)) void finish(const GemmArgs& g, const PanelSums& p) {
  switch (g.mode) {
    case GemmMode::store:
    case GemmMode::accumulate: return finish_as<GemmMode::store>(g, p);
    case GemmMode::scale: return finish_as<GemmMode::scale>(g, p);
    case GemmMode::silu: return finish_as<GemmMode::silu>(g, p);
    case GemmMode::clamped_glu: return finish_as<GemmMode::clamped_glu>(g, p);
  }
}

// The same of int8: the sums are int32, and become floats in place first.
[[maybe_unused]] __attribute__((noinline)) void finish_int8(const GemmArgs& g, const Int8Rows& x,
                                                            const float* w_scale, float* sums,
                                                            const PanelSums& p) {
  for (int r = 0; r < p.rows; ++r) {
    float* row = sums + r * p.ld;
    const V x_scale = broadcast(x.scale[p.row + r]);
#pragma GCC unroll 8
    for (int c = 0; c < kPanel; c += kWidth) {
      const VI sum = *reinterpret_cast<const VIm*>(row + c);
      store(row + c, __builtin_convertvector(sum, V) * (x_scale * load(w_scale + c)));
    }
  }
  finish(g, p);
}

// Whole sums of a tile into y; RESUME: y·scale[row] comes first.
template <int MR, int NV, bool BF16, bool RESUME>
__attribute__((noinline)) void tile(const TileArgs& t, float* y, int64_t ldy, const float* scale) {
  V acc[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      acc[m][v] = V{};
      if (RESUME) acc[m][v] = load(y + m * ldy + v * kWidth) * broadcast(scale[m]);
    }
  }
  if constexpr (BF16) {
    multiply_bf16<MR, NV, true>(acc, t);  // stored weights come from memory
  } else {
    multiply_f32<MR, NV, false>(acc, t);  // float32 of few rows is attention's, in cache
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) store(y + m * ldy + v * kWidth, acc[m][v]);
  }
}

using TileFn = void (*)(const TileArgs&, float*, int64_t, const float*);

// Vectors per tile of `rows` rows.
constexpr int tile_vectors(int rows) {
  return rows <= kWideRows ? kPanelVectors : 2;
}

// Tiles of MR = 1..kTileRows rows.
template <bool BF16, bool RESUME>
struct Tiles {
  TileFn fn[kTileRows + 1];
  template <int MR>
  constexpr void fill() {
    fn[MR] = &tile<MR, tile_vectors(MR), BF16, RESUME>;
    if constexpr (MR > 1) fill<MR - 1>();
  }
  constexpr Tiles() : fn{} { fill<kTileRows>(); }
};

template <bool BF16, bool RESUME>
constexpr Tiles<BF16, RESUME> kTiles;

// Tiles of two vectors, whatever the rows: for columns that are packed by tile.
template <bool RESUME, int MR>
TileFn narrow_tile(int rows) {
  if constexpr (MR > 1) {
    if (rows < MR) return narrow_tile<RESUME, MR - 1>(rows);
  }
  return &tile<MR, 2, false, RESUME>;
}

template <bool BF16, bool RESUME>
TileFn tile_of(int rows, int vectors) {
  if constexpr (!BF16 && kWideRows > 0) {
    if (vectors < tile_vectors(rows)) return narrow_tile<RESUME, kWideRows>(rows);
  }
  (void)vectors;
  return kTiles<BF16, RESUME>.fn[rows];
}

// All row tiles of one panel: rows are split evenly (33 rows are 3 tiles of 11, not 12 + 12 + 9).
// A tile writes to y itself if there is nothing else to do with its sums.
template <bool BF16>
void panel(const GemmArgs& g, const char* w, const char* ahead, const float* bias, float* y,
           int columns) {
  const bool resume = g.mode == GemmMode::accumulate;
  const bool plain = resume || (g.mode == GemmMode::store && bias == nullptr);
  const int wanted = is_glu(g.mode) ? kPanel : columns;  // columns of the panel
  const int tiles = (g.rows + kTileRows - 1) / kTileRows;
  float sums[kTileRows * kPanel];
  for (int i = 0; i < tiles; ++i) {
    const int row = g.rows * i / tiles;
    const int rows = g.rows * (i + 1) / tiles - row;
    const int vectors = g.tile_floats != 0 ? 2 : tile_vectors(rows);
    const int step = vectors * kWidth;
    const bool direct = plain && columns % step == 0;
    float* to = direct ? y + row * g.ldy : sums;
    const int64_t ld = direct ? g.ldy : kPanel;
    for (int column = 0, pass = 0; column < wanted; column += step, ++pass) {
      const bool prefetch = ahead != nullptr && i == 0 && pass < 2;
      const int64_t offset = g.tile_floats != 0 ? pass * g.tile_floats : column;
      const TileArgs t{g.x + row * g.ldx,
                       g.ldx,
                       g.k,
                       w + offset * 4,
                       BF16 ? int64_t{kPanel} * 4 : g.ldw * 4,
                       prefetch ? ahead + 64 * pass : w};
      if (!BF16 && resume) {
        tile_of<false, true>(rows, vectors)(t, to + column, ld, g.scale + row);
      } else {
        tile_of<BF16, false>(rows, vectors)(t, to + column, ld, nullptr);
      }
    }
    if (!direct) finish(g, {sums, kPanel, row, rows, bias, y, columns});
  }
}

}  // namespace
}  // namespace asap
