// Verify: engines on a golden checkpoint against its expected results. An engine is what serves:
// one process, or worker processes, at some geometry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "asap/model/golden.h"
#include "asap/model/spec.h"
#include "asap/runtime/worker.h"

namespace asap {

struct Answer;

// One engine to be checked.
struct VerifyRun {
  std::string ops;    // as --ops
  std::string dtype;  // as --dtype
  bool in_process = true;
  int groups = 1, ranks = 1, expert_ranks = 1;
  std::string config_file = "config.json";

  std::string geometry() const;  // "processes D2 T2 E3"
  Precision precision() const { return dtype == "bfloat16" ? Precision::bf16 : Precision::fp32; }
};

// The reference kernels, and the fast ones in both types: in one process, in worker processes at
// two geometries, and each alternative configuration once. Geometries are made to fit `spec`.
std::vector<VerifyRun> verify_runs(const Golden& golden, const ModelSpec& spec);

struct VerifyOutcome {
  double logits_error = 0;                    // largest of all prompts, relative_error()
  double logits_rms_error = 0;                // the same of rms_error()
  size_t greedy_equal = 0, greedy_total = 0;  // generated tokens, by position
  size_t greedy_required = 0;
  std::string problem;  // "": everything within its limits; else what is not, or why nothing ran
};
// Gives all prompts to the engine at once. `interrupted` gives up.
VerifyOutcome verify(const Golden& golden, const VerifyRun& run, const Platform& platform,
                     const std::function<bool()>& interrupted);
// The verdict on answers in the order of the golden's cases.
VerifyOutcome judge(const Golden& golden, Precision precision, const std::vector<Answer>& answers);

}  // namespace asap
