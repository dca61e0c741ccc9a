// The error body every OpenAI client understands: {"error":{"message","type","param","code"}}.
#pragma once

#include <string>
#include <string_view>

#include "asap/base/result.h"
#include "asap/serve/http.h"

namespace asap {

// An answer of status >= 400. `param` names the request field at fault; "" if there is none.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;
  double retry_after_s = 0;  // of 429 and 503; 0: not known, which clients are told as one second
};

int http_status(Code code);
ApiError api_error(const Error& error);

// The JSON text, on one line. It is always valid UTF-8.
std::string error_body(const ApiError& error);
// The whole reply; 429 and 503 carry Retry-After.
HttpReply error_reply(const ApiError& error);

}  // namespace asap
