// Workload: when requests arrive and how long they are. Made once from a seed or a trace file, so
// that every system that is compared gets the same rows in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asap/base/result.h"

namespace asap {

struct Arrival {
  double at = 0;  // seconds from the start of the run
  int prompt_tokens = 0;
  int output_tokens = 1;
  // Of a trace that says which prompts share a beginning: one id per block of kPrefixBlock tokens
  // (before lengths are divided).
  std::vector<uint64_t> blocks;
};

inline constexpr int kPrefixBlock = 512;

// Prompt lengths of a made workload: "constant:N", "uniform:LO:HI",
// "lognormal:MU:SIGMA:MIN:MAX" (of ln tokens, values outside [MIN, MAX] are drawn again).
struct LengthLaw {
  enum class Kind : uint8_t { constant, uniform, lognormal } kind = Kind::constant;
  double a = 512, b = 0;
  int least = 1, most = 1 << 20;
};
Result<LengthLaw> parse_length_law(const std::string& text);

struct WorkloadSpec {
  std::string trace_file;  // CSV with a header (arrival_s, prompt_tokens, output_tokens, hash_ids),
                           // or JSON lines (timestamp in ms, input_length, output_length, hash_ids)
  std::string arrival_column = "arrival_s";  // of a CSV
  LengthLaw lengths;                         // without a trace
  double rate = 1.0;         // requests per second: Poisson, or a trace's times divided by `rate`
                             // over its own mean rate
  bool native_rate = false;  // a trace's own times
  double burstiness = 1.0;   // made arrivals: shape of the gamma law of gaps; 1: Poisson
  int row_offset = 0;        // of a trace: rows before this are skipped
  double seconds = 60;       // arrivals after this are left out
  int max_requests = 0;      // 0: no limit
  double length_divisor = 1.0;  // prompt lengths are divided by this, at least 1 token remains
  int max_prompt_tokens = 0;    // longer rows (after division) are left out; 0: no limit
  int output_tokens = 1;        // 0: as the trace says
  uint64_t seed = 0;
};

// Arrivals in ascending time. Errors: not_found (no such file), invalid (a row or column, by line).
Result<std::vector<Arrival>> make_workload(const WorkloadSpec& spec);

// Token ids of arrival number `index`: drawn from [low, high), equal where blocks are equal.
std::vector<int32_t> prompt_ids(const Arrival& arrival, uint64_t seed, int index, int low, int high,
                                double length_divisor);

}  // namespace asap
