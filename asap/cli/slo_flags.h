// The SLO search of commands that send a workload.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "asap/base/result.h"
#include "asap/load/report.h"

namespace asap {

struct SloFlags {
  double ttft_ms = 0;  // 0: no search
  std::string statistic = "mean";
  double tolerance = 0.05;
};
void add_slo_flags(CLI::App& app, SloFlags& flags);

// Runs at rates from `start` on until the highest that meets the limit is known; prints a line per
// run and adds them to `out`. A rate is met only if nothing was refused, lost or left over.
Status search_rate(const SloFlags& flags, double start,
                   const std::function<Result<LoadReport>(double rate)>& run,
                   nlohmann::ordered_json* out);

}  // namespace asap
