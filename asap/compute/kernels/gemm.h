// The one GEMM of the CPU: register tiles of MR rows by NV vectors over the whole of k, no round
// trips of y.
//
// bf16 weights are widened in registers (a shift for even k, a mask for odd k) and multiplied in
// float32, which beats the bf16 dot instructions on the cores we know (docs/performance.md). Each
// output element is the chain acc = fma(x[k], w[k], acc) for k = 0, 1, 2, ..., for every MR, NV and
// mode. For kernels.cc only.
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
constexpr int kWideRows = kWidth == 8 ? 3 : 0;

// Columns where vector v of a tile starts, relative to the tile's column. A silu tile is half gate,
// half up.
template <int NV, bool SILU>
constexpr int column_of(int v) {
  return SILU ? (v % (NV / 2)) * kWidth + (v / (NV / 2)) * (kPanel / 2) : v * kWidth;
}

// What happens to finished sums.
struct Epilogue {
  const float* scale;  // of the tile's rows
  const float* bias;   // of the tile's columns, or null
  float alpha, limit;
};

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

// acc[m][v] += x[m]·W[v] for one k; b[v] holds row k of W.
template <int MR, int NV>
ASAP_INLINE void step(V (&acc)[MR][NV], const float* x, int64_t ldx, const V (&b)[NV]) {
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
    const V a = broadcast(x[m * ldx]);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) fma_into(acc[m][v], a, b[v]);
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

template <int MR, int NV, bool SILU, bool PF>
ASAP_INLINE void multiply_bf16(V (&acc)[MR][NV], const TileArgs& t) {
  const float* x = t.x;
  const char* w = t.w;
  const char* ahead = t.ahead;
  V b[NV];
  for (int k = 0; k + 1 < t.k; k += 2, x += 2, w += t.ldw) {
    if (PF) ahead = prefetch_row<NV>(ahead);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) b[v] = even_of(load_bits(w + 4 * column_of<NV, SILU>(v)));
    step<MR, NV>(acc, x, t.ldx, b);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) b[v] = odd_of(load_bits(w + 4 * column_of<NV, SILU>(v)));
    step<MR, NV>(acc, x + 1, t.ldx, b);
  }
  if (t.k % 2 != 0) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) b[v] = even_of(load_bits(w + 4 * column_of<NV, SILU>(v)));
    step<MR, NV>(acc, x, t.ldx, b);
  }
}

template <int MR, int NV, bool SILU, bool PF>
ASAP_INLINE void multiply_f32(V (&acc)[MR][NV], const TileArgs& t) {
  const float* x = t.x;
  const char* w = t.w;
  const char* ahead = t.ahead;
  V b[NV];
  for (int k = 0; k < t.k; ++k, ++x, w += t.ldw) {
    if (PF) ahead = prefetch_row<NV>(ahead);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      b[v] = load(reinterpret_cast<const float*>(w + 4 * column_of<NV, SILU>(v)));
    }
    step<MR, NV>(acc, x, t.ldx, b);
  }
}

template <GemmMode MODE>
ASAP_INLINE V activate(V gate, V up, const Epilogue& e) {
  if (MODE == GemmMode::silu) return silu(gate) * up;
  const V limit = broadcast(e.limit);
  const V g = min(gate, limit);
  const V u = max(min(up, limit), V{} - limit);
  return g * sigmoid(g * broadcast(e.alpha)) * (u + broadcast(1.0f));
}

// Writes a tile: `columns` of y are wanted, fewer than the tile has at the right edge.
template <int MR, int NV, GemmMode MODE>
ASAP_INLINE void finish(V (&acc)[MR][NV], float* y, int64_t ldy, int columns, const Epilogue& e) {
  constexpr bool kGlu = is_glu(MODE);
  constexpr int kOut = kGlu ? NV / 2 : NV;
  if (MODE != GemmMode::accumulate && e.bias != nullptr) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      const V bias = load(e.bias + column_of<NV, kGlu>(v));
#pragma GCC unroll 16
      for (int m = 0; m < MR; ++m) acc[m][v] += bias;
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < kOut; ++v) {
      V out = acc[m][v];
      if (kGlu) out = activate<MODE>(out, acc[m][(v + NV / 2) % NV], e);
      if (MODE == GemmMode::scale) out = out * broadcast(e.scale[m]);
      const int left = columns - v * kWidth;
      float* to = y + m * ldy + v * kWidth;
      if (left >= kWidth) [[likely]] {
        store(to, out);
      } else if (left > 0) {
        store_part(to, out, left);
      }
    }
  }
}

template <int MR, int NV, bool BF16, GemmMode MODE, bool PF>
__attribute__((noinline)) void tile(const TileArgs& t, float* y, int64_t ldy, int columns,
                                    const Epilogue& e) {
  V acc[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      acc[m][v] = V{};
      if (MODE == GemmMode::accumulate) {
        acc[m][v] = load(y + m * ldy + v * kWidth) * broadcast(e.scale[m]);
      }
    }
  }
  if constexpr (BF16) {
    multiply_bf16<MR, NV, is_glu(MODE), PF>(acc, t);
  } else {
    multiply_f32<MR, NV, is_glu(MODE), PF>(acc, t);
  }
  finish<MR, NV, MODE>(acc, y, ldy, columns, e);
}

using TileFn = void (*)(const TileArgs&, float*, int64_t, int, const Epilogue&);

// Vectors per tile of `rows` rows.
constexpr int tile_vectors(int rows) {
  return rows <= kWideRows ? kPanelVectors : 2;
}

// Tiles of MR = 1..kTileRows rows.
template <bool BF16, GemmMode MODE, bool PF>
struct Tiles {
  TileFn fn[kTileRows + 1];
  template <int MR>
  constexpr void fill() {
    fn[MR] = &tile<MR, tile_vectors(MR), BF16, MODE, PF>;
    if constexpr (MR > 1) fill<MR - 1>();
  }
  constexpr Tiles() : fn{} { fill<kTileRows>(); }
};

template <bool BF16, GemmMode MODE, bool PF>
constexpr Tiles<BF16, MODE, PF> kTiles;

template <bool BF16, GemmMode MODE>
TileFn tile_of(int rows, bool prefetch) {
  // Attention's W is in cache: no prefetching form of `accumulate`.
  if constexpr (MODE == GemmMode::accumulate) return kTiles<BF16, MODE, false>.fn[rows];
  return prefetch ? kTiles<BF16, MODE, true>.fn[rows] : kTiles<BF16, MODE, false>.fn[rows];
}

// All row tiles of one panel: rows are split evenly (33 rows are 3 tiles of 11, not 12 + 12 + 9).
template <bool BF16, GemmMode MODE>
void panel(const GemmArgs& g, const char* w, const char* ahead, const float* bias, float* y,
           int columns) {
  constexpr bool kGlu = is_glu(MODE);
  const int tiles = (g.rows + kTileRows - 1) / kTileRows;
  for (int i = 0; i < tiles; ++i) {
    const int row = g.rows * i / tiles;
    const int rows = g.rows * (i + 1) / tiles - row;
    const int step = tile_vectors(rows) * kWidth / (kGlu ? 2 : 1);  // columns of y per tile
    for (int column = 0; column < columns; column += step) {
      const int pass = column / step;
      const bool prefetch = ahead != nullptr && i == 0 && pass < 2;
      const TileArgs t{g.x + row * g.ldx,
                       g.ldx,
                       g.k,
                       w + column * 4,
                       BF16 ? int64_t{kPanel} * 4 : g.ldw * 4,
                       prefetch ? ahead + 64 * pass : nullptr};
      const Epilogue e{g.scale == nullptr ? nullptr : g.scale + row,
                       bias == nullptr ? nullptr : bias + column, g.alpha, g.limit};
      tile_of<BF16, MODE>(rows, prefetch)(t, y + row * g.ldy + column, g.ldy, columns - column, e);
    }
  }
}

template <bool BF16, GemmMode MODE>
void panels(const GemmArgs& g) {
  constexpr int kColumns = is_glu(MODE) ? kPanel / 2 : kPanel;
  const char* w = static_cast<const char*>(g.w);
  const float* bias = g.bias;
  for (int column = 0; column < g.n; column += kColumns, w += g.panel_bytes) {
    const int left = g.n - column;
    const char* ahead = g.prefetch && left > kColumns ? w + g.panel_bytes : nullptr;
    panel<BF16, MODE>(g, w, ahead, bias, g.y + column, left < kColumns ? left : kColumns);
    if (bias != nullptr) bias += kPanel;
  }
}

float fma_loop(int64_t steps) {
  V acc[kFmaChains] = {};
  const V a = broadcast(0.5f);
  const V b = broadcast(0.25f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kFmaChains; ++c) fma_into(acc[c], a, b);
  }
  V sum = {};
#pragma GCC unroll 16
  for (int c = 0; c < kFmaChains; ++c) sum += acc[c];
  return reduce_add(sum);
}

void gemm(const GemmArgs& g) {
  switch (g.mode) {
    case GemmMode::store:
      return g.bf16 ? panels<true, GemmMode::store>(g) : panels<false, GemmMode::store>(g);
    case GemmMode::scale:
      return g.bf16 ? panels<true, GemmMode::scale>(g) : panels<false, GemmMode::scale>(g);
    case GemmMode::accumulate: return panels<false, GemmMode::accumulate>(g);
    case GemmMode::silu:
      return g.bf16 ? panels<true, GemmMode::silu>(g) : panels<false, GemmMode::silu>(g);
    case GemmMode::clamped_glu:
      return g.bf16 ? panels<true, GemmMode::clamped_glu>(g)
                    : panels<false, GemmMode::clamped_glu>(g);
  }
}

}  // namespace
}  // namespace asap
