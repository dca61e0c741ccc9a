#include "asap/policy/restart.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

constexpr RestartLimits kLimits{.max_restarts = 6,
                                .window = Duration::seconds(100),
                                .first_wait = Duration::millis(200),
                                .longest_wait = Duration::seconds(1),
                                .soon = Duration::seconds(2)};

Instant at_second(double seconds) {
  return Instant{0} + Duration::seconds(seconds);
}

TEST(RestartPolicyTest, OneThatServedForAWhileStartsAtOnce) {
  RestartPolicy policy(kLimits);
  policy.on_ready(at_second(1));
  EXPECT_EQ(policy.on_death(at_second(10)), at_second(10));
  policy.on_ready(at_second(11));
  EXPECT_EQ(policy.on_death(at_second(13)), at_second(13));
}

TEST(RestartPolicyTest, DeathsSoonAfterAStartWaitTwiceAsLongEachTime) {
  RestartPolicy policy(kLimits);
  EXPECT_EQ(policy.on_death(at_second(1)), at_second(1));    // in its start-up
  EXPECT_EQ(policy.on_death(at_second(2)), at_second(2.2));  // again
  policy.on_ready(at_second(3));
  EXPECT_EQ(policy.on_death(at_second(4)), at_second(4.4));  // served for a second
  EXPECT_EQ(policy.on_death(at_second(5)), at_second(5.8));
  EXPECT_EQ(policy.on_death(at_second(6)), at_second(7));  // the longest
  policy.on_ready(at_second(8));
  EXPECT_EQ(policy.on_death(at_second(20)), at_second(20));
}

TEST(RestartPolicyTest, TooManyWithinTheWindowAreTheEnd) {
  RestartPolicy policy(kLimits);
  for (int i = 0; i < 6; ++i) {
    policy.on_ready(at_second(10 * i));
    EXPECT_TRUE(policy.on_death(at_second(10 * i + 5)).has_value());
  }
  EXPECT_EQ(policy.on_death(at_second(60)), std::nullopt);
  EXPECT_EQ(policy.deaths(), 7);
}

TEST(RestartPolicyTest, OldDeathsDoNotCount) {
  RestartPolicy policy(kLimits);
  for (int i = 0; i < 40; ++i) {
    policy.on_ready(at_second(20 * i));
    EXPECT_TRUE(policy.on_death(at_second(20 * i + 10)).has_value()) << i;
  }
  EXPECT_EQ(policy.deaths(), 6);
}

TEST(RestartPolicyTest, NoneAtAll) {
  RestartPolicy policy({.max_restarts = 0});
  policy.on_ready(at_second(1));
  EXPECT_EQ(policy.on_death(at_second(1000)), std::nullopt);
}

}  // namespace
}  // namespace asap
