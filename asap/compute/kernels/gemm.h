// gemm(): the choice between whole tiles (gemm_tile.h) and blocks of k (gemm_block.h), and the loop
// that is its ceiling. For kernels.cc only.
#pragma once

#include "asap/compute/kernels/gemm_block.h"
#include "asap/compute/kernels/gemm_tile.h"
#include "asap/compute/kernels/table.h"

namespace asap {
namespace {

template <bool BF16>
void panels(const GemmArgs& g) {
  if (g.mode != GemmMode::accumulate && g.scratch != nullptr && g.rows > kTileRows) {
    return block_panels<BF16>(g);
  }
  const int columns = is_glu(g.mode) ? kPanel / 2 : kPanel;
  const char* w = static_cast<const char*>(g.w);
  const float* bias = g.bias;
  for (int column = 0; column < g.n; column += columns, w += g.panel_bytes) {
    const int left = g.n - column;
    const char* ahead = g.prefetch && left > columns ? w + g.panel_bytes : nullptr;
    panel<BF16>(g, w, ahead, bias, g.y + column, left < columns ? left : columns);
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
  return g.bf16 ? panels<true>(g) : panels<false>(g);
}

}  // namespace
}  // namespace asap
