#include "asap/serve/http_error.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace asap {
namespace {

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 408: return "timeout_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

int http_status(Code code) {
  switch (code) {
    case Code::invalid:
    case Code::unsupported: return 400;
    case Code::not_found: return 404;
    case Code::overloaded: return 429;
    case Code::deadline: return 408;
    case Code::unavailable: return 503;
    case Code::internal: return 500;
  }
  return 500;
}

ApiError api_error(const Error& error) {
  return {http_status(error.code), error.message, "", error.retry_after_s};
}

std::string error_body(const ApiError& error) {
  nlohmann::ordered_json body;
  auto& fields = body["error"];
  fields["message"] = error.message;
  fields["type"] = error_type(error.status);
  fields["param"] = nullptr;
  if (!error.param.empty()) fields["param"] = error.param;
  fields["code"] = error.status;
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpReply error_reply(const ApiError& error) {
  HttpReply reply;
  reply.status = error.status;
  reply.body = error_body(error);
  if (error.status == 429 || error.status == 503) {
    // Whole seconds for everybody, milliseconds for those who look for them (OpenAI's clients).
    const double seconds = error.retry_after_s > 0 ? error.retry_after_s : 1;
    reply.headers.emplace_back("Retry-After", fmt::format("{:.0f}", std::ceil(seconds)));
    reply.headers.emplace_back("Retry-After-Ms", fmt::format("{:.0f}", std::ceil(1e3 * seconds)));
  }
  return reply;
}

}  // namespace asap
