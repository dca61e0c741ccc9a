// Sampling parameters on their way from a request to the ranks: ranges, and what a command carries.
#pragma once

#include <cstdint>
#include <vector>

#include "asap/base/result.h"
#include "asap/runtime/engine.h"
#include "asap/wire/messages.h"

namespace asap {

// Errors: invalid, with the field's name, its value and its range.
Status check_sampling(const SamplingParams& params, int vocab);

// This token is the output's last one.
bool ends_output(const SamplingParams& params, const std::vector<int>& eos_ids, int32_t token);

// Fills the sampling fields of a command, and appends the biases of the token after `generated`
// ones: the client's, and a ban on every end that would come too early.
void put_sampling(const SamplingParams& params, const std::vector<int>& eos_ids, int generated,
                  SequenceCommand* command, std::vector<LogitBias>* biases);

}  // namespace asap
