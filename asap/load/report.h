// Statistics of a load run. An unfinished request counts with its age at the end of the run, never
// as if it had not been; a refused or failed one is counted, but has no time to first token.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asap/load/generator.h"

namespace asap {

struct Quantiles {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;  // milliseconds
};
Quantiles quantiles(std::vector<double> milliseconds);
// By name: "mean", "p50", "p90" or "p99".
double statistic_of(const Quantiles& ttft, const std::string& name);

// The mean of each part of the requests that have parts.
struct MeanParts {
  size_t count = 0;
  TimeParts mean;
};

// Requests whose prompts have [low, high) tokens.
struct LengthBin {
  int low = 0, high = 0;
  Quantiles ttft;
  MeanParts parts;
};

struct LoadReport {
  int requests = 0, finished = 0, refused = 0, failed = 0, unfinished = 0;
  double seconds = 0;
  double request_rate = 0;       // finished per second
  double prompt_token_rate = 0;  // prompt tokens of finished requests per second
  Quantiles ttft;
  Quantiles e2e;          // to the end of the answer
  Quantiles lag;          // how late requests were sent
  Quantiles refusal;      // from sending a request to its refusal
  double ttft_limit = 0;  // milliseconds; 0: none
  double goodput = 0;     // requests per second that finished with their TTFT within it
  MeanParts parts;
  std::vector<LengthBin> bins;
  std::vector<std::string> errors;  // a few, with their counts
};

// Bin borders for TTFT by length: powers of two around the lengths that occur.
// `ttft_limit_ms`: of the goodput; 0: it is not reported.
LoadReport make_report(const LoadResult& result, double ttft_limit_ms = 0);
std::string text_of(const LoadReport& report);
nlohmann::ordered_json json_of(const LoadReport& report);

}  // namespace asap
