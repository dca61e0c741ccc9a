// Filters of the language: `value | name(arguments)`, as Jinja 3.1 defines them, and `tojson` as
// Hugging Face does.
#pragma once

#include <string>
#include <string_view>

#include "asap/base/result.h"
#include "asap/chat/arguments.h"
#include "asap/chat/value.h"

namespace asap::jinja {

class Interpreter;

// Unsupported: a filter that is not implemented; invalid: one that nobody knows.
Result<Value> apply_filter(Interpreter& interpreter, const std::string& name, const Value& operand,
                           const Arguments& arguments);

// What a filter gets to work with.
struct FilterCall {
  Interpreter& interpreter;
  const std::string& name;
  const Value& operand;
  const Arguments& arguments;

  Result<Bound> bind(std::initializer_list<std::string_view> names, size_t required = 0) const;
};
using Filter = Result<Value> (*)(const FilterCall&);

// Filters of lists and dicts (sequence_filters.cc), or null.
Filter find_sequence_filter(std::string_view name);

}  // namespace asap::jinja
