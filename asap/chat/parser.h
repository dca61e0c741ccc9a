// Parser of the template language: tokens to a tree, with the grammar of Jinja 3.1 and its
// precedences.
//
// What the grammar has and this interpreter does not (inheritance, imports, recursive loops) is
// refused here by its name.
#pragma once

#include <string_view>

#include "asap/base/result.h"
#include "asap/chat/ast.h"

namespace asap::jinja {

// Errors: invalid, unsupported; each with the line.
Result<Body> parse_template(std::string_view source);

}  // namespace asap::jinja
