// The two ways Python fills values into a text: "%s" % x and "{}".format(x).
#pragma once

#include "asap/base/result.h"
#include "asap/chat/arguments.h"
#include "asap/chat/budget.h"
#include "asap/chat/value.h"

namespace asap::jinja {

// text % values: a tuple gives one value after the other, a dict those of %(name)s, anything else
// itself. Unsupported: a conversion that is not implemented, by name.
Result<Value> percent_format(const Value& text, const Value& values, Budget& budget);

// text.format(...). Unsupported: fields with attributes or subscripts, and rare format codes.
Result<Value> brace_format(const Value& text, const Arguments& arguments, Budget& budget);

}  // namespace asap::jinja
