#include "asap/policy/interleave.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

void Interleave::on_ready(int stage, Instant now) {
  Instant& since = since_.at(static_cast<size_t>(stage));
  CHECK(since == Instant::never() && now < Instant::never(), "stage {} is ready twice", stage);
  since = now;
}

std::optional<int> Interleave::next() {
  const auto first = std::min_element(since_.begin(), since_.end());
  if (first == since_.end() || *first == Instant::never()) return std::nullopt;
  *first = Instant::never();
  return static_cast<int>(first - since_.begin());
}

}  // namespace asap
