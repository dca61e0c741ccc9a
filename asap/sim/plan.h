// plan: which instance of so many devices serves a demand best. The search is the simulator: short
// runs of all candidates at the demanded rate, longer ones of those that did well, and for the last
// few the highest rate that meets the SLO. All runs of a round get the same first arrivals, so that
// they differ by the candidate alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "asap/load/report.h"
#include "asap/sim/candidates.h"
#include "asap/sim/simulate.h"

namespace asap {

struct PlanRequest {
  EngineConfig shared;    // profile, model, and what all candidates have in common
  WorkloadSpec workload;  // its rate is the demand
  CandidateSpace space;
  double slo_ttft_ms = 5000;
  std::string slo_statistic = "mean";  // p50, p90, p99
  double device_memory_gb = 0;         // 10^9 bytes; 0: no limit
  int keep = 5;                        // plans to end with
  int jobs = 1;                        // simulations at the same time
  double slo_tolerance = 0.03;         // ratio at which the search for the rate ends
};

struct PlannedInstance {
  Candidate candidate;
  LoadReport report;     // at the demanded rate, of the longest run it got
  bool stopped = false;  // the queue grew beyond hope before the run's end
  double virtual_seconds = 0;
  Utilisation use;
  bool meets = false;   // the SLO, at the demanded rate
  double slo_rate = 0;  // highest rate that meets it; 0: none did
  std::string limit;    // what to have more of: see limit_of
};

struct PlanResult {
  std::vector<PlannedInstance> best;       // best first
  std::vector<PlannedInstance> reference;  // the paper's geometry, scaled
  int candidates = 0;                      // that the model allows
  int too_large = 0;                       // of them: need more memory than a device has
  int overloaded = 0;  // of the rest: not tried, the demand exceeds what their devices can do
  int simulations = 0;
  double virtual_seconds = 0;
};

struct PlanProgress {
  std::string round;
  int done = 0, total = 0;
};

// `progress` (may be null): false stops. Errors: as simulate; invalid if no candidate fits a
// device's memory (says what the smallest needs); unavailable if stopped.
Result<PlanResult> plan(const PlanRequest& request,
                        const std::function<bool(const PlanProgress&)>& progress);

// What bounds an instance at this load: "attention", "experts" or "combine send" if that kind of
// device is busy most of the time; "queue" or "barrier" if requests mostly wait there; else
// "latency": devices idle, and only faster ones would help.
std::string limit_of(const Utilisation& use, const LoadReport& report);

}  // namespace asap
