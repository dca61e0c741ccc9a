// AttendTile: causal attention of some query rows, key block by key block, with a running maximum
// and sum (the flash recipe). Every kind of attention of the CPU ends here.
//
// A row's result depends on the row alone: blocks come in one order, each step treats one block of
// kKeyBlock keys, keys that a row does not see have probability 0, and blocks of which it sees
// nothing are skipped for that row, or change nothing of it.
#pragma once

#include <cstdint>

#include "asap/compute/kernels/table.h"

namespace asap {

struct AttendTile {
  // Scratch, sized by reserve().
  float* q = nullptr;          // [rows, ldq], times scale·log2(e)
  float* s = nullptr;          // [rows, kKeyBlock]
  float* o = nullptr;          // [rows, ldo] unnormalised output
  float* max = nullptr;        // [rows]
  float* sum = nullptr;        // [rows]
  float* alpha = nullptr;      // [rows]
  int32_t* limit = nullptr;    // [rows] keys that a row sees in all, ascending over rows
  int32_t* visible = nullptr;  // [rows] keys that it sees in the present block
  int32_t* hidden = nullptr;   // [rows] keys of the present block that lie before its window

  int rows = 0;
  int window = 0;   // keys that a row sees, its own included; 0: all up to its limit
  int64_t ldo = 0;  // a multiple of kPanel

  // Starts `rows` rows with outputs of `width` elements; the caller sets limit[].
  void begin(int rows_now, int width, int window_now = 0);
  // Row r starts with a key of score `logit` (in units of log2) and no value.
  void sink(int r, float logit) {
    max[r] = logit;
    sum[r] = 1.0f;
  }
  // Keys and values of a block, with c columns of a GEMM tile (KernelTable::tile_columns).
  struct Keys {
    const float* k = nullptr;  // [kKeyBlock/c][d4][c], d4: d rounded up to 4
    int d = 0;
    const float* v = nullptr;  // [ldo/c][kKeyBlock][c]; or rows of at least ldo, ldv apart
    int64_t ldv = 0;           // 0: packed by tile
    int count = kKeyBlock;     // keys of the block, a multiple of kPanel
  };
  // The block of keys [first_key, first_key + keys.count); query rows (length d) are ldq apart.
  void block(const KernelTable& kernels, int first_key, const float* query, int64_t ldq,
             const Keys& keys);
  // Rows [row, row + count) to out, normalised.
  void finish(const KernelTable& kernels, int row, int count, int width, float* out, int64_t ld);
};

}  // namespace asap
