// simulate_point: a point of an evaluation (load/sim_point.h) through the virtual driver.
#pragma once

#include "asap/load/sim_point.h"
#include "asap/runtime/config.h"

namespace asap {

// The engine and changes of a point as an instance's configuration: the paper's 32 devices (4
// groups of 4 and 16 expert ranks, in lockstep 8 groups of 4), unless the point has others. Errors:
// invalid (an unknown engine, changes that contradict each other).
Result<EngineConfig> config_of(const SimPoint& point);

// `settings.workload` is a file or a length law. The repetition chooses the rows of a trace, or the
// seed of a law. Errors: as config_of and simulate.
Result<LoadReport> simulate_point(const SimPoint& point);

}  // namespace asap
