// SequenceState: what the policies know about one request between its admission and its last token.
#pragma once

#include <cstdint>
#include <vector>

#include "asap/base/units.h"

namespace asap {

struct SequenceState {
  uint64_t id = 0;
  Instant arrival;
  int64_t key = 0;       // place in the queue's order: arrival + kappa·cost, in nanoseconds
  double cost = 0;       // of its prompt
  int prompt = 0;        // tokens
  int max_tokens = 0;    // output tokens, at most
  int known = 0;         // tokens known: the prompt and the sampled ones
  int computed = 0;      // tokens in the KV cache, or about to be by a running batch
  int group = -1;        // where it lives; -1: waiting
  int running = 0;       // running batches that hold a part of it
  int last_stage = -1;   // of its newest part, while that runs
  bool leaving = false;  // finished or cancelled: leaves with the batch that runs it
  Instant blocked_since = Instant::never();  // first of the queue, but found no room since then
  std::vector<int32_t> blocks;               // KV blocks for prompt + max_tokens

  int left() const { return known - computed; }  // tokens that no batch has taken
};

}  // namespace asap
