// What work costs: a batch on its attention group, an item on the experts. The unit is the caller's
// (multiply-adds, or seconds once the coefficients are measured): policies only compare and add.
#pragma once

#include "asap/policy/batch.h"

namespace asap {

// pair·Σ new·(new + 2·past) + token·Σ new + batch.
struct CostModel {
  double pair = 0;   // per n·(n + 2·past): half of what one (query, key) pair costs
  double token = 1;  // per new token
  double batch = 0;  // per batch

  // One sequence's piece, without the batch's constant.
  double piece(int new_tokens, int past) const {
    const double n = new_tokens;
    return pair * n * (n + 2.0 * past) + token * n;
  }
  double of(const BatchPlan& plan) const;
};

}  // namespace asap
