// What a machine that was measured with one model would cost with another: a planner has profiles
// of few models and users ask about many. An estimate, for plans only as good as these rules:
// every step keeps its fixed cost, and what grows with the tokens grows with the step's arithmetic
// or bytes.
//
//   b           projections, router and shared expert of a layer
//   g           heads·(qk width + v width), times the share of layers without a sliding window
//   m, tau      slope: top-k experts of a token; floor m·tau: the weights of all experts
//   tpc, c1, r1, d1, q1   hidden width
//   launch      number of experts
#pragma once

#include "asap/model/spec.h"
#include "asap/policy/cost_profile.h"

namespace asap {

// `from`: the model the profile holds for. Of equal shapes: the same prices, exactly.
CostProfile transfer_profile(CostProfile profile, const ModelSpec& from, const ModelSpec& to);

// The profile for `spec`; unchanged where the profile does not name its model. Errors: as load_spec
// of the profile's preset.
Result<CostProfile> profile_for(const CostProfile& profile, const ModelSpec& spec);

}  // namespace asap
