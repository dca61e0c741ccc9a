#include "asap/cli/slo_flags.h"

#include <cstdio>

#include "asap/cli/validators.h"
#include "asap/load/slo_search.h"

namespace asap {

void add_slo_flags(CLI::App& app, SloFlags& flags) {
  app.add_option("--slo-ttft-ms", flags.ttft_ms,
                 "Search for the highest rate whose TTFT meets this; starts at --request-rate");
  app.add_option("--slo-statistic", flags.statistic, "What has to meet it")
      ->check(CLI::IsMember({"mean", "p50", "p90", "p99"}))
      ->capture_default_str();
  app.add_option("--slo-tolerance", flags.tolerance, "Ratio at which the search ends")
      ->check(between(1e-3, 1.0))
      ->capture_default_str();
}

Status search_rate(const SloFlags& flags, double start,
                   const std::function<Result<LoadReport>(double rate)>& run,
                   nlohmann::ordered_json* out) {
  SloSearch search(start, flags.tolerance);
  std::printf("%10s %10s %10s %10s %10s %12s\n", "rate/s", "mean", "p50", "p90", "p99", "verdict");
  while (const auto rate = search.next()) {
    ASAP_ASSIGN(const LoadReport report, run(*rate));
    const bool met = report.finished == report.requests &&
                     statistic_of(report.ttft, flags.statistic) <= flags.ttft_ms;
    std::printf("%10.3f %10.1f %10.1f %10.1f %10.1f %12s\n", *rate, report.ttft.mean,
                report.ttft.p50, report.ttft.p90, report.ttft.p99, met ? "met" : "missed");
    std::fflush(stdout);
    nlohmann::ordered_json row = json_of(report);
    row["request_rate"] = *rate;
    row["met"] = met;
    (*out)["runs"].push_back(row);
    search.record(met);
  }
  std::printf("highest rate with %s TTFT <= %.0f ms: %.3f requests/s\n", flags.statistic.c_str(),
              flags.ttft_ms, search.best());
  (*out)["slo_request_rate"] = search.best();
  return {};
}

}  // namespace asap
