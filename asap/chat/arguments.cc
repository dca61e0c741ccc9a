#include "asap/chat/arguments.h"

#include <algorithm>

namespace asap::jinja {

Result<Bound> Bound::bind(std::string_view what, const Arguments& arguments,
                          std::initializer_list<std::string_view> names, size_t required) {
  Bound bound;
  bound.what_ = what;
  bound.names_ = names;
  bound.values_.resize(names.size());
  if (arguments.positional.size() > names.size()) {
    return fail(Code::invalid, "{} takes at most {} arguments; {} are given", what, names.size(),
                arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return fail(Code::invalid, "{} has no argument \"{}\"", what, name);
    }
    const Value*& slot = bound.values_[static_cast<size_t>(found - names.begin())];
    if (slot) return fail(Code::invalid, "{}: the argument \"{}\" is given twice", what, name);
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound.values_[i]) {
      return fail(Code::invalid, "{} needs the argument \"{}\"", what, bound.names_[i]);
    }
  }
  return bound;
}

Result<int64_t> Bound::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  if (at(i).is_integral()) return at(i).as_integer();
  return fail(Code::invalid, "{}: the argument \"{}\" is a {}; it must be a whole number", what_,
              names_[i], at(i).type_name());
}

Result<std::string> Bound::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return std::string(fallback);
  if (at(i).is_string()) return at(i).as_string();
  return fail(Code::invalid, "{}: the argument \"{}\" is a {}; it must be a string", what_,
              names_[i], at(i).type_name());
}

}  // namespace asap::jinja
