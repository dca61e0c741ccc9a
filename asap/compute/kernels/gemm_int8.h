// The int8 GEMM: the tiles of gemm_tile.h over int8 weights and rows quantised to int8.
//
// Sums are int32 and exact, so every table, tile shape and column split gives the same number; then
// y = sum·(x scale · w scale) in float32, and the epilogue of gemm_tile.h. A step of a tile takes
// one group of consecutive k, four bytes of a row:
//  - pairs: int16 rows; weights [k/2][32][2] are widened in registers, vpmaddwd multiplies and adds
//    the pairs, vpaddd accumulates. vpmaddubsw takes int8 as it is, but to be exact it needs the
//    signs of x moved to w for each row and vector, and its int16 sums widened: it is slower.
//  - quads, where the ISA has VNNI: int8 rows; weights [k/4][32][4] are stored with 128 added, as
//    vpdpbusd wants one unsigned operand, and sums start at -128·Σx.
// For kernels.cc only.
#pragma once

#include "asap/compute/kernels/gemm_tile.h"
#include "asap/compute/kernels/table.h"
#include "asap/compute/kernels/vec.h"

#if !defined(ASAP_INT8_QUADS) && defined(__AVX512VNNI__) && ASAP_VECTOR == 16
#define ASAP_INT8_QUADS 1
#endif

namespace asap {
namespace {

#if defined(ASAP_INT8_QUADS)
constexpr Int8Form kInt8Form = {4, 1, 128};
#else
constexpr Int8Form kInt8Form = {2, 2, 0};
#endif
constexpr int kGroupBytes = kPanel * kInt8Form.group;  // of a panel, per group of k
// Up to this many rows a tile spans a whole panel.
constexpr int kInt8WideRows = kWidth == 8 ? 2 : 0;

constexpr int int8_vectors(int rows) {
  return rows <= kInt8WideRows ? kPanelVectors : 2;
}

typedef int8_t VC __attribute__((vector_size(2 * ASAP_VECTOR)));
typedef int8_t VCm __attribute__((vector_size(2 * ASAP_VECTOR), aligned(1), may_alias));
typedef int16_t VS __attribute__((vector_size(4 * ASAP_VECTOR)));
typedef int8_t VB __attribute__((vector_size(4 * ASAP_VECTOR)));
typedef uint8_t VUB __attribute__((vector_size(4 * ASAP_VECTOR)));
typedef int16_t VHs __attribute__((vector_size(2 * ASAP_VECTOR)));
typedef int16_t VHsm __attribute__((vector_size(2 * ASAP_VECTOR), aligned(1), may_alias));
typedef int8_t VQ __attribute__((vector_size(ASAP_VECTOR)));
typedef int8_t VQm __attribute__((vector_size(ASAP_VECTOR), aligned(1), may_alias));
typedef int32_t Word __attribute__((aligned(1), may_alias));

// One group of kWidth columns.
ASAP_INLINE VI int8_weights(const char* w) {
#if defined(ASAP_INT8_QUADS)
  return *reinterpret_cast<const VIm*>(w);
#elif ASAP_VECTOR == 8
  return reinterpret_cast<VI>(_mm256_cvtepi8_epi16(*reinterpret_cast<const __m128i_u*>(w)));
#elif ASAP_VECTOR == 16
  return reinterpret_cast<VI>(_mm512_cvtepi8_epi16(*reinterpret_cast<const __m256i_u*>(w)));
#else
  return reinterpret_cast<VI>(__builtin_convertvector(*reinterpret_cast<const VCm*>(w), VS));
#endif
}

// sum += the products of a group, x in every lane. Instructions as such, as in fma_into (vec.h).
ASAP_INLINE void dot_into(VI& sum, VI x, VI w) {
#if defined(ASAP_INT8_QUADS) && ASAP_VECTOR == 16
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
#elif defined(ASAP_INT8_QUADS)
  const VUB weights = reinterpret_cast<VUB>(w);
  const VB row = reinterpret_cast<VB>(x);
  for (int i = 0; i < 4 * kWidth; ++i) sum[i / 4] += int32_t{weights[i]} * row[i];
#elif ASAP_VECTOR == 16
  VI pairs;
  asm("vpmaddwd %2, %1, %0" : "=v"(pairs) : "v"(x), "v"(w));
  asm("vpaddd %1, %0, %0" : "+v"(sum) : "v"(pairs));
#elif ASAP_VECTOR == 8
  VI pairs;
  asm("vpmaddwd %2, %1, %0" : "=x"(pairs) : "x"(x), "x"(w));
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(pairs));
#else
  // A product of two int8 fits int16.
  const VI pairs = reinterpret_cast<VI>(reinterpret_cast<VS>(x) * reinterpret_cast<VS>(w));
  sum += ((pairs << 16) >> 16) + (pairs >> 16);
#endif
}

struct Int8Tile {
  const char* x;
  int64_t ldx;  // bytes
  int groups;
  const char* w;         // the tile's first column
  const char* ahead;     // next panel, or what is near already
  const int32_t* x_sum;  // of the tile's rows
};

template <int MR, int NV>
ASAP_INLINE void multiply_int8(VI (&sum)[MR][NV], const Int8Tile& t) {
  const char* x = t.x;
  const char* w = t.w;
  const char* ahead = t.ahead;
  VI b[NV];
  for (int i = 0; i < t.groups; ++i, x += 4, w += kGroupBytes) {
#pragma GCC unroll 2
    for (int line = 0; line < kGroupBytes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
    ahead += kGroupBytes;
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) b[v] = int8_weights(w + kInt8Form.group * v * kWidth);
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      const VI a = VI{} + *reinterpret_cast<const Word*>(x + m * t.ldx);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) dot_into(sum[m][v], a, b[v]);
    }
  }
}

// Whole sums of a tile, rows kPanel apart.
template <int MR, int NV>
__attribute__((noinline)) void int8_tile(const Int8Tile& t, int32_t* sums) {
  VI sum[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      sum[m][v] = VI{};
      if (kInt8Form.offset != 0) sum[m][v] -= kInt8Form.offset * t.x_sum[m];
    }
  }
  multiply_int8<MR, NV>(sum, t);
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      *reinterpret_cast<VIm*>(sums + m * kPanel + v * kWidth) = sum[m][v];
    }
  }
}

using Int8TileFn = void (*)(const Int8Tile&, int32_t*);

// Tiles of MR = 1..kTileRows rows.
struct Int8Tiles {
  Int8TileFn fn[kTileRows + 1];
  template <int MR>
  constexpr void fill() {
    fn[MR] = &int8_tile<MR, int8_vectors(MR)>;
    if constexpr (MR > 1) fill<MR - 1>();
  }
  constexpr Int8Tiles() : fn{} { fill<kTileRows>(); }
};

constexpr Int8Tiles kInt8Tiles;

// All row tiles of one panel, rows split evenly.
void int8_panel(const GemmArgs& g, const Int8Rows& x, const char* w, const char* ahead,
                const float* bias, float* y, int columns) {
  const int groups = (g.k + kInt8Form.group - 1) / kInt8Form.group;
  const auto* w_scale = reinterpret_cast<const float*>(w + int64_t{groups} * kGroupBytes);
  const int tiles = (g.rows + kTileRows - 1) / kTileRows;
  float sums[kTileRows * kPanel];
  for (int i = 0; i < tiles; ++i) {
    const int row = g.rows * i / tiles;
    const int rows = g.rows * (i + 1) / tiles - row;
    const int step = int8_vectors(rows) * kWidth;
    for (int column = 0; column < kPanel; column += step) {
      const bool prefetch = ahead != nullptr && i == 0 && column == 0;
      const Int8Tile t{static_cast<const char*>(x.q) + row * x.ld,
                       x.ld,
                       groups,
                       w + column * kInt8Form.group,
                       prefetch ? ahead : w,
                       x.sum + row};
      kInt8Tiles.fn[rows](t, reinterpret_cast<int32_t*>(sums) + column);
    }
    finish_int8(g, x, w_scale, sums, {sums, kPanel, row, rows, bias, y, columns});
  }
}

void int8_panels(const GemmArgs& g, const Int8Rows& x) {
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;
  const char* w = static_cast<const char*>(g.w);
  const float* bias = g.bias;
  for (int column = 0; column < g.n; column += columns, w += g.panel_bytes) {
    const int left = g.n - column;
    const char* ahead = g.prefetch && left > columns ? w + g.panel_bytes : nullptr;
    int8_panel(g, x, w, ahead, bias, g.y + column, left < columns ? left : columns);
    if (bias != nullptr) bias += kPanel;
  }
}

// Adding this rounds a float of magnitude below 2^22 to a whole number, ties to even, which is then
// in the low bits of the sum.
constexpr float kRounder = 12582912.0f;  // 1.5·2^23

ASAP_INLINE VI magnitude(const float* x, int count) {
  const V v = count >= kWidth ? load(x) : load_part(x, count);
  return reinterpret_cast<VI>(as_bits(v) & 0x7FFFFFFFu);
}

// As bits, magnitudes order like floats, and above them all come the infinities and NaNs.
ASAP_INLINE float largest_magnitude(const float* x, int k) {
  VI most = {};
  for (int i = 0; i < k; i += kWidth) {
    const VI m = magnitude(x + i, k - i);
    most = m > most ? m : most;
  }
  int32_t bits = 0;
  for (int lane = 0; lane < kWidth; ++lane) bits = most[lane] > bits ? most[lane] : bits;
  float out;
  __builtin_memcpy(&out, &bits, sizeof(out));
  return out;
}

void quantize_int8(const float* x, int k, void* q, float* scale, int32_t* sum) {
  const float most = largest_magnitude(x, k);
  const bool finite = most <= 3.402823466e38f;
  const float inverse = most >= kInt8Least && finite ? 127.0f / most : 0.0f;
  *scale = finite ? most / 127.0f : __builtin_nanf("");
  VI total = {};
  for (int i = 0; i < k; i += kWidth) {
    V v = k - i >= kWidth ? load(x + i) : load_part(x + i, k - i);
    if (!finite) v = V{};
    const VI bits = reinterpret_cast<VI>(as_bits(v * broadcast(inverse) + broadcast(kRounder)));
    if (kInt8Form.offset != 0) {
      total += bits - reinterpret_cast<VI>(as_bits(broadcast(kRounder)));
    }
    if (kInt8Form.x_bytes == 2) {
      *reinterpret_cast<VHsm*>(static_cast<int16_t*>(q) + i) = __builtin_convertvector(bits, VHs);
    } else {
      *reinterpret_cast<VQm*>(static_cast<int8_t*>(q) + i) = __builtin_convertvector(bits, VQ);
    }
  }
  *sum = 0;
  for (int lane = 0; lane < kWidth; ++lane) *sum += total[lane];
}

}  // namespace
}  // namespace asap
