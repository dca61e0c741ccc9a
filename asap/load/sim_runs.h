// SimRuns: the simulated runs behind a report. Asking for one that has not run yet notes it down
// and gives nothing; work() then runs all that was noted, in parallel, each once. So a report is
// written as if every number were there, and written again after work() until none is missing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "asap/load/sim_point.h"

namespace asap {

// A point over its repetitions.
struct PointStats {
  double rate = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;  // of TTFT in ms: means over the repetitions
  double low = 0, high = 0;                    // of the repetitions' mean TTFT
  int requests = 0, unfinished = 0;
  bool lossless = true;  // nothing was refused and nothing failed
  MeanParts parts;
  std::vector<LengthBin> bins;  // quantiles: count and mean only
};

enum class SloStatistic : uint8_t { mean, p99 };

struct SimRunsOptions {
  int repeats = 1;
  int jobs = 1;  // threads
  double slo_ms = 5000;
  double tolerance = 0.02;  // of searched rates
  double first_rate = 8;    // that searches try
};

class SimRuns {
 public:
  // `progress` (may be null) gets a line per finished run; one call at a time.
  SimRuns(Simulate simulate, SimRunsOptions options,
          std::function<void(const std::string&)> progress);

  // Of all repetitions. Empty: not known yet, or unsupported.
  std::optional<PointStats> point(const SimPoint& point);
  // The highest rate at which the statistic meets the limit; 0: none does. The point's rate does
  // not count.
  std::optional<double> slo_rate(const SimPoint& base, SloStatistic statistic);

  bool missing() const { return !wanted_.empty(); }
  // Runs what is missing. Errors: those of Simulate.
  Status work();

  const SimRunsOptions& options() const { return options_; }
  int runs() const { return runs_; }
  // Why points are left out, each once.
  std::vector<std::string> unsupported() const;
  // Every point with its statistics, and every searched rate.
  nlohmann::ordered_json json() const;

 private:
  struct Known {
    std::once_flag once;
    std::optional<PointStats> stats;
    std::optional<Error> error;
  };
  struct Search {
    SimPoint base;
    SloStatistic statistic = SloStatistic::mean;
    std::optional<double> rate;
    bool over = false;
  };
  struct Want {
    std::optional<SimPoint> point;
    Search* search = nullptr;
  };

  Known& run(const SimPoint& point);
  void measure(const SimPoint& point, Known& known);
  void find(Search& search);
  void one(const Want& want);

  const Simulate simulate_;
  const SimRunsOptions options_;
  const std::function<void(const std::string&)> progress_;
  mutable std::mutex mutex_;  // of all below
  std::map<std::string, std::shared_ptr<Known>> points_;
  std::map<std::string, std::shared_ptr<Search>> searches_;
  std::vector<Want> wanted_;
  std::optional<Error> failed_;
  int runs_ = 0;
};

}  // namespace asap
