#include "asap/sim/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "asap/base/prng.h"

namespace asap {
namespace {

TEST(EventQueueTest, FlagsBeforeWakesOfEqualTime) {
  EventQueue queue;
  std::byte flag{};
  queue.add_wake(Instant{5}, 1);
  queue.add_flag(Instant{5}, &flag, 7, 2);
  queue.add_wake(Instant{4}, 3);
  queue.add_wake(Instant{5}, 4);
  EXPECT_EQ(queue.next_due(), Instant{4});
  EXPECT_EQ(queue.pop().who, 3);
  const Event event = queue.pop();
  EXPECT_EQ(event.to, &flag);
  EXPECT_EQ(event.value, 7u);
  EXPECT_EQ(queue.pop().who, 1);
  EXPECT_EQ(queue.next_due(), Instant{5});
  EXPECT_EQ(queue.pop().who, 4);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.next_due(), Instant::never());
}

// What is added for the present time while it is served comes after what was there.
TEST(EventQueueTest, AddingToTheTimeThatIsServed) {
  EventQueue queue;
  queue.add_wake(Instant{1}, 1);
  queue.add_wake(Instant{1}, 2);
  EXPECT_EQ(queue.pop().who, 1);
  queue.add_wake(Instant{1}, 3);
  EXPECT_EQ(queue.pop().who, 2);
  EXPECT_EQ(queue.pop().who, 3);
  EXPECT_TRUE(queue.empty());
}

// Against a sort by (time, kind): random bursts, interleaved with pops.
TEST(EventQueueTest, IsASortByTime) {
  std::byte flag{};
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Prng prng(seed);
    EventQueue queue;
    Instant now{0};
    size_t inside = 0;
    size_t popped = 0;
    for (int step = 0; step < 2000; ++step) {
      const auto count = prng.below(4);
      const Instant due = now + Duration{static_cast<int64_t>(prng.below(20))};
      for (uint64_t i = 0; i < count; ++i) {
        if (prng.chance(0.5)) {
          queue.add_flag(due, &flag, 0, 0);
        } else {
          queue.add_wake(due, 0);
        }
        ++inside;
      }
      for (uint64_t i = prng.below(4); i > 0 && inside > 0; --i, --inside, ++popped) {
        ASSERT_GE(queue.next_due(), now) << "seed " << seed;
        now = queue.next_due();
        queue.pop();
      }
    }
    while (inside > 0) {
      ASSERT_GE(queue.next_due(), now);
      now = queue.next_due();
      queue.pop();
      --inside;
      ++popped;
    }
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(queue.added(), popped);
  }
}

}  // namespace
}  // namespace asap
