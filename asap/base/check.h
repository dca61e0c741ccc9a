// CHECK: the always-on assertion for bugs of our own.
//
// Two kinds of wrong are kept apart. A broken invariant is a bug: CHECK prints the expression, the
// place and the values, then aborts, in every build type. What the outside world did (a file, a
// peer, a client, the OS) is never a bug: it travels as a Result (result.h).
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace asap {

[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               std::string_view message);

}  // namespace asap

// CHECK(a <= b, "tokens {} exceed capacity {}", a, b);  the message is optional.
#define CHECK(condition, ...)                                                              \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::asap::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                      \
  } while (false)
