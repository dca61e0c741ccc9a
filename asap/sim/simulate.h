// simulate: a workload through a VirtualInstance, as `asap bench serve` sends it through a server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "asap/load/generator.h"
#include "asap/runtime/config.h"
#include "asap/sim/virtual_instance.h"

namespace asap {

struct SimulationLimits {
  double grace_seconds = 60;  // virtual, after the last arrival; then requests are unfinished
  // Stop once so many requests wait: the rate is beyond what the instance can do. 0: never.
  int max_waiting = 0;
  std::string trace_file;  // Chrome/Perfetto trace in virtual time; "": none
};

struct SimulationResult {
  LoadResult load;
  double virtual_seconds = 0;
  double wall_seconds = 0;
  uint64_t events = 0, steps = 0;
  uint64_t hash = 0;  // of everything that happened, in order
  int64_t batches = 0;
  std::vector<DeviceUse> use;  // by device
  Geometry geometry;
};

// Busy shares of the time, averaged over the devices of a kind.
struct Utilisation {
  double attention = 0, experts = 0, send = 0;
};
Utilisation utilisation_of(const SimulationResult& result);

// `config.profile` names the cost profile; where config names no model, the profile's is taken.
// `progress` (may be null): virtual seconds, requests done; false stops. Errors: as make_plan.
Result<SimulationResult> simulate(EngineConfig config, const std::vector<Arrival>& workload,
                                  const SimulationLimits& limits,
                                  const std::function<bool(double, int)>& progress);

// Fills in what a simulation of `config` needs: priced kernels, the profile's model, room for the
// longest prompt.
Result<EngineConfig> simulated_config(EngineConfig config, const std::vector<Arrival>& workload);

}  // namespace asap
