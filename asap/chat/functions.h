// Global names of the language: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include <string>
#include <string_view>

#include "asap/base/result.h"
#include "asap/chat/arguments.h"
#include "asap/chat/value.h"

namespace asap::jinja {

class Interpreter;

// What a name means that no scope has: a function, or undefined. Unsupported: a global of Jinja
// that is not implemented.
Result<Value> global(std::string_view name, const Text& shared_name);
Result<Value> call_function(Interpreter& interpreter, std::string_view name,
                            const Arguments& arguments);

}  // namespace asap::jinja
