#include "asap/compute/ops_cpu_tile.h"

#include <algorithm>

namespace asap {

namespace {

// Below every score, yet finite: a row of which a block shows nothing keeps it, and 2^(it - it) is
// 1.
constexpr float kLowest = -1e30f;

}  // namespace

void AttendTile::begin(int rows_now, int width, int window_now) {
  rows = rows_now;
  window = window_now;
  ldo = (width + kPanel - 1) / kPanel * kPanel;
  std::fill_n(o, rows * ldo, 0.0f);
  std::fill_n(max, rows, kLowest);
  std::fill_n(sum, rows, 0.0f);
}

void AttendTile::block(const KernelTable& kernels, int first_key, const float* query, int64_t ldq,
                       const Keys& keys) {
  const auto first = static_cast<int>(std::upper_bound(limit, limit + rows, first_key) - limit);
  const int count = rows - first;
  if (count == 0) return;
  for (int r = first; r < rows; ++r) visible[r] = std::min(limit[r] - first_key, keys.count);
  for (int r = first; window > 0 && r < rows; ++r) {
    hidden[r] = std::clamp(limit[r] - window - first_key, 0, keys.count);
  }
  // Panels of keys that some row sees, the last one up to a whole tile.
  const int used = visible[rows - 1];
  const int begin = window > 0 ? hidden[first] / kPanel * kPanel : 0;
  const int columns = kernels.tile_columns;
  const int end = (used + columns - 1) / columns * columns;
  if (begin >= end) return;
  const int64_t d4 = (keys.d + 3) / 4 * 4;

  GemmArgs scores;
  scores.x = query + first * ldq;
  scores.ldx = ldq;
  scores.rows = count;
  scores.k = keys.d;
  scores.w = keys.k + begin * d4;
  scores.ldw = columns;
  scores.tile_floats = d4 * columns;
  scores.panel_bytes = d4 * kPanel * static_cast<int64_t>(sizeof(float));
  scores.y = s + first * kKeyBlock + begin;
  scores.ldy = kKeyBlock;
  scores.n = end - begin;
  kernels.gemm(scores);

  kernels.softmax({s + first * kKeyBlock, count, begin, end, visible + first,
                   window > 0 ? hidden + first : nullptr, max + first, sum + first, alpha + first});

  // Keys outside [begin, used) have probability 0 for every row of the tile: adding 0·v changes at
  // most the sign of a zero, and finish() makes zeros positive.
  const bool packed = keys.ldv == 0;
  GemmArgs values;
  values.x = s + first * kKeyBlock + begin;
  values.ldx = kKeyBlock;
  values.rows = count;
  values.k = used - begin;
  values.ldw = packed ? columns : keys.ldv;
  values.w = keys.v + begin * values.ldw;
  values.tile_floats = packed ? int64_t{kKeyBlock} * columns : 0;
  values.panel_bytes = kPanel * (packed ? kKeyBlock : 1) * static_cast<int64_t>(sizeof(float));
  values.y = o + first * ldo;
  values.ldy = ldo;
  values.n = static_cast<int>(ldo);
  values.scale = alpha + first;
  values.mode = GemmMode::accumulate;
  kernels.gemm(values);
}

void AttendTile::finish(const KernelTable& kernels, int row, int count, int width, float* out,
                        int64_t ld) {
  for (int r = row; r < row + count; ++r) alpha[r] = 1.0f / sum[r];
  kernels.scale_rows(o + row * ldo, ldo, alpha + row, count, width, out, ld);
}

}  // namespace asap
