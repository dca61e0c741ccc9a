// When and where batches start, by tables (see policy_harness.h).
#include "asap/policy/scheduler_policy.h"

#include <gtest/gtest.h>

#include "asap/policy/policy_harness.h"

namespace asap {
namespace {

SchedulerLimits limits_of(int groups, int stages) {
  SchedulerLimits limits;
  limits.groups = groups;
  limits.stages = stages;
  limits.max_batch_tokens = 8000;
  limits.knee_tokens = 2000;
  limits.kv_blocks = 10'000;
  return limits;
}

void expect_table(const SchedulerLimits& limits, const std::string& table) {
  EXPECT_EQ(run_table(limits, table), tidy_table(table));
}

TEST(SchedulerPolicyTest, AnIdleGroupNeverWaits) {
  expect_table(limits_of(2, 2), R"(
    0  +1:10/1   | g0s0[1:0+10*]
    1  +2:10/1   | g1s0[2:0+10*]
    2  +3:10/1   | wake@32
    3  done g1s0 | g1s0[3:0+10*]
  )");
}

TEST(SchedulerPolicyTest, ABusyGroupWaitsForTheKnee) {
  expect_table(limits_of(1, 2), R"(
    0  +1:10/1   | g0s0[1:0+10*]
    1  +2:1000/1 | wake@31
    2  +3:999/1  | wake@31
    3  +4:1/1    | g0s1[2:0+1000* 3:0+999* 4:0+1*]
  )");
}

TEST(SchedulerPolicyTest, ButNoLongerThanMaxWait) {
  expect_table(limits_of(1, 2), R"(
    0  +1:10/1   | g0s0[1:0+10*]
    5  +2:100/1  | wake@35
    20 +3:100/1  | wake@35
    34 .         | wake@35
    35 .         | g0s1[2:0+100* 3:0+100*]
    36 +4:100/1  | wake@66
    66 .         |
    67 done g0s1 | g0s1[4:0+100*]
  )");
}

TEST(SchedulerPolicyTest, ResidentsGoOnAtOnce) {
  expect_table(limits_of(1, 2), R"(
    0  +1:10/3    | g0s0[1:0+10*]
    1  +2:9000/1  | g0s1[2:0+8000]
    2  done g0s0  | g0s0[1:10+1*]
    3  done g0s1  | g0s1[2:8000+1000*]
    4  done g0s0  | g0s0[1:11+1*]
  )");
}

// Parts of one prompt never run side by side, though a stage is free.
TEST(SchedulerPolicyTest, PartsRunOneAfterAnother) {
  expect_table(limits_of(1, 3), R"(
    0  +1:20000/1 | g0s0[1:0+8000]
    9  done g0s0  | g0s0[1:8000+8000]
    19 done g0s0  | g0s0[1:16000+4000*]
    29 done g0s0  |
  )");
}

// A backlog is shared among what is free: idle groups first, at least the knee each.
TEST(SchedulerPolicyTest, ABacklogIsShared) {
  SchedulerLimits limits = limits_of(2, 2);
  limits.max_batch_tokens = 4000;
  expect_table(limits, R"(
    0  +1:4000/1 | g0s0[1:0+4000*]
    0  +2:4000/1 | g1s0[2:0+4000*]
    0  +3:4000/1 | g0s1[3:0+4000*]
    0  +4:4000/1 | g1s1[4:0+4000*]
    1  +5:1000/1 | wake@31
    1  +6:1000/1 | wake@31
    1  +7:1000/1 | wake@31
    1  lost g0   | lost(1 3) wake@31
    2  back g0   | g0s0[5:0+1000* 6:0+1000* 7:0+1000*]
  )");
  expect_table(limits, R"(
    0  +1:4000/1 | g0s0[1:0+4000*]
    0  lost g0   | lost(1)
    0  +2:4000/1 | g1s0[2:0+4000*]
    0  +3:4000/1 | g1s1[3:0+4000*]
    1  +4:1500/1 | wake@31
    1  +5:1500/1 | wake@31
    1  +6:1500/1 | wake@31
    1  +7:1500/1 | wake@31
    2  back g0   | g0s0[4:0+1500* 5:0+1500*] g0s1[6:0+1500* 7:0+1500*]
  )");
}

// What would make a batch larger than its share goes to a group that has nothing to do; the knee
// does not matter then. With one group, the short ones share a batch up to the knee.
TEST(SchedulerPolicyTest, IdleGroupsShareTheWork) {
  expect_table(limits_of(2, 2), R"(
    0  lost g0, lost g1           | lost() lost()
    1  +1:1000/1, +2:8000/1       | wake@31
    2  back g0, back g1           | g0s0[1:0+1000*] g1s0[2:0+8000*]
    3  done g0s0, done g1s0       |
    4  +3:500/1, +4:500/1         | g0s0[3:0+500* 4:0+500*]
    5  done g0s0                  |
    6  +5:1500/1, +6:1500/1       | g0s0[5:0+1500*] g1s0[6:0+1500*]
  )");
  expect_table(limits_of(1, 2), R"(
    0  +1:1500/1, +2:1500/1, +3:1500/1 | g0s0[1:0+1500* 2:0+1500* 3:0+1500*]
    1  done g0s0                       |
    2  +4:1500/1, +5:1500/1, +6:3000/1 | g0s0[4:0+1500* 5:0+1500*] g0s1[6:0+3000*]
  )");
}

TEST(SchedulerPolicyTest, LeastOutstandingCostFirst) {
  expect_table(limits_of(2, 2), R"(
    0  +1:3000/1 | g0s0[1:0+3000*]
    0  +2:2500/1 | g1s0[2:0+2500*]
    1  +3:2000/1 | g1s1[3:0+2000*]
    2  +4:2000/1 | g0s1[4:0+2000*]
  )");
}

TEST(SchedulerPolicyTest, ALostGroupGivesItsSequencesBack) {
  expect_table(limits_of(2, 2), R"(
    0  +1:3000/1  | g0s0[1:0+3000*]
    0  +2:3000/1  | g1s0[2:0+3000*]
    0  +3:3000/2  | g0s1[3:0+3000*]
    0  +4:9000/1  | g1s1[4:0+8000]
    1  +5:100/1   | wake@31
    2  -1         | wake@31
    3  done g0s1  | g0s1[3:3000+1* 5:0+100*]
    4  lost g0    | lost(3 5)
    5  +6:100/1   | wake@35
    6  done g1s0  | wake@35
    35 .          | g1s0[6:0+100*]
    36 back g0    |
    37 +7:100/1   | g0s0[7:0+100*]
  )");
}

TEST(SchedulerPolicyTest, WithoutGroupsSequencesWait) {
  expect_table(limits_of(1, 1), R"(
    0  lost g0   | lost()
    1  +1:100/1  | wake@31
    31 .         |
    40 back g0   | g0s0[1:0+100*]
  )");
}

TEST(SchedulerPolicyTest, KvUsageAndCounts) {
  SchedulerLimits limits = limits_of(2, 1);
  limits.kv_blocks = 10;
  PolicyHarness harness(limits);
  ASSERT_TRUE(harness.arrive(1, 300, 20, Instant{}));
  EXPECT_EQ(harness.policy().waiting(), 1);
  EXPECT_EQ(harness.policy().waiting_tokens(), 300);
  harness.start(Instant{});
  EXPECT_EQ(harness.policy().waiting(), 0);
  EXPECT_EQ(harness.policy().running(), 1);
  EXPECT_DOUBLE_EQ(harness.policy().kv_usage(), 0.25);
  EXPECT_EQ(harness.policy().blocks(1).size(), 5u);
  harness.policy().on_cancel(77);
  harness.policy().on_sampled(77, true);
  harness.check();
}

SchedulerLimits chained() {
  SchedulerLimits limits = limits_of(1, 3);
  limits.chain = true;
  return limits;
}

TEST(ChainTest, PartsOfAPromptRunAtTheSameTime) {
  expect_table(chained(), R"(
    0  +1:20000/1  | g0s0[1:0+8000] g0s1[1:8000+8000<s0] g0s2[1:16000+4000*<s1]
    1  done g0s0   |
    2  done g0s1   |
    3  done g0s2   |
  )");
  expect_table(chained(), R"(
    0  +1:30000/2  | g0s0[1:0+8000] g0s1[1:8000+8000<s0] g0s2[1:16000+8000<s1]
    1  done g0s0   | g0s0[1:24000+6000*<s2]
    2  done g0s1   |
    3  done g0s2   |
    4  done g0s0   | g0s0[1:30000+1*]
  )");
}

TEST(ChainTest, ACancelledPromptLeavesWithItsLastPart) {
  expect_table(chained(), R"(
    0  +1:20000/1  | g0s0[1:0+8000] g0s1[1:8000+8000<s0] g0s2[1:16000+4000*<s1]
    1  -1          |
    2  done g0s0   |
    3  done g0s2   |
    4  done g0s1   |
    5  +2:10/1     | g0s0[2:0+10*]
  )");
}

TEST(ChainTest, ALonePromptIsSpreadInPartsOfEqualCost) {
  SchedulerLimits limits = chained();
  limits.split_lone_tokens = 1000;
  limits.cost = {0, 1, 0};
  expect_table(limits, R"(
    0  +1:4096/1   | g0s0[1:0+2048] g0s1[1:2048+2048*<s0]
    1  done g0s0   |
    2  done g0s1   |
    3  +2:900/1    | g0s0[2:0+900*]
  )");
  limits.cost = {1, 0, 0};  // quadratic: the second half of the work is the last 29 %
  expect_table(limits, R"(
    0  +1:4096/1   | g0s0[1:0+2944] g0s1[1:2944+1152*<s0]
  )");
}

TEST(ChainTest, NobodyIsSpreadWhileOthersWait) {
  SchedulerLimits limits = chained();
  limits.groups = 1;
  limits.stages = 2;
  limits.split_lone_tokens = 1000;
  expect_table(limits, R"(
    0  +1:10/1    | g0s0[1:0+10*]
    1  +2:1500/1  | wake@31
    2  +3:1500/1  | g0s1[2:0+1500* 3:0+1500*]
  )");
}

TEST(SharedBatchTest, SeveralPromptsTakeNoMoreThanTheirBound) {
  SchedulerLimits limits = limits_of(1, 1);
  limits.max_shared_tokens = 3000;
  expect_table(limits, R"(
    0  +1:10/1                       | g0s0[1:0+10*]
    1  +2:2000/1                     | wake@31
    1  +3:1500/1                     | wake@31
    1  +4:7000/1                     | wake@31
    2  done g0s0                     | g0s0[2:0+2000*] wake@31
    3  done g0s0                     | g0s0[3:0+1500*] wake@31
    4  done g0s0                     | g0s0[4:0+7000*]
  )");
}

SchedulerLimits paper() {
  SchedulerLimits limits = limits_of(2, 2);
  limits.pairing = Pairing::paper;
  limits.max_wait = Duration{0};
  limits.partner_wait = Duration::millis(30);
  limits.max_batch_tokens = 32'000;
  limits.exclusive_tokens = 16'000;
  return limits;
}

TEST(PaperPairingTest, WaitsForTwoBatches) {
  expect_table(paper(), R"(
    0  +1:1500/1  | wake@30
    1  +2:1500/1  | wake@30
    2  +3:1500/1  | g0s0[1:0+1500* 2:0+1500* 3:0+1500*]
    3  +4:2500/1  | wake@33
    4  +5:2500/1  | g1s0[4:0+2500*] g1s1[5:0+2500*]
    5  +6:3000/1  | wake@35
    6  +7:3000/1  | wake@35
    7  done g1s0  | wake@35
    8  done g1s1  | g1s0[6:0+3000*] g1s1[7:0+3000*]
  )");
}

TEST(PaperPairingTest, AStageIsNotRefilledAlone) {
  expect_table(paper(), R"(
    0  +1:100/1   | wake@30
    30 .          | g0s0[1:0+100*]
    31 +2:9000/1  | g1s0[2:0+9000*]
    32 +3:9000/1  | wake@62
    62 .          |
    70 done g0s0  | g0s0[3:0+9000*]
  )");
}

TEST(PaperPairingTest, LongPromptsRunAlone) {
  expect_table(paper(), R"(
    0  +1:16001/1 | g0s0[1:0+16001*]
    1  +2:16000/1 | g1s0[2:0+16000*]
    2  +3:100/1   | wake@32
    3  +4:20000/1 | wake@32
    4  +5:16000/1 | wake@32
    5  done g0s0  | g0s0[3:0+100* 5:0+16000*]  wake@33
    6  done g0s0  | g0s0[4:0+20000*]
    7  done g0s0  |
  )");
}

TEST(PaperPairingTest, PartsOfALongPromptRunAloneToo) {
  expect_table(paper(), R"(
    0  +1:40000/1 | g0s0[1:0+32000]
    1  +2:500/1   | wake@31
    9  done g0s0  | g0s0[1:32000+8000*]  wake@31
    31 .          | g1s0[2:0+500*]
  )");
}

TEST(SchedulerPolicyTest, WhatAGroupLosesWaitsAgainBeforeLaterArrivals) {
  const auto policy = make_scheduler_policy({.groups = 1,
                                             .stages = 1,
                                             .max_batch_tokens = 100,
                                             .kv_blocks = 64,
                                             .max_queued = 1,
                                             .cost = {}});
  const auto at = [](int64_t ms) { return Instant{0} + Duration::millis(ms); };
  ASSERT_TRUE(policy->admit(1, 60, 5, at(0), 0));
  ASSERT_NE(policy->next(at(0)), nullptr);
  policy->on_sampled(1, false);
  policy->on_batch_done(0, 0);
  ASSERT_TRUE(policy->admit(2, 60, 1, at(1), 0));
  EXPECT_EQ(policy->on_group_lost(0), std::vector<uint64_t>{1});
  policy->requeue(1, 61, 4, at(0), 0);  // the queue is full: no reason to refuse it
  EXPECT_EQ(policy->waiting(), 2);
  EXPECT_EQ(policy->next(at(2)), nullptr);
  policy->on_group_back(0);
  const BatchPlan* plan = policy->next(at(3));
  ASSERT_NE(plan, nullptr);
  ASSERT_GE(plan->pieces.size(), 1U);
  EXPECT_EQ(plan->pieces[0].sequence, 1U);
  EXPECT_EQ(plan->pieces[0].past, 0);
  EXPECT_EQ(plan->pieces[0].tokens, 61);
  EXPECT_TRUE(plan->pieces[0].sample);
  policy->check();
}

TEST(SchedulerPolicyTest, WhatAGroupLosesKeepsItsPriority) {
  const auto policy = make_scheduler_policy(
      {.groups = 1, .stages = 1, .max_batch_tokens = 100, .kv_blocks = 64, .cost = {}});
  policy->requeue(1, 90, 1, Instant{0}, /*priority=*/1);
  policy->requeue(2, 90, 1, Instant{0} + Duration::millis(1), /*priority=*/0);
  const BatchPlan* plan = policy->next(Instant{0} + Duration::millis(100));
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(plan->pieces.size(), 1U);
  EXPECT_EQ(plan->pieces[0].sequence, 2U);
}

}  // namespace
}  // namespace asap
