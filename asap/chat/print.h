// Values as text: Python's str() and repr(), which is what templates print.
#pragma once

#include <string>
#include <string_view>

#include "asap/base/result.h"
#include "asap/chat/budget.h"
#include "asap/chat/value.h"

namespace asap::jinja {

// Python's shortest form that reads back as the same number: 1.0, 1e+16, inf.
std::string real_text(double value);
// 'text' with Python's quotes and escapes.
std::string repr_text(std::string_view text);

// str(value), added to `out`, which must not outgrow the output's limit. Unsupported: values whose
// text nobody wants (macros, iterators, views of a dict).
Status append_str(const Value& value, std::string& out, Budget& budget);
Result<std::string> str(const Value& value, Budget& budget);
// repr(value), which is also how list and dict show what they hold.
Status append_repr(const Value& value, std::string& out, Budget& budget);

// & < > ' " as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace asap::jinja
