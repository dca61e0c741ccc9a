// Result<T>: a value, or an Error that names the thing, the value and the remedy.
//
// No exception crosses a module border: libraries that throw are wrapped where they are called. The
// first place that knows about a failure writes its message; callers pass it on and do not log it
// again.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace asap {

// What a failure means to the caller; the CLI maps it to an exit code and HTTP to a status.
enum class Code {
  invalid,      // exit 2, HTTP 400: the input is wrong: a flag, a request, a file's contents
  not_found,    // exit 3, HTTP 404: a named thing does not exist: a file, a model, a tensor
  unsupported,  // exit 4, HTTP 400: understood, but not implemented: an architecture, a dtype
  overloaded,   // exit 5, HTTP 429: no room now; try later
  deadline,     // exit 5, HTTP 408: it could not start in the time that it was given
  unavailable,  // exit 6, HTTP 503: a peer died, is draining or did not answer in time
  internal,     // exit 1, HTTP 500: the operating system refused something we need
};

struct Error {
  Code code = Code::internal;
  std::string message;
  double retry_after_s = 0;  // overloaded: when to try again; 0: not known
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// return fail(Code::invalid, "--max-model-len {} exceeds {}: lower it", got, limit);
template <typename... Args>
tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace asap

// ASAP_TRY(expression) returns the error of a Status or Result to the caller, or goes on.
#define ASAP_TRY(expression)                                                      \
  do {                                                                            \
    if (auto asap_try_result = (expression); !asap_try_result) {                  \
      return ::tl::unexpected<::asap::Error>(std::move(asap_try_result).error()); \
    }                                                                             \
  } while (false)

#define ASAP_CONCAT_(a, b) a##b
#define ASAP_CONCAT(a, b) ASAP_CONCAT_(a, b)

// ASAP_ASSIGN(auto config, parse(text)); declares `config`, or returns the error to the caller.
#define ASAP_ASSIGN(declaration, expression) \
  ASAP_ASSIGN_(ASAP_CONCAT(asap_result_, __LINE__), declaration, expression)
#define ASAP_ASSIGN_(name, declaration, expression)                  \
  auto name = (expression);                                          \
  if (!name) {                                                       \
    return ::tl::unexpected<::asap::Error>(std::move(name).error()); \
  }                                                                  \
  declaration = std::move(*name)
