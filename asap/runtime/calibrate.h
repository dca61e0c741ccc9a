// Calibration: measures what a layer of a model costs on this machine (runtime/layer_rig.h) and
// fits a CostProfile to it, by least squares on relative errors.
//
//   a0 b g        attention over batches of several lengths, numbers and cached tokens
//   m0 m tau      experts
//   c r d q       dispatch, receive, combine and add
//   sync0 syncf   a lockstep exchange: the fixed parts of dispatch, combine and add, and a message
//                 each way; per token as those
//   launch        starting the threads for gate-up and down of every local expert one by one
//   request       the scheduler's work for a request; HTTP and tokenizer are not in it
//   batch         embedding, head and sampling of a batch with one prompt
//   latency       from a flag's store to its sight by an agent that had nothing to do: where cores
//                 are short it sleeps, and the store wakes it
//
// The reference is T = 1 and the E of the configuration, usually 1.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "asap/policy/cost_profile.h"
#include "asap/runtime/layer_rig.h"

namespace asap {

struct CalibrateOptions {
  EngineConfig config;    // model, E, threads, types
  int max_tokens = 2048;  // of the largest batch, and of context
  int rounds = 3;         // medians are taken
  Clock clock = nullptr;
  std::function<void(int done, int all)> on_load;   // layers; may be null
  std::function<bool(int done, int all)> on_batch;  // false: stop; may be null
  // What the caller runs beside the measured agents rests (true), for times that need idle cores,
  // and goes on (false); may be null.
  std::function<void(bool)> pause_company;
};

// The steps of a layer, in the order of kStepNames.
enum class Step : uint8_t { attention, experts, dispatch, receive, combine, add };
inline constexpr int kSteps = 6;
inline constexpr const char* kStepNames[kSteps] = {"attention", "experts", "dispatch",
                                                   "receive",   "combine", "add"};

// One batch of the grid.
struct CalibrationRow {
  std::vector<RigSequence> sequences;
  int tokens = 0;
  double pairs = 0;  // Σ new·(new + 2·past), tokens²
  double measured_ms[kSteps] = {};
  double fitted_ms[kSteps] = {};
};

struct FitError {
  double mean = 0, max = 0;  // relative
};

struct Calibration {
  CostProfile profile;
  std::vector<CalibrationRow> rows;
  FitError errors[kSteps];
};

// Errors: as LayerRig::open; unavailable (stopped); internal (times that no profile can express).
Result<Calibration> calibrate(const CalibrateOptions& options, const Platform& platform);

// "qwen3-30b-a3b-amd-epyc-1t-bfloat16": model, CPU, threads per device, weights or activations.
std::string profile_name(const EngineConfig& config, DType activation, int threads);

}  // namespace asap
