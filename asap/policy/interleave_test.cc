#include "asap/policy/interleave.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

TEST(InterleaveTest, FirstReadyFirst) {
  Interleave interleave(3);
  EXPECT_EQ(interleave.next(), std::nullopt);
  interleave.on_ready(2, Instant{5});
  interleave.on_ready(0, Instant{7});
  interleave.on_ready(1, Instant{6});
  EXPECT_EQ(interleave.next(), 2);
  EXPECT_EQ(interleave.next(), 1);
  interleave.on_ready(2, Instant{8});
  EXPECT_EQ(interleave.next(), 0);
  EXPECT_EQ(interleave.next(), 2);
  EXPECT_EQ(interleave.next(), std::nullopt);
}

TEST(InterleaveTest, TiesGoToTheLowerStage) {
  Interleave interleave(2);
  interleave.on_ready(1, Instant{5});
  interleave.on_ready(0, Instant{5});
  EXPECT_EQ(interleave.next(), 0);
  EXPECT_EQ(interleave.next(), 1);
}

TEST(InterleaveDeathTest, AStageIsReadyOnce) {
  Interleave interleave(2);
  interleave.on_ready(1, Instant{5});
  EXPECT_DEATH(interleave.on_ready(1, Instant{6}), "ready twice");
}

}  // namespace
}  // namespace asap
