// Products by AMX tiles: bf16 weights with rows rounded to bf16 (tdpbf16ps), and int8 (tdpbssd).
//
// The packed panels are already what a tile wants: 16 groups of k (pairs of bf16, quads of int8) by
// 16 columns, rows 128 bytes apart. Two of them, 32 columns, meet 16 rows of x at a time. A tail of
// k is copied to a block padded with zeros. Every output element is one chain over k in steps of a
// tile, whatever the rows. The caller's thread has the permission to use tiles (kernels/isa.h).
#include "asap/compute/kernels/gemm_block.h"
#include "asap/compute/kernels/table.h"
#include "asap/compute/kernels/vec.h"

namespace asap {
namespace {

constexpr int kTileGroups = 16;             // of k, in a tile of weights
constexpr int kGroupBytes = 4 * kPanel;     // of a panel, per group
constexpr int kAmxRows = 16;                // of x
constexpr int64_t kAmxLdx = 2 * kBlockLdx;  // bf16 elements between two rows in scratch
constexpr int kAmxK = 2 * kGemmBlockK;      // steps of a block of bf16
static_assert(kAmxK % (2 * kTileGroups) == 0);
static_assert(kGemmWeightFloats * 4 >= kTileGroups * kGroupBytes);

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 and 1: sums; 2: rows of x; 3 and 4: weights.
void configure(int rows) {
  TileConfig config;
  for (int i = 0; i < 5; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = static_cast<uint8_t>(i < 3 ? rows : kTileGroups);
  }
  asm volatile("ldtilecfg %0" ::"m"(config));
}

// sums [rows of the tile][32], kSumsLd apart, += the products of `groups` groups of k; what is left
// of them after whole tiles is in `tail`, or tail is null.
template <bool INT8>
void multiply(const char* x, int64_t ldx, const char* w, int groups, const char* tail, bool resume,
              float* sums) {
  constexpr int64_t kLd = kSumsLd * 4;
  if (resume) {
    _tile_loadd(0, sums, kLd);
    _tile_loadd(1, sums + 16, kLd);
  } else {
    _tile_zero(0);
    _tile_zero(1);
  }
  for (int i = 0; i < groups; i += kTileGroups, x += 4 * kTileGroups) {
    const char* b = i + kTileGroups <= groups ? w + int64_t{i} * kGroupBytes : tail;
    _tile_loadd(2, x, ldx);
    _tile_loadd(3, b, kGroupBytes);
    _tile_loadd(4, b + 64, kGroupBytes);
    if (INT8) {
      _tile_dpbssd(0, 2, 3);
      _tile_dpbssd(1, 2, 4);
    } else {
      _tile_dpbf16ps(0, 2, 3);
      _tile_dpbf16ps(1, 2, 4);
    }
  }
  _tile_stored(0, sums, kLd);
  _tile_stored(1, sums + 16, kLd);
}

// The groups after the last whole tile, padded with zeros; null if there are none.
const char* padded_tail(const char* w, int groups, float* block) {
  const int whole = groups / kTileGroups * kTileGroups;
  if (whole == groups) return nullptr;
  for (int i = 0; i < kTileGroups; ++i, block += kPanel) {
    const auto* from = reinterpret_cast<const float*>(w + int64_t{whole + i} * kGroupBytes);
    const bool stored = whole + i < groups;
    store(block, stored ? load(from) : V{});
    store(block + kWidth, stored ? load(from + kWidth) : V{});
  }
  return reinterpret_cast<const char*>(block - kTileGroups * kPanel);
}

// Rows of one panel and one block of k, kAmxRows at a time; the last ones may be fewer.
template <bool INT8>
void multiply_rows(const char* x, int64_t ldx, int rows, const char* w, int groups, float* block,
                   bool resume, float* sums) {
  const char* tail = padded_tail(w, groups, block);
  configure(kAmxRows);
  for (int row = 0; row < rows; row += kAmxRows) {
    if (rows - row < kAmxRows) configure(rows - row);
    multiply<INT8>(x + row * ldx, ldx, w, groups, tail, resume, sums + row * kSumsLd);
  }
}

void gemm_int8_amx(const GemmArgs& g, const Int8Rows& x) {
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;  // of y, per panel
  const int groups = (g.k + 3) / 4;
  alignas(64) float block[kTileGroups * kGroupBytes / 4];
  const char* w = static_cast<const char*>(g.w);
  const float* bias = g.bias;
  for (int column = 0; column < g.n; column += columns, w += g.panel_bytes) {
    const int left = g.n - column;
    const auto* w_scale = reinterpret_cast<const float*>(w + int64_t{groups} * kGroupBytes);
    for (int row = 0; row < g.rows; row += kAmxRows) {
      const int rows = g.rows - row < kAmxRows ? g.rows - row : kAmxRows;
      float sums[kAmxRows * kSumsLd];
      multiply_rows<true>(static_cast<const char*>(x.q) + row * x.ld, x.ld, rows, w, groups, block,
                          false, sums);
      finish_int8(g, x, w_scale, sums,
                  {sums, kSumsLd, row, rows, bias, g.y + column, left < columns ? left : columns});
    }
    if (bias != nullptr) bias += kPanel;
  }
  _tile_release();
}

}  // namespace

void gemm_amx(const GemmArgs& g) {
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;  // of y, per panel
  const int panels = (g.n + columns - 1) / columns;
  auto* x = reinterpret_cast<uint16_t*>(g.scratch + kGemmWeightFloats);
  float* sums = g.scratch + kGemmWeightFloats + g.rows * kBlockLdx;
  for (int first = 0; first < panels; first += kGemmPanels) {
    const int count = panels - first < kGemmPanels ? panels - first : kGemmPanels;
    const char* w = static_cast<const char*>(g.w) + first * g.panel_bytes;
    for (int k = 0; k < g.k; k += kAmxK) {
      const int steps = g.k - k < kAmxK ? g.k - k : kAmxK;
      for (int r = 0; r < g.rows; ++r) round_row(g.x + r * g.ldx + k, steps, x + r * kAmxLdx);
      for (int i = 0; i < count; ++i) {
        const char* at = w + i * g.panel_bytes + int64_t{k / 2} * kGroupBytes;
        multiply_rows<false>(reinterpret_cast<const char*>(x), 2 * kAmxLdx, g.rows, at,
                             (steps + 1) / 2, g.scratch, k > 0, sums + i * kPanel);
        if (k + steps >= g.k) finish_panel(g, first + i, sums + i * kPanel);
      }
    }
  }
  _tile_release();
}

extern const Int8Kernels int8_amx = {{4, 1, 0}, gemm_int8_amx, nullptr};

}  // namespace asap
