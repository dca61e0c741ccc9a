// Admission by time: refusals against a measured speed, and the queue's order by priority.
#include "asap/policy/admission.h"

#include <gtest/gtest.h>

#include "asap/policy/sequence_book.h"

namespace asap {
namespace {

Instant at(double seconds) {
  return Instant{0} + Duration::seconds(seconds);
}

SchedulerLimits limits() {
  SchedulerLimits limits;
  limits.kv_blocks = 1 << 20;
  limits.kappa_ns = 1;
  return limits;  // cost: 1 per token
}

// `rate` tokens a second, measured for 10 s with a backlog.
void measure(Admission& admission, double rate) {
  for (int i = 0; i <= 100; ++i) admission.on_done(rate / 10, true, at(0.1 * i));
}

TEST(WorkRate, CountsOnlyTimeWithABacklog) {
  WorkRate rate;
  rate.on_done(100, false, at(1));
  rate.on_done(100, false, at(2));
  EXPECT_EQ(rate.per_second(), 0);
  rate.on_done(100, true, at(10));  // the time before had no backlog
  EXPECT_EQ(rate.per_second(), 0);
  for (int i = 1; i <= 20; ++i) rate.on_done(50, true, at(10 + 0.5 * i));
  EXPECT_NEAR(rate.per_second(), 100, 1);
}

TEST(WorkRate, FollowsAChange) {
  WorkRate rate;
  for (int i = 0; i < 600; ++i) rate.on_done(10, true, at(0.1 * i));
  EXPECT_NEAR(rate.per_second(), 100, 2);
  for (int i = 600; i < 1600; ++i) rate.on_done(5, true, at(0.1 * i));  // 100 s later
  EXPECT_NEAR(rate.per_second(), 50, 3);
}

TEST(Admission, TakesEverythingUntilTheSpeedIsKnown) {
  Admission admission(Duration::seconds(1));
  SequenceBook book(limits());
  for (uint64_t id = 0; id < 100; ++id) {
    EXPECT_TRUE(admission.check(book.queue(), 1000, 0, Duration{1}));
    ASSERT_TRUE(book.admit(id, 1000, 1, at(0)));
  }
}

TEST(Admission, RefusesWorkBeyondTheLimitAndSaysWhen) {
  Admission admission(Duration::seconds(5));
  measure(admission, 1000);
  SequenceBook book(limits());
  uint64_t id = 0;
  // 5 s at 1,000 tokens a second; the first is always taken.
  while (admission.check(book.queue(), 500, 0, {})) ASSERT_TRUE(book.admit(++id, 500, 1, at(10)));
  EXPECT_EQ(id, 10u);
  EXPECT_NEAR(admission.waiting_seconds(book.queue()), 5, 0.05);
  const Status refused = admission.check(book.queue(), 2500, 0, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::overloaded);
  EXPECT_NEAR(refused.error().retry_after_s, 2.5, 0.05);
  book.on_cancel(1);  // room again
  EXPECT_TRUE(admission.check(book.queue(), 500, 0, {}));
}

TEST(Admission, AnIdleInstanceTakesAPromptOfAnyLength) {
  Admission admission(Duration::seconds(5));
  measure(admission, 10);
  const SequenceBook book(limits());
  EXPECT_TRUE(admission.check(book.queue(), 100'000, 0, Duration::seconds(1)));
}

TEST(Admission, ADeadlineCountsOnlyWhatIsAhead) {
  Admission admission(Duration{0});
  measure(admission, 1000);
  SequenceBook book(limits());
  ASSERT_TRUE(book.admit(1, 3000, 1, at(0)));
  ASSERT_TRUE(book.admit(2, 6000, 1, at(1)));
  const auto check = [&](int64_t key, double timeout) {
    return admission.check(book.queue(), 100, key, Duration::seconds(timeout)).has_value();
  };
  EXPECT_TRUE(check(at(2).ns, 10));
  EXPECT_FALSE(check(at(2).ns, 8));   // 9 s are ahead
  EXPECT_TRUE(check(at(0.5).ns, 4));  // 3 s
  EXPECT_FALSE(check(at(0.5).ns, 2));
  EXPECT_TRUE(check(at(-1).ns, 0.001));  // the first of the queue
}

TEST(QueueKey, APriorityStepWeighsASecond) {
  SequenceBook book(limits());
  ASSERT_TRUE(book.admit(1, 10, 1, at(0)));
  ASSERT_TRUE(book.admit(2, 10, 1, at(3), /*priority=*/-2));
  ASSERT_TRUE(book.admit(3, 10, 1, at(3), /*priority=*/-4));
  ASSERT_TRUE(book.admit(4, 10, 1, at(0), /*priority=*/5));
  std::vector<uint64_t> order;
  for (size_t i = 0; i < book.queue().size(); ++i) order.push_back(book.queue().at(i).id);
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 1, 2, 4}));
  book.check();
}

}  // namespace
}  // namespace asap
