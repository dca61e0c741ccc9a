// Tests of the language: `x is defined`, `x is in y`.
#pragma once

#include <string>

#include "asap/base/result.h"
#include "asap/chat/arguments.h"
#include "asap/chat/value.h"

namespace asap::jinja {

class Interpreter;

// Unsupported: a test that is not implemented; invalid: one that nobody knows.
Result<bool> apply_test(Interpreter& interpreter, const std::string& name, const Value& operand,
                        const Arguments& arguments);

}  // namespace asap::jinja
