// Goldens: tiny checkpoints with float64 reference results (tests/golden/README.md), and a way to
// run prompts through a whole instance in this process, under a virtual clock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asap/runtime/local_instance.h"
#include "asap/transport/link_loop.h"

namespace asap::test {

std::string golden_directory(const std::string& name);
// Names of all goldens of the repository.
std::vector<std::string> golden_names();

struct GoldenCase {
  std::vector<int32_t> prompt;
  std::vector<float> logits;    // [vocab] of the last prompt position
  std::vector<int32_t> greedy;  // the next tokens
  std::vector<double> margins;  // of each: (best - second) / max|logit|
  nlohmann::json router;        // layer -> {ids, weights}
  nlohmann::json dsa;           // layer -> {selected}
};

struct Golden {
  std::string name;
  nlohmann::json tolerance;  // {fp32, bf16}
  std::vector<GoldenCase> cases;
  std::map<std::string, std::vector<GoldenCase>> modes;  // the same prompts, without greedy tokens
  std::vector<float> data;                               // golden.f32
  std::vector<float> array(const nlohmann::json& reference) const;
};
Golden load_golden(const std::string& name);

// max|Δ| / max|expected|.
double relative_error(const std::vector<float>& got, const std::vector<float>& expected);

struct Setup {
  std::string model;  // directory
  int d = 1, t = 1, e = 1, r = 2;
  std::string ops = "cpu";
  std::string dtype = "auto";
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
    int max_batch_tokens = 0;  // 0: the setup's
    uint64_t seed = 0;         // of delays, message order and agent order; 0: none of them
    Duration max_delay = {0};
    Observer observer = nullptr;
  };
  // Submits all prompts at once and steps until all have finished. Aborts if nothing moves any
  // more.
  std::vector<Outcome> run(const std::vector<Prompt>& prompts, const Run& run);

  const ModelSpec& spec() const { return spec_; }

 private:
  Setup setup_;
  ModelSpec spec_;
  Team team_;
  std::unique_ptr<Ops> ops_;
  LocalWeights weights_;
};

}  // namespace asap::test
