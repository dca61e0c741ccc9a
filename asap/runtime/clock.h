// The one place that reads the operating system's clock for the engine.
#pragma once

#include "asap/base/units.h"

namespace asap {

// CLOCK_MONOTONIC: the same in all processes of a machine.
Instant monotonic_now();

}  // namespace asap
