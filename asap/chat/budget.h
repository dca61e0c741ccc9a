// Budget: what one rendering may use, so that a hostile template or conversation ends with an error
// and not with the memory of the server.
#pragma once

#include <cstddef>
#include <cstdint>

#include "asap/base/result.h"

namespace asap::jinja {

struct RenderLimits {
  size_t output_bytes = size_t{64} << 20;
  size_t made_bytes = size_t{1} << 30;  // of all values made on the way, kept or not
  uint64_t steps = 20'000'000;          // evaluated nodes, iterations, characters looked at
  int macro_depth = 100;                // calls within calls
  int nesting = 1000;                   // evaluations within evaluations
};

inline constexpr int kMaxValueDepth = 100;  // lists within lists

class Budget {
 public:
  explicit Budget(const RenderLimits& limits)
      : limits_(limits), steps_left_(limits.steps), bytes_left_(limits.made_bytes) {}

  const RenderLimits& limits() const { return limits_; }

  Status spend(uint64_t steps) {
    if (steps > steps_left_) {
      steps_left_ = 0;
      return fail(Code::invalid, "the template takes more than {} steps", limits_.steps);
    }
    steps_left_ -= steps;
    return {};
  }
  // Before a value of that size is made. Text is bounded as the output is.
  Status make(uint64_t bytes) {
    if (bytes > limits_.output_bytes) {
      return fail(Code::invalid, "a value exceeds {} bytes", limits_.output_bytes);
    }
    if (bytes > bytes_left_) {
      bytes_left_ = 0;
      return fail(Code::invalid, "the template makes more than {} bytes of values",
                  limits_.made_bytes);
    }
    bytes_left_ -= bytes;
    return spend(bytes / kBytesPerStep);
  }

 private:
  static constexpr uint64_t kBytesPerStep = 64;

  RenderLimits limits_;
  uint64_t steps_left_;
  uint64_t bytes_left_;
};

}  // namespace asap::jinja
