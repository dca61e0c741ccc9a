// Interleave: which live stage an attention rank advances next. Among stages that have received
// what they wait for, the one that became ready first; ties go to the lower stage. The ranks of a
// group need not agree: every exchange of a stage has its own buffers.
#pragma once

#include <optional>
#include <vector>

#include "asap/base/units.h"

namespace asap {

class Interleave {
 public:
  explicit Interleave(int stages) : since_(static_cast<size_t>(stages), Instant::never()) {}

  void on_ready(int stage, Instant now);
  // Takes the stage to advance.
  std::optional<int> next();

 private:
  std::vector<Instant> since_;  // [stages] never(): not ready
};

}  // namespace asap
