// Sampler: from the logits of one position to a token, a pure function of (logits, temperature,
// seed, position). A request that is run again gives the same tokens, whatever shares its batches.
#pragma once

#include <cstdint>
#include <span>

#include "asap/wire/messages.h"

namespace asap {

struct SampleParams {
  float temperature = 0;  // 0 = greedy
  uint64_t seed = 0;
  int64_t position = 0;  // absolute position of the token to be sampled
  int logprobs = -1;     // -1: none; else that many best alternatives (at most kMaxLogprobs)
};

// Fills token, logprob, tops, top_ids and top_logprobs. Ties go to the lower id. Log-probabilities
// are of the model's distribution (temperature 1), natural logarithm.
void sample(std::span<const float> logits, const SampleParams& params, ResultEntry* out);

}  // namespace asap
