// Candidates of `asap plan`: the instances that a number of devices can be, what each needs of
// memory, and how much of its devices' time a workload asks for before anything is simulated.
#pragma once

#include <string>
#include <vector>

#include "asap/load/workload.h"
#include "asap/model/spec.h"
#include "asap/runtime/config.h"
#include "asap/runtime/memory_plan.h"

namespace asap {

// Share of the time of the busiest device of each kind; above 1 it cannot keep up. Only what grows
// with tokens: constants per batch come on top, so this is a lower bound.
struct AnalyticLoad {
  double attention = 0, experts = 0, send = 0;
  double busiest = 0;  // in lockstep one device does all of it
};

struct Candidate {
  EngineConfig config;             // ready for simulate()
  DeviceMemory attention, expert;  // in lockstep a device has both
  AnalyticLoad load;

  // Of the device that needs most.
  uint64_t memory() const;
  std::string name() const;  // "asap 4x4+16 R=3"
};

struct CandidateSpace {
  int devices = 32;  // D·T + E, at most
  std::vector<std::string> engines = {"asap", "paper", "default", "chunked"};
  std::vector<int> stages = {2, 3, 4};  // of asap; the other engines have their own
};

// All of the space that the model allows. More groups or experts never harm, so all devices are
// used where T allows it. `shared`: what all have in common; its KV cache is sized as the engine
// would. Errors: as make_plan; invalid if nothing fits the space.
Result<std::vector<Candidate>> make_candidates(const EngineConfig& shared,
                                               const CandidateSpace& space,
                                               const std::vector<Arrival>& workload);

// The paper's geometry on so many devices: half for the experts, groups of four: 4x4+16 of 32.
// Under each of `engines` that has experts of its own devices. Empty for a single device.
Result<std::vector<Candidate>> paper_geometry(const EngineConfig& shared,
                                              const CandidateSpace& space,
                                              const std::vector<Arrival>& workload);

}  // namespace asap
