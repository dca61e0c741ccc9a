// Scheduling: what `--scheduler` and its single flags mean for the policies. Each mechanism can be
// switched alone; what is not given follows from the scheduler's name:
//
//   asap   our best: three stages, refilled at once; an idle group never waits; prompts that are
//          cut or alone ride on several stages
//   paper  the paper's: two stages that start together, long prompts alone in their group, waits
//          for the knee and for a partner, first come first served
//   default, chunked  the synchronous engines (docs/engines.md): one stage, experts on the
//   attention
//          devices, first come first served
#pragma once

#include "asap/base/result.h"
#include "asap/policy/limits.h"
#include "asap/runtime/config.h"

namespace asap {

// `config` with every choice made that was left to the scheduler.
Result<EngineConfig> resolve_scheduling(EngineConfig config);

// Bounds and weights of the policies. `config` is resolved.
SchedulerLimits scheduler_limits(const EngineConfig& config, const EnginePlan& plan, int layers);

// Attention against everything else, in multiply-adds per layer, so that both terms have one unit:
// the cost model where nothing was measured. Only ratios matter.
CostModel cost_of(const ModelSpec& spec);

}  // namespace asap
