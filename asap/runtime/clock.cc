#include "asap/runtime/clock.h"

#include <ctime>

namespace asap {

Instant monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return {int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec};
}

Instant cpu_now() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return {int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec};
}

}  // namespace asap
