// Operators of the language with Python's rules: arithmetic, comparison, membership.
#pragma once

#include "asap/base/result.h"
#include "asap/chat/ast.h"
#include "asap/chat/budget.h"
#include "asap/chat/value.h"

namespace asap::jinja {

Result<bool> equal(const Value& a, const Value& b, Budget& budget);
// a < b. Invalid: values that Python does not order.
Result<bool> less(const Value& a, const Value& b, Budget& budget);
Result<bool> compare(Op op, const Value& a, const Value& b, Budget& budget);
// item in container
Result<bool> contains(const Value& container, const Value& item, Budget& budget);
// + - * / // % **. Invalid: a result that is no number, an operand of the wrong type; unsupported:
// an integer beyond 64 bits.
Result<Value> calculate(Op op, const Value& a, const Value& b, Budget& budget);
Result<Value> negate(const Value& value);
Result<Value> positive(const Value& value);

// The entry of a key of any kind, or null.
Result<const Value*> find_entry(const Dict& dict, const Value& key, Budget& budget);
// Invalid: a key that Python cannot hash.
Status set_entry(DictBuilder& dict, Value key, Value value, Budget& budget);

}  // namespace asap::jinja
