// The one place that reads the operating system's clock for the engine.
#pragma once

#include "asap/base/units.h"

namespace asap {

// CLOCK_MONOTONIC: the same in all processes of a machine.
Instant monotonic_now();
// CPU time of this process, all threads: neighbours on a shared machine do not lengthen it, and
// threads that wait do not count. For measurements.
Instant cpu_now();

}  // namespace asap
