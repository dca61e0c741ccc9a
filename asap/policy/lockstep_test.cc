// Steps of the synchronous engines, by tables (see policy_harness.h).
#include "asap/policy/lockstep.h"

#include <gtest/gtest.h>

#include "asap/policy/policy_harness.h"

namespace asap {
namespace {

// "default": prompts together up to 1000 tokens, a longer one alone and whole.
SchedulerLimits whole(int groups) {
  SchedulerLimits limits;
  limits.groups = groups;
  limits.stages = 1;
  limits.lockstep = true;
  limits.max_shared_tokens = 1000;
  limits.max_batch_tokens = 10'000;
  limits.max_batch_seqs = 4;
  limits.kv_blocks = 1000;
  limits.max_wait = Duration::millis(60);
  return limits;
}

// "chunked": at most 1000 tokens of a group in a step.
SchedulerLimits chunked(int groups) {
  SchedulerLimits limits = whole(groups);
  limits.max_batch_tokens = 1000;
  limits.cut_to_share = true;
  return limits;
}

void expect_steps(const SchedulerLimits& limits, const std::string& table) {
  EXPECT_EQ(run_table(limits, table), tidy_table(table));
}

TEST(LockstepPolicyTest, WaitsToFillAndAllGroupsStartTogether) {
  expect_steps(whole(2), R"(
    0  +1:10/1   | wake@60
    5  +2:20/1   | wake@60
    60 .         | g0s0[2:0+20*] g1s0[1:0+10*]
    61 +3:5/1    |
    62 done g1s0 |
    70 done g0s0 | wake@121
    121 .        | g0s0[3:0+5*] g1s0[]
  )");
}

TEST(LockstepPolicyTest, AFullStepDoesNotWait) {
  expect_steps(whole(2), R"(
    0  +1:800/1  | wake@60
    1  +2:900/1  | wake@60
    2  +3:300/1  | g0s0[2:0+900*] g1s0[1:0+800*]
    9  done g0s0 |
    9  done g1s0 | wake@62
    62 .         | g0s0[3:0+300*] g1s0[]
  )");
}

TEST(LockstepPolicyTest, BalancesTokens) {
  expect_steps(whole(2), R"(
    0  +1:100/1  | wake@60
    1  +2:200/1  | wake@60
    2  +3:300/1  | wake@60
    3  +4:600/1  | wake@60
    60 .         | g0s0[4:0+600*] g1s0[3:0+300* 2:0+200* 1:0+100*]
  )");
}

TEST(LockstepPolicyTest, ALongPromptIsAloneAndWhole) {
  expect_steps(whole(2), R"(
    0  +1:5000/1 | g0s0[1:0+5000*] g1s0[]
    1  +2:10/1   |
    1  +3:2000/1 |
    2  done g0s0 |
    2  done g1s0 | g0s0[3:0+2000*] g1s0[2:0+10*]
  )");
}

TEST(LockstepPolicyTest, GeneratingSequencesAreServedInEachStep) {
  expect_steps(whole(2), R"(
    0  +1:10/3   | wake@60
    60 .         | g0s0[1:0+10*] g1s0[]
    61 +2:3000/1 |
    62 done g0s0 |
    63 done g1s0 | g0s0[1:10+1*] g1s0[2:0+3000*]
    64 +3:2000/1 |
    65 done g0s0 |
    66 done g1s0 | g0s0[1:11+1*] g1s0[3:0+2000*]
  )");
}

TEST(LockstepPolicyTest, ChunksOfAPromptFillTheirGroupAndTheRestIsShared) {
  expect_steps(chunked(2), R"(
    0  +1:2500/1 | g0s0[1:0+1000] g1s0[]
    1  +2:300/2  |
    1  +3:900/1  |
    2  done g0s0 |
    2  done g1s0 | g0s0[1:1000+1000] g1s0[3:0+900* 2:0+100]
    3  done g1s0 |
    4  done g0s0 | g0s0[1:2000+500*] g1s0[2:100+200*]
    5  done g0s0 |
    6  done g1s0 | g0s0[] g1s0[2:300+1*]
  )");
}

TEST(LockstepPolicyTest, SeatsAreForEverybodyWhoLivesThere) {
  expect_steps(whole(1), R"(
    0  +1:10/9   | wake@60
    0  +2:10/9   | wake@60
    0  +3:10/9   | wake@60
    0  +4:10/9   | g0s0[1:0+10* 2:0+10* 3:0+10* 4:0+10*]
    1  +5:10/1   |
    2  done g0s0 | g0s0[1:10+1* 2:10+1* 3:10+1* 4:10+1*]
    3  -2        |
    4  done g0s0 | g0s0[1:11+1* 3:11+1* 4:11+1* 5:0+10*]
  )");
}

TEST(LockstepPolicyTest, TheStepEndsWithoutALostGroup) {
  expect_steps(whole(2), R"(
    0  +1:800/1,+2:700/2,+3:700/1 | g0s0[1:0+800*] g1s0[2:0+700*]
    1  lost g0                    | lost(1)
    2  done g1s0                  | g1s0[2:700+1* 3:0+700*]
    3  done g1s0                  |
    4  back g0                    |
    5  +4:10/1                    | wake@65
    65 .                          | g0s0[4:0+10*] g1s0[]
  )");
}

// Residents hold the memory that the first of the queue needs: others pass it, but not for ever.
TEST(LockstepPolicyTest, TheFirstOfTheQueueIsNotPassedForEver) {
  SchedulerLimits limits = chunked(1);
  limits.kv_blocks = 20;
  limits.pass_bound = Duration::millis(100);
  expect_steps(limits, R"(
    0   +1:900/9,+2:600/1,+3:100/1 | g0s0[1:0+900* 3:0+100*]
    100 done g0s0                  | g0s0[1:900+1*]
    101 +4:100/1                   |
    150 done g0s0                  | g0s0[1:901+1* 4:0+100*]
    151 +5:100/1                   |
    200 done g0s0                  | g0s0[1:902+1*]
    201 -1                         |
    202 done g0s0                  | g0s0[2:0+600* 5:0+100*]
  )");
}

}  // namespace
}  // namespace asap
