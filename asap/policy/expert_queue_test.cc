#include "asap/policy/expert_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "asap/base/prng.h"

namespace asap {
namespace {

// Serves everything; "00 10" is group 0 stage 0, then group 1 stage 0.
std::string serve(ExpertQueue& queue) {
  std::string out;
  while (const auto item = queue.next(Instant{})) {
    if (!out.empty()) out += " ";
    out += std::to_string(item->group) + std::to_string(item->stage);
  }
  return out;
}

TEST(ExpertQueueTest, RoundRobinGoesOnFromItsCursor) {
  ExpertQueue queue({2, 2});
  EXPECT_EQ(serve(queue), "");
  queue.on_ready(1, 1, 0, Instant{1});
  queue.on_ready(0, 0, 0, Instant{2});
  queue.on_ready(1, 0, 0, Instant{3});
  EXPECT_EQ(serve(queue), "00 10 11");
  queue.on_ready(1, 0, 0, Instant{4});
  EXPECT_EQ(serve(queue), "10");
  queue.on_ready(0, 0, 0, Instant{5});
  queue.on_ready(1, 0, 0, Instant{6});
  queue.on_ready(1, 1, 0, Instant{7});
  EXPECT_EQ(serve(queue), "11 00 10");
}

TEST(ExpertQueueTest, OldestFirst) {
  ExpertQueue queue({2, 2, ExpertOrder::oldest_first});
  queue.on_ready(1, 1, 0, Instant{1});
  queue.on_ready(0, 0, 0, Instant{3});
  queue.on_ready(1, 0, 0, Instant{2});
  queue.on_ready(0, 1, 0, Instant{3});
  EXPECT_EQ(serve(queue), "11 10 00 01");
}

TEST(ExpertQueueTest, MergesItemsOfEqualLayer) {
  ExpertQueue queue({2, 2, ExpertOrder::round_robin, true});
  queue.on_ready(0, 0, 7, Instant{1});
  queue.on_ready(0, 1, 8, Instant{1});
  queue.on_ready(1, 0, 7, Instant{1});
  EXPECT_EQ(queue.next(Instant{2})->group, 0);
  const auto mate = queue.next_of(7);
  ASSERT_TRUE(mate);
  EXPECT_EQ(mate->group, 1);
  EXPECT_FALSE(queue.next_of(7));
  EXPECT_EQ(serve(queue), "01");
  ExpertQueue apart({2, 1});
  apart.on_ready(0, 0, 7, Instant{1});
  apart.on_ready(1, 0, 7, Instant{1});
  EXPECT_EQ(apart.next(Instant{2})->group, 0);
  EXPECT_FALSE(apart.next_of(7));
}

TEST(ExpertQueueTest, LockstepWaitsForAllGroups) {
  ExpertQueue queue({3, 1, ExpertOrder::round_robin, false, true});
  queue.on_ready(2, 0, 0, Instant{1});
  queue.on_ready(0, 0, 0, Instant{1});
  EXPECT_EQ(serve(queue), "");
  queue.on_ready(1, 0, 0, Instant{1});
  EXPECT_EQ(serve(queue), "00 10 20");
  queue.on_ready(0, 0, 1, Instant{2});
  EXPECT_EQ(serve(queue), "");
}

TEST(ExpertQueueDeathTest, OneItemPerStage) {
  ExpertQueue queue({1, 2});
  queue.on_ready(0, 1, 0, Instant{1});
  EXPECT_DEATH(queue.on_ready(0, 1, 0, Instant{2}), "two items");
}

// Every slot comes back as soon as it was served, and one waits: it is served within one round.
TEST(ExpertQueueTest, NobodyStarves) {
  for (const ExpertOrder order : {ExpertOrder::round_robin, ExpertOrder::oldest_first}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Prng prng(seed);
      constexpr int kGroups = 3;
      constexpr int kStages = 3;
      ExpertQueue queue({kGroups, kStages, order});
      std::vector<int> passed(kGroups * kStages, -1);  // -1: not in the queue
      for (int step = 0; step < 10'000; ++step) {
        const Instant now{step};
        const auto slot = static_cast<int>(prng.below(kGroups * kStages));
        if (passed[static_cast<size_t>(slot)] < 0) {
          queue.on_ready(slot / kStages, slot % kStages, 0, now);
          passed[static_cast<size_t>(slot)] = 0;
        }
        queue.check();
        if (prng.chance(0.3)) continue;
        const auto item = queue.next(now);
        const bool any = std::any_of(passed.begin(), passed.end(), [](int p) { return p >= 0; });
        ASSERT_EQ(item.has_value(), any);
        if (!item) continue;
        const int served = item->group * kStages + item->stage;
        ASSERT_GE(passed[static_cast<size_t>(served)], 0) << "seed " << seed;
        passed[static_cast<size_t>(served)] = -1;
        for (int& p : passed) p += p >= 0 ? 1 : 0;
        for (const int p : passed) ASSERT_LT(p, kGroups * kStages) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace asap
