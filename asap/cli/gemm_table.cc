#include "asap/cli/gemm_table.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "asap/base/prng.h"

namespace asap {

namespace {

// Weights rotate over more memory than caches hold, and a repetition takes at least so long.
constexpr uint64_t kColdBytes = uint64_t{128} << 20;
constexpr double kLeastSeconds = 0.02;

struct Shape {
  int n = 0, k = 0;
};
// An expert's matrices of Qwen3-30B-A3B, and of DeepSeek-V3.
constexpr Shape kShapes[] = {{768, 2048}, {2048, 768}, {2048, 7168}, {7168, 2048}};
constexpr int kMostK = 7168;

struct Gemm {
  std::vector<Matrix> copies;
  std::vector<float> x, y;
  size_t next = 0;

  void run(Ops& ops, int rows) {
    const Matrix& w = copies[next++ % copies.size()];
    ops.linear(w, x.data(), rows, w.k, y.data(), w.n);
  }
};

Gemm make_gemm(Ops& ops, Arena& arena, Prng& prng, const Shape& shape, int most_rows,
               const GemmTableOptions& options) {
  const size_t count = static_cast<size_t>(shape.n) * static_cast<size_t>(shape.k);
  std::vector<uint16_t> stored(count);  // bf16 of magnitude 2^-7 to 2^-5
  for (uint16_t& value : stored) {
    const auto bits = static_cast<uint32_t>(prng.below(1u << 16));
    value = static_cast<uint16_t>(0x3C00u | (bits & 0x80FFu));
  }
  TensorView view;
  view.dtype = DType::bf16;
  view.rows = shape.n;
  view.cols = shape.k;
  view.stride = shape.k;
  view.data = reinterpret_cast<const std::byte*>(stored.data());
  view.as_int8 = options.int8;
  Gemm out;
  const uint64_t enough = options.quick ? 1 : kColdBytes;
  for (uint64_t bytes = 0; bytes < enough; bytes += out.copies.back().bytes) {
    out.copies.push_back(ops.pack(view, arena));
  }
  out.x.resize(static_cast<size_t>(most_rows) * static_cast<size_t>(shape.k));
  for (float& value : out.x) value = static_cast<float>(prng.uniform() * 2 - 1);
  out.y.resize(static_cast<size_t>(most_rows) * static_cast<size_t>(shape.n));
  return out;
}

// Medians {operations per second, share of the ceiling}.
std::pair<double, double> measure(Gemm& gemm, Ops& ops, FmaCeiling& ceiling, int rows,
                                  const GemmTableOptions& options) {
  const Matrix& w = gemm.copies.front();
  const double flops = 2.0 * w.n * w.k * rows;
  const auto seconds = [&](int runs) {
    const Instant begin = options.clock();
    for (int i = 0; i < runs; ++i) gemm.run(ops, rows);
    return (options.clock() - begin).to_seconds() / runs;
  };
  seconds(1);  // first touch
  const int runs = std::max(1, static_cast<int>(kLeastSeconds / std::max(seconds(1), 1e-6)));
  std::vector<double> rates, shares;
  for (int round = 0; round < options.rounds; ++round) {
    const double before = ceiling.flops_per_second();
    rates.push_back(flops / seconds(runs));
    shares.push_back(rates.back() / ((before + ceiling.flops_per_second()) / 2));
  }
  return {median(rates), median(shares)};
}

}  // namespace

nlohmann::ordered_json gemm_table(Ops& ops, FmaCeiling& ceiling, const GemmTableOptions& options) {
  const std::vector<int> rows =
      options.quick ? std::vector{1, 32} : std::vector{1, 8, 32, 128, 512, 2048};
  ModelSpec spec;
  spec.hidden = kMostK;
  ops.reserve(spec, {rows.back(), 0, 0});
  std::printf("\nGEMM of %s weights%s, of FMA (GFLOP/s)\n%12s", options.int8 ? "int8" : "bf16",
              options.quick ? "" : " out of memory", "N x K");
  for (const int m : rows) std::printf(" %9s M %-4d", "", m);
  std::printf("\n");
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  Prng prng{1};
  for (const Shape& shape : kShapes) {
    Arena arena;
    Gemm gemm = make_gemm(ops, arena, prng, shape, rows.back(), options);
    std::printf("%5d x %4d", shape.n, shape.k);
    for (const int m : rows) {
      const auto [rate, share] = measure(gemm, ops, ceiling, m, options);
      std::printf("   %5.2f (%5.1f)", share, 1e-9 * rate);
      std::fflush(stdout);
      out.push_back(
          {{"n", shape.n}, {"k", shape.k}, {"rows", m}, {"gflops", 1e-9 * rate}, {"share", share}});
    }
    std::printf("\n");
    if (options.quick) break;
  }
  return out;
}

}  // namespace asap
