// Quantising a checkpoint: reads any supported one, writes its W8A8 form (model/int8.h) as
// compressed-tensors stores it, which vLLM reads too.
//
// The matrices of quantizable_matrices() become X.weight I8 [n, k] and X.weight_scale F32 [n, 1],
// fused experts one by one. What else is FP8 is multiplied out, the rest is copied byte by byte;
// tensors that the engine does not use are left out. A tensor is read and written in pieces, so
// memory stays bounded. config.json and the index come last: what a killed run leaves does not
// load.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "asap/base/result.h"

namespace asap {

struct QuantizeOptions {
  std::string model;                           // directory
  std::string output;                          // directory; must not exist, or be empty
  uint64_t shard_bytes = 5'000'000'000;        // of one file; a larger tensor has its own
  std::function<bool(uint64_t, uint64_t)> on;  // bytes written, bytes in all; false: stop
};

struct QuantizeSummary {
  int quantized = 0;                           // matrices
  int copied = 0;                              // tensors, multiplied out or as they are
  int left_out = 0;                            // tensors
  int files = 0;                               // shards
  uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
};

// Errors: invalid (the output is in use or the model itself, a weight is not finite), unsupported
// (the model is int8 already, or of a form that W8A8 checkpoints have no place for), unavailable
// (stopped), and those of loading. What was written is removed again.
Result<QuantizeSummary> quantize_checkpoint(const QuantizeOptions& options);

}  // namespace asap
