// RowHistogram: how many rows each expert of a rank got in each item: what decides whether its GEMM
// is bound by arithmetic or by reading the weights. One writer, the rank's receive agent; it may
// lie in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace asap {

// Bucket 0 counts experts without rows, bucket b those with up to 2^(b-1), the last one the rest.
inline constexpr int kRowBuckets = 17;

struct RowCounts {
  std::array<int64_t, kRowBuckets> buckets{};
  int64_t rows = 0;  // sum over all
};

class RowHistogram {
 public:
  void add(int rows) {
    const int wanted = rows > 0 ? std::bit_width(static_cast<uint32_t>(rows - 1)) + 1 : 0;
    bump(buckets_[static_cast<size_t>(wanted < kRowBuckets ? wanted : kRowBuckets - 1)], 1);
    bump(rows_, rows);
  }
  void add_to(RowCounts& counts) const {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      counts.buckets[b] += buckets_[b].load(std::memory_order_relaxed);
    }
    counts.rows += rows_.load(std::memory_order_relaxed);
  }

 private:
  static void bump(std::atomic<int64_t>& counter, int64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  std::array<std::atomic<int64_t>, kRowBuckets> buckets_ = {};
  std::atomic<int64_t> rows_{0};
};

// What an expert rank's compute agent, its one writer, has done; it may lie in shared memory.
struct ExpertLoadCounters {
  std::atomic<int64_t> idle_ns{0};  // nothing was ready
  std::atomic<int64_t> items{0};
  std::atomic<int32_t> ready{0};  // items that wait now
};

}  // namespace asap
