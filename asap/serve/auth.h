// Who may ask for what: bearer keys for clients and for administrators.
//
// Probes, /metrics and /version are open to everybody who can connect. Everything else needs a
// client's key if there are any; /admin/* and profiling need the administrator's if there is one.
// Comparing takes the same time whatever the keys are, how many there are and which one fits.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/serve/http.h"

namespace asap {

// What probes and scrapers ask for.
inline constexpr std::string_view kOpenPaths[] = {"/health",  "/liveness",  "/ping",
                                                  "/ready",   "/readiness", "/health/ready",
                                                  "/metrics", "/version"};

struct AuthKeys {
  std::vector<std::string> client;  // empty: no key is asked for
  std::string admin;                // "": a client's key does

  bool any() const { return !client.empty() || !admin.empty(); }
};

// Keys of a file, one a line; blank lines and those that start with '#' are skipped. Errors:
// not_found, invalid (no key in it, or everybody may read it, or its group write it).
Result<std::vector<std::string>> read_api_keys(const std::string& path);

// Null, or the refusal: 401 without a key that fits, 403 for a client's key on an administrator's
// path.
std::optional<HttpReply> check_auth(const AuthKeys& keys, const HttpRequest& head);

bool is_admin_path(std::string_view path);
// Equal, in a time that depends on neither text.
bool equal_keys(std::string_view given, std::string_view expected);

}  // namespace asap
