// Attributes and methods of values: those of Python's str, list, tuple and dict that do not change
// them, and the attributes of `loop` and of namespaces.
#pragma once

#include <optional>
#include <string>

#include "asap/base/result.h"
#include "asap/chat/arguments.h"
#include "asap/chat/value.h"

namespace asap::jinja {

class Interpreter;

// The attribute that the value's type has by itself, if any. Unsupported: one that Python has and
// this language does not.
Result<std::optional<Value>> own_attribute(Interpreter& interpreter, const Value& object,
                                           const Text& name);
Result<Value> call_method(Interpreter& interpreter, const Value& self, const std::string& name,
                          const Arguments& arguments);

// Methods of str (string_methods.cc).
Result<Value> call_string_method(Interpreter& interpreter, const Value& self,
                                 const std::string& name, const Arguments& arguments);

}  // namespace asap::jinja
