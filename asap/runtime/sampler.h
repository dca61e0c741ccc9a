// Sampler: from the logits of one position to a token, a pure function of (logits, parameters,
// seed, position, tokens before). A request that is run again gives the same tokens, whatever
// shares its batches.
#pragma once

#include <cstdint>
#include <span>

#include "asap/wire/messages.h"

namespace asap {

// As SamplingParams (engine.h), which says what each does.
struct SampleParams {
  float temperature = 0;  // 0 = greedy
  uint64_t seed = 0;
  int64_t position = 0;  // absolute position of the token to be sampled
  int logprobs = -1;     // -1: none; else that many best alternatives (at most kMaxLogprobs)
  int top_k = 0;
  float top_p = 1, min_p = 0;
  float presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::span<const LogitBias> biases = {};
  std::span<const int32_t> history = {};  // all tokens before; needed only by penalties
  int prompt = 0;                         // so many of them are the prompt's

  bool penalises() const {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1;
  }
};

// Those of a command, without biases and history.
SampleParams sample_params(const SequenceCommand& command);

// Fills token, logprob, tops, top_ids and top_logprobs. Ties go to the lower id. Log-probabilities
// are of the model's distribution (no bias or penalty, temperature 1), natural logarithm.
void sample(std::span<const float> logits, const SampleParams& params, ResultEntry* out);

}  // namespace asap
