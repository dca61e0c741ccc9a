// What a request brings in its headers: its id, its place in a distributed trace, its deadline.
#pragma once

#include <string>
#include <string_view>

#include "asap/base/units.h"
#include "asap/serve/http_error.h"
#include "asap/serve/json_fields.h"

namespace asap {

inline constexpr std::string_view kQueueTimeoutHeader = "X-Queue-Timeout-S";

struct RequestContext {
  std::string id;           // the client's own X-Request-Id if it is harmless, else random
  std::string traceparent;  // W3C, for whom we call: the caller's trace, a span of our own; or ""
  Duration queue_timeout;   // 0: none

  // Echoes id and trace on the answer.
  void put_headers(HttpExchange& exchange) const;
};

// `fallback_id`: of the body, or "". `random`: bits for what is missing. Errors: 400 for a timeout
// that is no positive number.
tl::expected<RequestContext, ApiError> request_context(const HttpRequest& request,
                                                       std::string_view fallback_id,
                                                       Duration default_timeout, uint64_t random);

// The span of ours that follows a valid W3C traceparent; "" for anything else.
std::string child_traceparent(std::string_view parent, uint64_t span);

}  // namespace asap
