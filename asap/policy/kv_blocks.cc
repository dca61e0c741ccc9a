#include "asap/policy/kv_blocks.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

KvBlocks::KvBlocks(int blocks) : taken_(static_cast<size_t>(blocks), 0) {
  free_.reserve(taken_.size());
  for (int block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

bool KvBlocks::reserve(int64_t tokens, std::vector<int32_t>* out) {
  const int64_t wanted = blocks_for(tokens);
  if (wanted > free_blocks()) return false;
  for (int64_t i = 0; i < wanted; ++i) {
    out->push_back(free_.back());
    taken_[static_cast<size_t>(free_.back())] = 1;
    free_.pop_back();
  }
  return true;
}

void KvBlocks::release(std::span<const int32_t> blocks) {
  for (const int32_t block : blocks) {
    CHECK(block >= 0 && block < total_blocks(), "block {} of {}", block, total_blocks());
    CHECK(taken_[static_cast<size_t>(block)] == 1, "block {} is freed twice", block);
    taken_[static_cast<size_t>(block)] = 0;
    free_.push_back(block);
  }
}

void KvBlocks::check() const {
  const auto taken = std::count(taken_.begin(), taken_.end(), uint8_t{1});
  CHECK(taken + free_blocks() == total_blocks(), "{} taken and {} free of {} blocks", taken,
        free_blocks(), total_blocks());
  for (const int32_t block : free_) {
    CHECK(taken_[static_cast<size_t>(block)] == 0, "block {} is free and taken", block);
  }
}

}  // namespace asap
