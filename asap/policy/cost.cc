#include "asap/policy/cost.h"

#include <algorithm>
#include <cmath>

#include "asap/base/check.h"

namespace asap {

double CostModel::of(const BatchPlan& plan) const {
  double cost = batch;
  for (const BatchPiece& p : plan.pieces) cost += piece(p.tokens, p.past);
  return cost;
}

double ExpertCost::item(int tokens) const {
  return std::max(plateau, slope * tokens);
}

int ExpertCost::knee_tokens() const {
  CHECK(slope > 0, "slope {}", slope);
  return static_cast<int>(std::ceil(plateau / slope));
}

}  // namespace asap
