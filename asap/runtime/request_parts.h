// The parts of a request's time to its first token by name, for responses, metrics and reports;
// with the host's they add up to the whole.
#pragma once

#include <algorithm>
#include <array>

#include "asap/runtime/engine.h"

namespace asap {

struct RequestPart {
  const char* name;
  int64_t RequestTimes::*ns;
};
inline constexpr std::array<RequestPart, 7> kRequestParts = {{
    {"queueing", &RequestTimes::queueing_ns},
    {"attention", &RequestTimes::attention_ns},
    {"experts", &RequestTimes::experts_ns},
    {"dispatch", &RequestTimes::dispatch_ns},
    {"combine", &RequestTimes::combine_ns},
    {"turn", &RequestTimes::turn_ns},
    {"barrier", &RequestTimes::barrier_ns},
}};

// What no part covers of `whole`: commands, results, threads that wake up. Worker and front read
// the clock at different moments, so a sum may pass the whole by a little; then it is 0.
inline Duration host_time(const RequestTimes& times, Duration whole) {
  for (const RequestPart& part : kRequestParts) whole.ns -= times.*part.ns;
  return Duration{std::max<int64_t>(0, whole.ns)};
}

}  // namespace asap
