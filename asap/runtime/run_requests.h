// run_requests: submits requests to an engine and waits for the last token of each, for callers
// that have nothing else to do meanwhile (asap run, asap verify).
#pragma once

#include <functional>
#include <vector>

#include "asap/runtime/engine.h"

namespace asap {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // [vocab] if the request wanted them
  Duration ttft;              // from submit to the first token
  RequestTimes times;         // of the first token
};

// Answers in the order of the requests. Errors: of the first request that fails; unavailable once
// interrupted() is true, which is asked ten times a second. Unfinished requests are cancelled.
Result<std::vector<Answer>> run_requests(Engine& engine, std::vector<EngineRequest> requests,
                                         const std::function<bool()>& interrupted);

}  // namespace asap
