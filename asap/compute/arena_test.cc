#include "asap/compute/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace asap {
namespace {

bool aligned(const std::byte* p, uintptr_t to) {
  return reinterpret_cast<uintptr_t>(p) % to == 0;
}

TEST(Arena, BlocksAreAlignedZeroedAndDisjoint) {
  Arena arena;
  struct Block {
    std::byte* data;
    uint64_t bytes;
  };
  std::vector<Block> blocks;
  uint64_t asked = 0;
  // Small ones, one larger than a chunk, and many that cross from chunk to chunk.
  std::vector<uint64_t> sizes = {0, 1, 63, 64, 65, uint64_t{40} << 20, 1};
  sizes.insert(sizes.end(), 30, (uint64_t{3} << 20) + 8);
  for (const uint64_t bytes : sizes) {
    std::byte* data = arena.allocate(bytes);
    ASSERT_TRUE(aligned(data, 64));
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(data, static_cast<int>(blocks.size() + 1), bytes);
    blocks.push_back({data, bytes});
    asked += bytes;
  }
  EXPECT_GE(arena.used(), asked);
  EXPECT_LT(arena.used(), asked + 64 * (sizes.size() + 1));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto mark = static_cast<std::byte>(i + 1);
    EXPECT_TRUE(std::all_of(blocks[i].data, blocks[i].data + blocks[i].bytes,
                            [mark](std::byte b) { return b == mark; }))
        << "block " << i;
  }
}

TEST(Arena, ChunksStartAtHugePages) {
  for (int i = 0; i < 5; ++i) {
    Arena small, large;
    EXPECT_TRUE(aligned(small.allocate(100), uintptr_t{2} << 20));
    EXPECT_TRUE(aligned(large.allocate(uint64_t{33} << 20), uintptr_t{2} << 20));
  }
}

TEST(Arena, MovesKeepTheMemory) {
  Arena first;
  std::byte* data = first.allocate(8);
  data[0] = std::byte{9};
  Arena second = std::move(first);
  Arena third;
  third.allocate(100);
  third = std::move(second);
  EXPECT_EQ(data[0], std::byte{9});
  EXPECT_EQ(third.used(), 64u);
  EXPECT_EQ(third.allocate(8), data + 64);
}

}  // namespace
}  // namespace asap
