// TimeParts: where a request's time to first token went. A server of ours says it in the response
// ("asap_timing"), the virtual driver knows it. The parts add up to the time from arrival to first
// token, as far as the engine sees it.
#pragma once

#include <array>

namespace asap {

// Milliseconds.
struct TimeParts {
  double queueing = 0;   // until a batch took the request
  double attention = 0;  // kernels on the attention ranks
  double experts = 0;    // from the last dispatched token to the first answer: queue and kernel
  double dispatch = 0;   // sending tokens to the experts
  double combine = 0;    // answers on their way, and adding them up
  double turn = 0;       // the batch could go on, but its rank computes another stage
  double barrier = 0;    // lockstep engines: waiting for the slowest group
  double host = 0;       // everything outside the devices
};

struct TimePart {
  const char* key;   // of "asap_timing" and of reports
  const char* name;  // for people
  double TimeParts::*value;
};
inline constexpr std::array<TimePart, 8> kTimeParts = {{
    {"queueing_ms", "queueing", &TimeParts::queueing},
    {"attention_ms", "attention", &TimeParts::attention},
    {"experts_ms", "expert wait", &TimeParts::experts},
    {"dispatch_ms", "dispatch", &TimeParts::dispatch},
    {"combine_ms", "combine", &TimeParts::combine},
    {"turn_ms", "turn", &TimeParts::turn},
    {"barrier_ms", "barrier", &TimeParts::barrier},
    {"host_ms", "host", &TimeParts::host},
}};

}  // namespace asap
