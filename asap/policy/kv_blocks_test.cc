#include "asap/policy/kv_blocks.h"

#include <gtest/gtest.h>

#include <set>

#include "asap/base/prng.h"

namespace asap {
namespace {

TEST(KvBlocksTest, RoundsUpToBlocks) {
  EXPECT_EQ(KvBlocks::blocks_for(1), 1);
  EXPECT_EQ(KvBlocks::blocks_for(kKvBlockTokens), 1);
  EXPECT_EQ(KvBlocks::blocks_for(kKvBlockTokens + 1), 2);
}

TEST(KvBlocksTest, TakesAllOrNothing) {
  KvBlocks kv(3);
  std::vector<int32_t> a;
  std::vector<int32_t> b;
  EXPECT_TRUE(kv.reserve(2 * kKvBlockTokens, &a));
  EXPECT_FALSE(kv.reserve(2 * kKvBlockTokens, &b));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(kv.free_blocks(), 1);
  EXPECT_TRUE(kv.reserve(1, &b));
  EXPECT_EQ(kv.free_blocks(), 0);
  kv.release(a);
  EXPECT_EQ(kv.free_blocks(), 2);
  kv.check();
}

TEST(KvBlocksDeathTest, RefusesDoubleFree) {
  KvBlocks kv(2);
  std::vector<int32_t> a;
  ASSERT_TRUE(kv.reserve(1, &a));
  kv.release(a);
  EXPECT_DEATH(kv.release(a), "freed twice");
}

TEST(KvBlocksTest, NoBlockHasTwoOwners) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Prng prng(seed);
    KvBlocks kv(37);
    std::vector<std::vector<int32_t>> owners;
    for (int step = 0; step < 2000; ++step) {
      std::vector<int32_t> blocks;
      if (prng.chance(0.5) && kv.reserve(1 + static_cast<int64_t>(prng.below(400)), &blocks)) {
        owners.push_back(blocks);
      } else if (!owners.empty()) {
        const size_t i = prng.below(owners.size());
        kv.release(owners[i]);
        owners.erase(owners.begin() + static_cast<std::ptrdiff_t>(i));
      }
      std::set<int32_t> seen;
      size_t owned = 0;
      for (const auto& list : owners) {
        seen.insert(list.begin(), list.end());
        owned += list.size();
      }
      ASSERT_EQ(seen.size(), owned) << "seed " << seed << " step " << step;
      ASSERT_EQ(owned + static_cast<size_t>(kv.free_blocks()), 37u);
      kv.check();
    }
  }
}

}  // namespace
}  // namespace asap
