// What a batch holds, by tables (see policy_harness.h). One group with one stage unless said
// otherwise, so that every batch shows one decision of the batcher.
#include "asap/policy/batcher.h"

#include <gtest/gtest.h>

#include "asap/policy/asynchronous.h"
#include "asap/policy/policy_harness.h"

namespace asap {
namespace {

SchedulerLimits one_stage() {
  SchedulerLimits limits;
  limits.stages = 1;
  limits.max_batch_tokens = 1000;
  limits.max_batch_seqs = 4;
  limits.kv_blocks = 100;
  return limits;
}

void expect_table(const SchedulerLimits& limits, const std::string& table) {
  EXPECT_EQ(run_table(limits, table), tidy_table(table));
}

TEST(BatcherTest, GrowsWithTheBacklogUpToS) {
  expect_table(one_stage(), R"(
    0  +1:400/1  | g0s0[1:0+400*]
    1  +2:300/1  | wake@31
    2  +3:400/1  | wake@31
    3  +4:300/1  | wake@31
    4  +5:10/1   | wake@31
    9  done g0s0 | g0s0[2:0+300* 3:0+400* 4:0+300*]  wake@34
    19 done g0s0 | g0s0[5:0+10*]
  )");
}

TEST(BatcherTest, FillsTheRestWithWhatFits) {
  expect_table(one_stage(), R"(
    0  +1:400/1  | g0s0[1:0+400*]
    1  +2:600/1  | wake@31
    1  +3:500/1  | wake@31
    1  +4:400/1  | wake@31
    9  done g0s0 | g0s0[2:0+600* 4:0+400*]  wake@31
    19 done g0s0 | g0s0[3:0+500*]
  )");
}

TEST(BatcherTest, BoundsTheSequencesOfABatch) {
  expect_table(one_stage(), R"(
    0  +1:10/1   | g0s0[1:0+10*]
    1  +2:10/1   | wake@31
    1  +3:10/1   | wake@31
    1  +4:10/1   | wake@31
    1  +5:10/1   | wake@31
    1  +6:10/1   | wake@31
    9  done g0s0 | g0s0[2:0+10* 3:0+10* 4:0+10* 5:0+10*]  wake@31
    19 done g0s0 | g0s0[6:0+10*]
  )");
}

TEST(BatcherTest, CutsAtS) {
  expect_table(one_stage(), R"(
    0  +1:999/1  | g0s0[1:0+999*]
    9  done g0s0 |
    10 +2:1000/1 | g0s0[2:0+1000*]
    19 done g0s0 |
    20 +3:1001/1 | g0s0[3:0+1000]
    29 done g0s0 | g0s0[3:1000+1*]
    39 done g0s0 |
    40 +4:2500/1 | g0s0[4:0+1000]
    49 done g0s0 | g0s0[4:1000+1000]
    59 done g0s0 | g0s0[4:2000+500*]
    69 done g0s0 |
  )");
}

// 2 is longer than S and takes what remains, down to 64 tokens; 4 would fit a batch of its own.
TEST(BatcherTest, OnlyLongPromptsOrTheFirstAreCut) {
  expect_table(one_stage(), R"(
    0  +9:10/1   | g0s0[9:0+10*]
    1  +1:800/1  | wake@31
    2  +2:1001/1 | wake@31
    9  done g0s0 | g0s0[1:0+800* 2:0+200]
    19 done g0s0 | g0s0[2:200+801*]
    20 +3:950/1  | wake@50
    21 +4:900/1  | wake@50
    29 done g0s0 | g0s0[3:0+950*]  wake@51
    30 +5:1001/1 | wake@51
    31 .         | wake@51
    39 done g0s0 | g0s0[4:0+900* 5:0+100]
    49 done g0s0 | g0s0[5:100+901*]
  )");
}

TEST(BatcherTest, TheFirstIsCutBesideGeneratedTokens) {
  expect_table(one_stage(), R"(
    0  +1:10/3   | g0s0[1:0+10*]
    1  +2:1000/1 | wake@31
    9  done g0s0 | g0s0[1:10+1* 2:0+999]
    19 done g0s0 | g0s0[1:11+1* 2:999+1*]
    29 done g0s0 |
  )");
}

// Generated tokens first, then parts in the queue's order, then new sequences.
TEST(BatcherTest, OrderInABatch) {
  expect_table(one_stage(), R"(
    0  +1:1100/1 | g0s0[1:0+1000]
    1  +2:100/2  | wake@31
    9  done g0s0 | g0s0[1:1000+100* 2:0+100*]
    10 +3:1200/1 | wake@40
    10 +4:5/1    | wake@40
    19 done g0s0 | g0s0[2:100+1* 3:0+999]  wake@40
    29 done g0s0 | g0s0[3:999+201* 4:0+5*]
  )");
}

TEST(BatcherTest, GeneratingSequencesLeaveAPlaceToAPart) {
  SchedulerLimits limits = one_stage();
  limits.stages = 2;
  limits.max_batch_seqs = 2;
  expect_table(limits, R"(
    0  +1:10/9                | g0s0[1:0+10*]
    1  +2:10/9                | g0s1[2:0+10*]
    2  +3:2900/1              | wake@32
    9  done g0s0              | g0s0[1:10+1* 3:0+999]
    19 done g0s0, done g0s1   | g0s0[1:11+1* 3:999+999] g0s1[2:10+1*]
  )");
}

// 2 finds no blocks. 4 may pass it, but 3, which would stay for several batches, may not.
TEST(BatcherTest, PromptsThatMustBeCutPassNobody) {
  expect_table(one_stage(), R"(
    0  +1:300/3000                    | g0s0[1:0+300*]
    1  +2:900/2600, +3:1500/1, +4:9/1 | wake@31
    9  done g0s0                      | g0s0[1:300+1* 4:0+9*]  wake@31
    10 -1, -2                         | wake@31
    19 done g0s0                      | g0s0[3:0+1000]
  )");
}

TEST(BatcherTest, ShorterFirstButAged) {
  SchedulerLimits limits = one_stage();
  limits.max_batch_tokens = 1000;
  limits.max_batch_seqs = 1;
  limits.kappa_ns = 1e6;  // a token weighs a millisecond
  expect_table(limits, R"(
    0    +1:10/1   | g0s0[1:0+10*]
    1    +2:500/1  | wake@31
    2    +3:100/1  | wake@31
    9    done g0s0 | g0s0[3:0+100*]  wake@31
    300  +4:100/1  |
    301  +5:300/1  |
    400  done g0s0 | g0s0[4:0+100*]
    402  +6:100/1  |
    500  done g0s0 | g0s0[2:0+500*]
    600  done g0s0 | g0s0[6:0+100*]
    700  done g0s0 | g0s0[5:0+300*]
  )");
}

TEST(BatcherTest, TiesGoToTheLowerId) {
  SchedulerLimits limits = one_stage();
  limits.max_batch_seqs = 1;
  expect_table(limits, R"(
    0  +9:10/1   | g0s0[9:0+10*]
    1  +3:10/1   | wake@31
    1  +1:10/1   | wake@31
    1  +2:10/1   | wake@31
    9  done g0s0 | g0s0[1:0+10*]  wake@31
    19 done g0s0 | g0s0[2:0+10*]  wake@31
    29 done g0s0 | g0s0[3:0+10*]
  )");
}

// 10 blocks. 1 holds 6 of them for long; 2 needs 8. Others pass it for a second, then no more.
TEST(BatcherTest, SmallOnesPassAPromptWithoutBlocksForAWhile) {
  SchedulerLimits limits = one_stage();
  limits.kv_blocks = 10;
  expect_table(limits, R"(
    0    +1:300/84  | g0s0[1:0+300*]
    1    +2:511/1   | wake@31
    2    +3:10/1    | wake@31
    10   done g0s0  | g0s0[1:300+1* 3:0+10*]  wake@31
    500  done g0s0  | g0s0[1:301+1*]
    501  +4:10/1    |
    1009 done g0s0  | g0s0[1:302+1* 4:0+10*]
    1011 +5:10/1    |
    1012 done g0s0  | g0s0[1:303+1*]
    1013 done g0s0  | g0s0[1:304+1*]
    1014 -1         |
    1015 done g0s0  | g0s0[2:0+511* 5:0+10*]
  )");
}

// Only one group is held for the prompt that waits for blocks; the others go on.
TEST(BatcherTest, OneGroupIsHeld) {
  SchedulerLimits limits = one_stage();
  limits.groups = 2;
  limits.kv_blocks = 10;
  expect_table(limits, R"(
    0    +1:300/84  | g0s0[1:0+300*]
    0    +2:200/56  | g1s0[2:0+200*]
    1    +3:511/1   | wake@31
    10   done g0s0  | g0s0[1:300+1*]  wake@31
    10   done g1s0  | g1s0[2:200+1*]  wake@31
    1500 done g1s0  | g1s0[2:201+1*]
    1501 +4:10/1    |
    1502 done g1s0  | g1s0[2:202+1*]
    1503 done g0s0  | g0s0[1:301+1* 4:0+10*]
    1504 -2         |
    1505 done g1s0  | g1s0[3:0+511*]
  )");
}

TEST(BatcherTest, CancelledSequencesKeepTheirBlocksUntilTheBatchIsDone) {
  SchedulerLimits limits = one_stage();
  limits.kv_blocks = 2;
  expect_table(limits, R"(
    0  +1:100/1  | g0s0[1:0+100*]
    1  +2:100/1  | wake@31
    2  +3:100/1  | wake@31
    3  -1        | wake@31
    4  -2        | wake@32
    9  done g0s0 | g0s0[3:0+100*]
  )");
}

TEST(BatcherTest, ACancelledPartGoesNoFurther) {
  expect_table(one_stage(), R"(
    0  +1:2500/1 | g0s0[1:0+1000]
    1  -1        |
    9  done g0s0 |
    10 +2:10/1   | g0s0[2:0+10*]
  )");
}

TEST(BatcherTest, RefusesWhatCannotFitOrWait) {
  SchedulerLimits limits = one_stage();
  limits.kv_blocks = 10;
  limits.max_queued = 3;
  limits.max_queued_tokens = 300;
  expect_table(limits, R"(
    0  +1:640/1  | refused(invalid)
    0  +1:639/1  | g0s0[1:0+639*]
    1  +2:400/1  | wake@31
    1  +3:1/1    | refused(overloaded) wake@31
    2  -2        |
    3  +4:100/1  | wake@33
    3  +5:100/1  | wake@33
    3  +6:101/1  | refused(overloaded) wake@33
    3  +6:100/1  | wake@33
    3  +7:1/1    | refused(overloaded) wake@33
  )");
}

TEST(BatcherDeathTest, ABatchEndsWithItsTokens) {
  AsynchronousPolicy policy(one_stage());
  ASSERT_TRUE(policy.admit(1, 10, 2, Instant{}, 0));
  ASSERT_NE(policy.next(Instant{}), nullptr);
  EXPECT_DEATH(policy.on_batch_done(0, 0), "got no token");
}

TEST(BatcherDeathTest, NoTokenBeyondTheReservation) {
  AsynchronousPolicy policy(one_stage());
  ASSERT_TRUE(policy.admit(1, 10, 1, Instant{}, 0));
  ASSERT_NE(policy.next(Instant{}), nullptr);
  EXPECT_DEATH(policy.on_sampled(1, false), "goes on after 1 output tokens");
}

}  // namespace
}  // namespace asap
