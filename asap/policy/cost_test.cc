#include "asap/policy/cost.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

TEST(CostTest, BatchIsSumOfPiecesAndConstant) {
  const CostModel cost{2, 3, 5};
  BatchPlan plan;
  EXPECT_DOUBLE_EQ(cost.of(plan), 5);
  plan.pieces = {{1, 0, 10, true}, {2, 100, 1, true}};
  // 2·10·10 + 3·10, 2·1·(1 + 200) + 3, and 5.
  EXPECT_DOUBLE_EQ(cost.of(plan), 230 + 405 + 5);
}

TEST(CostTest, CuttingAPromptKeepsItsPairs) {
  const CostModel cost{1, 1, 0};
  EXPECT_DOUBLE_EQ(cost.piece(100, 0), cost.piece(60, 0) + cost.piece(40, 60));
}

}  // namespace
}  // namespace asap
