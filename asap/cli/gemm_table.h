// The GEMM table of asap bench kernels: dense products of common shapes by rows, as a share of the
// multiply-add loop that runs between their repetitions.
#pragma once

#include <nlohmann/json.hpp>

#include "asap/compute/measure.h"
#include "asap/compute/ops.h"

namespace asap {

struct GemmTableOptions {
  int rounds = 3;
  bool quick = false;  // one shape, few rows
  bool int8 = false;
  Clock clock = nullptr;
};
// Measures on `ops`, whose team `ceiling` runs on; reserve() is called again. Prints the table and
// gives it as [{n, k, rows, gflops, share}].
nlohmann::ordered_json gemm_table(Ops& ops, FmaCeiling& ceiling, const GemmTableOptions& options);

}  // namespace asap
