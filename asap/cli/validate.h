// Validation of a plan: the instance runs for real on this machine, as `asap serve` in a child
// process, and gets the workload that the plan was simulated with.
#pragma once

#include <functional>
#include <vector>

#include "asap/load/report.h"
#include "asap/runtime/config.h"

namespace asap {

// `instance`: of the plan. `real`: model and kernels to run it with. Errors: of the server's start
// (its own message is on stderr), and as run_load.
Result<LoadReport> measure_for_real(const EngineConfig& instance, const EngineConfig& real,
                                    const std::vector<Arrival>& workload,
                                    const std::function<bool(const LoadProgress&)>& progress);

}  // namespace asap
