// Expert selection from router logits: one function for every op table, since it is cheap, scalar,
// and must agree to the bit between the sides of a test. Formulas: DeepSeek-V3 (sigmoid scores,
// selection bias, groups scored by their two best), DeepSeek-V2 (groups scored by their best),
// Qwen3-MoE (softmax over all experts), gpt-oss (softmax over the selected logits).
#pragma once

#include <cstdint>

#include "asap/model/spec.h"

namespace asap {

inline constexpr int kMaxExperts = 4096;

// As Ops::route.
void route_tokens(const RouterSpec& router, int experts, int top_k, const float* logits,
                  const float* bias, int n, int32_t* ids, float* weights);

}  // namespace asap
