// GET /metrics: Prometheus text. What vLLM measures of requests has its names and buckets, with the
// prefix "asap:", so its dashboards carry over; what only an engine without barriers has to say
// (experts, stages, balance) has names of its own. docs/operations.md lists them all.
#pragma once

#include <memory>
#include <string>

#include "asap/base/units.h"
#include "asap/runtime/engine.h"

namespace asap {

// How a request ended, as the label finished_reason says it.
enum class Outcome { stop, length, abort, error };

// A choice that got its last token.
struct FinishedRequest {
  Outcome outcome = Outcome::stop;
  int completion_tokens = 0;
  Instant arrived, started, first, last;  // acceptance, first batch, first token, last token
};

// Thread-safe.
class Metrics {
 public:
  Metrics(const std::string& model, int max_model_len);
  ~Metrics();

  // A choice of a request that asks for `n` of them.
  void accepted(int prompt_tokens, int n, int max_tokens);
  // Times count from the engine's acceptance of the request.
  void first_token(const TokenEvent& event);
  void next_token(Duration gap);
  void finished(const FinishedRequest& request);
  // For requests that ended without a last token.
  void finished(Outcome outcome);
  // A request that was answered with an error of this HTTP status.
  void refused(int status);

  // The whole page. Gauges and totals are what the engine says now.
  std::string text(const Engine& engine);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asap
