// The arguments of a call, and the check of them against the names a function knows.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "asap/base/result.h"
#include "asap/chat/value.h"

namespace asap::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments in the order of the parameters; an absent one is null.
class Bound {
 public:
  // Errors: invalid, with `what` ("filter join") in the message. The first `required` must be
  // there. `arguments` must outlive the result.
  static Result<Bound> bind(std::string_view what, const Arguments& arguments,
                            std::initializer_list<std::string_view> names, size_t required);

  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& at(size_t i) const { return *values_[i]; }
  // Python's truth of the argument.
  bool truth(size_t i, bool fallback) const { return has(i) ? at(i).truth() : fallback; }
  // The fallback only if the argument is absent; given() tells callers for which None means that.
  Result<int64_t> integer(size_t i, int64_t fallback) const;
  Result<std::string> text(size_t i, std::string_view fallback) const;
  bool given(size_t i) const { return has(i) && !at(i).is_none(); }

 private:
  std::string what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace asap::jinja
