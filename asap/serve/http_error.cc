#include "asap/serve/http_error.h"

#include <nlohmann/json.hpp>

namespace asap {
namespace {

constexpr std::string_view kRetryAfterSeconds = "1";

std::string_view error_type(int status) {
  switch (status) {
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
    case Code::unavailable: return 503;
    case Code::internal: return 500;
  }
  return 500;
}

ApiError api_error(const Error& error) {
  return {http_status(error.code), error.message, ""};
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
    reply.headers.emplace_back("Retry-After", kRetryAfterSeconds);
  }
  return reply;
}

}  // namespace asap
