// SimPoint: one simulated run, as an evaluation asks for it: which engine, at which rate, with what
// changed. Whoever simulates turns it into a report (Simulate); an evaluation knows no simulator.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "asap/base/result.h"
#include "asap/load/report.h"

namespace asap {

// Engines by name.
inline constexpr const char* kAsap = "asap";             // our policy
inline constexpr const char* kAsapPaper = "asap-paper";  // the paper's policy
inline constexpr const char* kDefault = "default";       // lockstep, token-balanced batches
inline constexpr const char* kChunked = "chunked";       // lockstep, prompts in chunks

// Changes of an engine; empty: as the engine has it.
struct SimChanges {
  std::optional<int> stages;            // R; 1: no interleaving
  std::optional<int> regions;           // items of a group at the experts at once
  std::optional<bool> overlap;          // communication beside computation
  std::optional<bool> super_kernel;     // false: the host dispatches each layer's experts
  std::optional<bool> refill;           // a freed stage gets its next batch at once
  std::optional<int> exclusive_tokens;  // longer prompts have their group alone; 0: none has
  std::optional<int> split_tokens;      // longer prompts run in pieces of this over the stages
  std::optional<int>
      self_pair_tokens;             // longer lone prompts are cut in two, paired with themselves
  std::optional<bool> wait;         // small batches wait for tokens or partners
  std::optional<bool> aged_order;   // queue by arrival + 2·cost in place of arrival
  std::optional<bool> merge_items;  // experts take items of equal layers together
  std::optional<int> dp, tp, ep;    // D, T, E

  // "stages=3 refill=on"; "" if nothing is changed. Equal texts are equal changes.
  std::string text() const;
};

struct SimSettings {
  std::string profile = "cm384-deepseek-v3.2";
  std::string workload =
      "W0";                 // of find_trace(), or a LengthLaw ("constant:5120") with Poisson times
  double seconds = 300;     // of arrivals
  bool expert_skew = true;  // false: as if all experts were equally busy
  SimChanges changes;
};

struct SimPoint {
  std::string engine = kAsap;
  double rate = 1;  // requests per second
  SimSettings settings;
  // Number of the repetition: other rows of the trace, other seeds. Two points that differ in
  // engine or changes alone get the same requests.
  int repeat = 0;

  // Names the point; equal texts are equal points.
  std::string text() const;
};

// Runs a point to its end; called from several threads at once. Errors: unsupported (this simulator
// has no such change: the point is left out of the report), others end the evaluation.
using Simulate = std::function<Result<LoadReport>(const SimPoint&)>;

}  // namespace asap
