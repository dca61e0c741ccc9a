// GET /metrics: Prometheus text. The names are those of vLLM with the prefix "asap:", so its
// dashboards carry over.
#pragma once

#include <memory>
#include <string>

#include "asap/base/units.h"
#include "asap/runtime/engine.h"

namespace asap {

// How a request ended, as the label finished_reason says it.
enum class Outcome { stop, length, abort, error };

// Thread-safe.
class Metrics {
 public:
  Metrics(const std::string& model, int max_model_len);
  ~Metrics();

  void accepted(int prompt_tokens);
  // Times count from the engine's acceptance of the request.
  void first_token(const TokenEvent& event);
  void finished(Outcome outcome, Duration end_to_end);
  // For requests that ended without a last token.
  void finished(Outcome outcome);

  // The whole page. Gauges and token totals are what `stats` says now.
  std::string text(const EngineStats& stats);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asap
