#include "asap/serve/request_context.h"

#include <algorithm>
#include <charconv>

namespace asap {
namespace {

constexpr double kLongestTimeoutSeconds = 86'400;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == text.npos;
}

tl::expected<Duration, ApiError> timeout_of(std::string_view text, Duration otherwise) {
  if (text.empty()) return otherwise;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() ||
      !(seconds > 0 && seconds <= kLongestTimeoutSeconds)) {
    return bad(kQueueTimeoutHeader, "{} is {}: expected seconds, above 0 and up to {}",
               kQueueTimeoutHeader, describe(std::string(text)), kLongestTimeoutSeconds);
  }
  return Duration::seconds(seconds);
}

}  // namespace

std::string child_traceparent(std::string_view parent, uint64_t span) {
  // version 2, trace 32, span 16, flags 2 hexadecimal digits; later versions may append to it.
  constexpr size_t kLength = 55;
  if (parent.size() < kLength || parent.size() > 256) return "";
  const auto version = parent.substr(0, 2), trace = parent.substr(3, 32),
             caller = parent.substr(36, 16), flags = parent.substr(53, 2);
  const bool dashes = parent[2] == '-' && parent[35] == '-' && parent[52] == '-';
  const bool ends = parent.size() == kLength || (version != "00" && parent[kLength] == '-');
  if (!dashes || !ends || !is_hex(version) || version == "ff" || !is_hex(trace) || is_zero(trace) ||
      !is_hex(caller) || is_zero(caller) || !is_hex(flags)) {
    return "";
  }
  return fmt::format("00-{}-{:016x}-{}", trace, span == 0 ? 1 : span, flags);
}

void RequestContext::put_headers(HttpExchange& exchange) const {
  exchange.add_header("X-Request-Id", id);
  if (!traceparent.empty()) exchange.add_header("traceparent", traceparent);
}

tl::expected<RequestContext, ApiError> request_context(const HttpRequest& request,
                                                       std::string_view fallback_id,
                                                       Duration default_timeout, uint64_t random) {
  RequestContext context;
  const std::string_view own = request.header("x-request-id");
  context.id = is_harmless_id(own)           ? std::string(own)
               : is_harmless_id(fallback_id) ? std::string(fallback_id)
                                             : fmt::format("{:016x}", random);
  context.traceparent = child_traceparent(request.header("traceparent"), random);
  auto timeout = timeout_of(request.header(kQueueTimeoutHeader), default_timeout);
  if (!timeout) return tl::unexpected(std::move(timeout).error());
  context.queue_timeout = *timeout;
  return context;
}

}  // namespace asap
