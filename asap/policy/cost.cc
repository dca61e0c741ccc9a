#include "asap/policy/cost.h"

namespace asap {

double CostModel::of(const BatchPlan& plan) const {
  double cost = batch;
  for (const BatchPiece& p : plan.pieces) cost += piece(p.tokens, p.past);
  return cost;
}

}  // namespace asap
