// KvBlocks: which KV blocks of one group are free. A sequence reserves all that it can ever need
// (prompt and output) when it enters the group, so nothing is preempted later and no batch can
// deadlock on memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace asap {

inline constexpr int kKvBlockTokens = 64;

class KvBlocks {
 public:
  explicit KvBlocks(int blocks);

  static int64_t blocks_for(int64_t tokens) {
    return (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
  }
  int free_blocks() const { return static_cast<int>(free_.size()); }
  int total_blocks() const { return static_cast<int>(taken_.size()); }

  // Appends the ids of blocks for `tokens` tokens to `out`; false (and nothing taken) if there are
  // not enough.
  bool reserve(int64_t tokens, std::vector<int32_t>* out);
  void release(std::span<const int32_t> blocks);
  // Aborts if the free list and the marks disagree.
  void check() const;

 private:
  std::vector<uint8_t> taken_;  // [blocks]
  std::vector<int32_t> free_;   // a stack: blocks used last are the warmest
};

}  // namespace asap
