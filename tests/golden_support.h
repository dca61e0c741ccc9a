// Goldens: tiny checkpoints with float64 reference results (tests/golden/README.md), and a way to
// run prompts through a whole instance in this process, under a virtual clock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asap/model/golden.h"
#include "asap/runtime/local_instance.h"
#include "asap/transport/link_loop.h"

namespace asap::test {

std::string golden_directory(const std::string& name);
// Names of all goldens of the repository.
std::vector<std::string> golden_names();

// The golden of that name; aborts if it cannot be read.
Golden golden_named(const std::string& name);

struct Setup {
  std::string model;  // directory
  int d = 1, t = 1, e = 1, r = 2;
  std::string ops = "cpu";
  std::string dtype = "auto";
  std::string quantization = "none";
  int max_batch_tokens = 256;
  int max_batch_seqs = 32;
  int max_model_len = 0;
  int threads = 1;
};

struct Prompt {
  std::vector<int32_t> tokens;
  int max_tokens = 1;
  double temperature = 0;
  uint64_t seed = 0;
  Instant at = {0};  // when it is submitted
  Instant cancel = Instant::never();
};

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of the last prompt position
  bool operator==(const Outcome&) const = default;
};

// Loads a model once for given T, E and kernels, then runs any number of instances of it.
class Bench {
 public:
  explicit Bench(Setup setup);
  ~Bench();

  struct Run {
    int d = 1, r = 2;
    int regions = 0;                 // 0: as r
    int max_batch_tokens = 0;        // 0: the setup's; of the chunked engine: its chunk
    std::string scheduler = "asap";  // others: D·T = the setup's E, and R = 1
    uint64_t seed = 0;               // of delays, message order and agent order; 0: none of them
    Duration max_delay = {0};
    Duration max_stall = {0};  // of an agent, now and then
    // A group or an expert rank dies, in a step with this chance, also one that is just coming
    // back; another process takes its place after up to `max_away`.
    double kill_chance = 0;
    Duration max_away = {0};
    Observer observer = nullptr;
  };
  // Submits all prompts at once and steps until all have finished. Aborts if nothing moves any
  // more, or if anything is held when all is over. What was cancelled has no outcome.
  std::vector<Outcome> run(const std::vector<Prompt>& prompts, const Run& run);
  // Of the last run: deaths, and requests that were run again.
  struct Casualties {
    int groups = 0, expert_ranks = 0, rerun = 0;
    Duration took;  // until the last request was over
    Duration held;  // from then on, until what it had was free
  };
  const Casualties& casualties() const { return casualties_; }

  const ModelSpec& spec() const { return spec_; }

 private:
  void reserve(const OpLimits& limits);

  Setup setup_;
  ModelSpec spec_;
  Team team_;
  std::unique_ptr<Ops> ops_;
  OpLimits reserved_{0, 0, 0};
  LocalWeights weights_;
  Casualties casualties_;
};

}  // namespace asap::test
