#include "asap/policy/pairer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace asap {
namespace {

SchedulerLimits limits(int groups, int stages, Pairing pairing = Pairing::refill) {
  SchedulerLimits limits;
  limits.groups = groups;
  limits.stages = stages;
  limits.pairing = pairing;
  return limits;
}

std::string slots(Pairer& pairer, std::vector<double> backlog) {
  pairer.check();
  std::string out;
  for (const Pairer::Slot s : pairer.slots(backlog)) {
    out += fmt::format("{}g{}s{}", out.empty() ? "" : " ", s.group, s.stage);
  }
  return out;
}

BatchPlan plan(int group, int stage, bool exclusive = false) {
  BatchPlan plan;
  plan.group = group;
  plan.stage = stage;
  plan.exclusive = exclusive;
  return plan;
}

TEST(PairerTest, IdleFirstThenLeastOutstanding) {
  Pairer pairer(limits(3, 2));
  EXPECT_EQ(slots(pairer, {0, 0, 0}), "g0s0 g1s0 g2s0");
  pairer.on_start(plan(0, 0), 50);
  EXPECT_EQ(slots(pairer, {0, 0, 0}), "g1s0 g2s0 g0s1");
  pairer.on_start(plan(1, 0), 20);
  EXPECT_EQ(slots(pairer, {0, 0, 9}), "g2s0 g1s1 g0s1");
  pairer.on_start(plan(2, 0), 10);
  EXPECT_EQ(slots(pairer, {0, 0, 0}), "g2s1 g1s1 g0s1");
  EXPECT_EQ(slots(pairer, {0, 0, 90}), "g1s1 g0s1 g2s1");
}

TEST(PairerTest, AFreedStageIsOfferedAtOnce) {
  Pairer pairer(limits(1, 3));
  for (int stage = 0; stage < 3; ++stage) pairer.on_start(plan(0, stage), 1);
  EXPECT_FALSE(pairer.any_free());
  EXPECT_EQ(slots(pairer, {0}), "");
  pairer.on_batch_done(0, 1);
  EXPECT_TRUE(pairer.any_free());
  EXPECT_EQ(slots(pairer, {0}), "g0s1");
}

TEST(PairerTest, RoomCountsWhatOthersOffer) {
  Pairer pairer(limits(3, 2));
  EXPECT_EQ(pairer.room(0).free_stages, 6);
  EXPECT_TRUE(pairer.room(0).other_idle);
  pairer.on_start(plan(1, 0), 1);
  pairer.on_group_lost(2);
  EXPECT_EQ(pairer.room(0).free_stages, 3);
  EXPECT_FALSE(pairer.room(0).other_idle);
  EXPECT_TRUE(pairer.room(0).whole_group);
  EXPECT_FALSE(pairer.room(1).whole_group);
  EXPECT_TRUE(pairer.room(1).other_idle);
}

TEST(PairerTest, ALostGroupOffersNothingUntilItIsBack) {
  Pairer pairer(limits(2, 2));
  pairer.on_start(plan(0, 0), 1);
  pairer.on_group_lost(0);
  EXPECT_EQ(slots(pairer, {0, 0}), "g1s0");
  pairer.on_group_back(0);
  EXPECT_EQ(slots(pairer, {0, 0}), "g0s0 g1s0");
}

TEST(PairerTest, PaperPairsStartTogether) {
  Pairer pairer(limits(2, 2, Pairing::paper));
  pairer.on_start(plan(1, 0), 100);
  EXPECT_TRUE(pairer.open(1));
  EXPECT_EQ(slots(pairer, {0, 0}), "g1s1 g0s0") << "the partner comes first";
  EXPECT_EQ(pairer.room(1).free_stages, 1);
  pairer.on_start(plan(1, 1), 100);
  EXPECT_EQ(slots(pairer, {0, 0}), "g0s0");
  pairer.on_batch_done(1, 0);
  EXPECT_EQ(slots(pairer, {0, 0}), "g0s0") << "one stage of a pair is not refilled";
  pairer.on_batch_done(1, 1);
  EXPECT_EQ(slots(pairer, {0, 0}), "g0s0 g1s0");
}

TEST(PairerTest, PaperClosesAPairWithoutPartner) {
  Pairer pairer(limits(2, 2, Pairing::paper));
  pairer.on_start(plan(0, 0), 1);
  pairer.on_no_partner(0);
  EXPECT_EQ(slots(pairer, {0, 0}), "g1s0");
  pairer.on_start(plan(1, 0, true), 1);
  EXPECT_EQ(slots(pairer, {0, 0}), "") << "an exclusive batch has no partner";
}

TEST(PairerDeathTest, AStageRunsOneBatch) {
  Pairer pairer(limits(1, 2));
  pairer.on_start(plan(0, 0), 1);
  EXPECT_DEATH(pairer.on_start(plan(0, 0), 1), "is taken");
  EXPECT_DEATH(pairer.on_batch_done(0, 1), "runs no batch");
}

}  // namespace
}  // namespace asap
