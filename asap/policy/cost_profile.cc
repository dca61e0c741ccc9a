#include "asap/policy/cost_profile.h"

#include <algorithm>
#include <cmath>

namespace asap {

namespace {

// Absurd coefficients still give a time: half of the longest, so that two can be added.
Duration millis(double ms) {
  return {static_cast<int64_t>(std::llround(std::min(ms * 1e6, 4e18)))};
}

double kilo(int tokens) {
  return tokens / kKiloTokens;
}

// Share of what a rank sends that leaves it.
double remote(int ranks) {
  return (ranks - 1.0) / ranks;
}

double ratio(int reference, int ranks) {
  return static_cast<double>(reference) / ranks;
}

}  // namespace

Duration CostProfile::attention(int tokens, double pairs, int ranks) const {
  const double w = pairs / (kKiloTokens * kKiloTokens);
  return millis(a0 + ((b - tpc) * kilo(tokens) + g * w) * ratio(ref_tp, ranks));
}

Duration CostProfile::collectives(int tokens, int ranks) const {
  if (ranks == 1 || ref_tp == 1) return {0};
  return millis(tpc * kilo(tokens) * remote(ranks) / remote(ref_tp));
}

Duration CostProfile::experts(int tokens, int expert_ranks) const {
  return millis(m0 + m * std::max(tau, kilo(tokens)) * ratio(ref_ep, expert_ranks));
}

Duration CostProfile::dispatch(int tokens, int ranks) const {
  return millis(c0 + c1 * kilo(tokens) * ratio(ref_tp, ranks));
}

Duration CostProfile::receive(int tokens, int expert_ranks) const {
  return millis(r0 + r1 * kilo(tokens) * ratio(ref_ep, expert_ranks));
}

Duration CostProfile::combine(int tokens, int ranks) const {
  return millis(d0 + d1 * kilo(tokens) * ratio(ref_tp, ranks));
}

Duration CostProfile::add(int tokens, int ranks) const {
  return millis(q0 + q1 * kilo(tokens) * ratio(ref_tp, ranks));
}

Duration CostProfile::all_to_all(int largest_tokens, int ranks) const {
  return millis(sync0 + syncf * (c1 + d1 + q1) * kilo(largest_tokens) * ratio(ref_tp, ranks));
}

CostModel CostProfile::cost_model(int ranks) const {
  const double seconds = 1e-3 * ratio(ref_tp, ranks);
  return {g * seconds / (kKiloTokens * kKiloTokens), b * seconds / kKiloTokens, a0 * 1e-3};
}

int CostProfile::knee_tokens() const {
  return static_cast<int>(std::lround(tau * kKiloTokens));
}

}  // namespace asap
