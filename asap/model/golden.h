// Golden: a tiny checkpoint with expected results from a float64 reference
// (tests/golden/README.md), and how far an engine is from them. One reader for the tests and for
// `asap verify`.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asap/base/result.h"

namespace asap {

// How an engine computes; decides what counts as right.
enum class Precision : uint8_t { fp32, bf16 };

struct GoldenCase {
  std::vector<int32_t> prompt;
  std::vector<float> logits;    // [vocab] of the last prompt position
  std::vector<int32_t> greedy;  // the next tokens; none in a mode
  size_t sure_tokens = 0;       // leading ones that bfloat16 cannot change
  nlohmann::json router;        // layer -> {ids, weights}
  nlohmann::json dsa;           // layer -> {selected}; null without sparse attention

  // Leading generated tokens that must be the expected ones.
  size_t required(Precision precision) const {
    return precision == Precision::fp32 ? greedy.size() : sure_tokens;
  }
};

// Largest deviations that count as right; see the measures below.
struct GoldenLimits {
  double logits_rel = 0;
  double logits_rms_rel = INFINITY;
};

struct Golden {
  std::string name;       // the folder's
  std::string directory;  // a checkpoint, golden.json and golden.f32
  std::string family;     // model_type
  std::string storage;    // element type of the weights: "F32", "BF16", "F8_E4M3", ...
  std::vector<std::string> alt_configs;  // files that may take the place of config.json
  GoldenLimits fp32, bf16;
  double router_weight_rel = 0;  // of a float32 engine's expert weights, per token
  std::vector<GoldenCase> cases;
  std::map<std::string, std::vector<GoldenCase>> modes;  // the same prompts in a mode of the model
  std::vector<float> data;                               // golden.f32

  const GoldenLimits& limits(Precision precision) const {
    return precision == Precision::fp32 ? fp32 : bf16;
  }
  // An array of golden.json, {"offset", "shape"}, from `data`. Errors: invalid.
  Result<std::vector<float>> array(const nlohmann::json& reference) const;
};

// Errors: not_found (a file), invalid (names file, key and what is expected).
Result<Golden> load_golden(const std::string& directory);
// The same from contents; `file` names golden.json in messages. Fuzzed.
Result<Golden> parse_golden(const std::string& json, std::vector<float> data,
                            const std::string& file);
// `directory` itself if it is a golden, else its subfolders that are, by name. Errors: not_found.
Result<std::vector<std::string>> find_goldens(const std::string& directory);

// max|Δ| / max|expected|; NaN if a value is. Of equal sizes.
double relative_error(const std::vector<float>& got, const std::vector<float>& expected);
// rms Δ / rms expected.
double rms_error(const std::vector<float>& got, const std::vector<float>& expected);

}  // namespace asap
