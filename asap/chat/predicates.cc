#include "asap/chat/predicates.h"

#include <algorithm>
#include <array>

#include "asap/chat/filters.h"
#include "asap/chat/interpreter.h"
#include "asap/chat/operators.h"
#include "asap/chat/text_case.h"

namespace asap::jinja {

namespace {

// Tests of one value alone.
using Simple = bool (*)(const Value&);

bool is_sequence(const Value& value) {
  // What has a length and can be indexed, or says so: undefined does.
  if (value.is(Kind::sequence)) return value.sequence().kind <= SequenceKind::range;
  return value.is_string() || value.is(Kind::dict) || value.is_undefined();
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is(Kind::sequence) ||
         value.is(Kind::dict) || value.is(Kind::iterator) || value.is(Kind::loop);
}

constexpr std::array<std::pair<std::string_view, Simple>, 15> kSimple = {{
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"boolean", [](const Value& v) { return v.is(Kind::boolean); }},
    {"true", [](const Value& v) { return v.is(Kind::boolean) && v.as_bool(); }},
    {"false", [](const Value& v) { return v.is(Kind::boolean) && !v.as_bool(); }},
    {"integer", [](const Value& v) { return v.is(Kind::integer) || v.is(Kind::big_integer); }},
    {"float", [](const Value& v) { return v.is(Kind::real); }},
    {"number", [](const Value& v) { return v.is_number() || v.is(Kind::big_integer); }},
    {"string", [](const Value& v) { return v.is_string(); }},
    {"mapping", [](const Value& v) { return v.is(Kind::dict); }},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"callable",
     [](const Value& v) { return v.is(Kind::callable) || v.is(Kind::loop) || v.is_undefined(); }},
    {"escaped", [](const Value& v) { return v.is_safe(); }},
}};

// Tests that are comparisons under a name.
constexpr std::array<std::pair<std::string_view, Op>, 16> kComparisons = {{
    {"==", Op::equal},
    {"eq", Op::equal},
    {"equalto", Op::equal},
    {"!=", Op::unequal},
    {"ne", Op::unequal},
    {">", Op::greater},
    {"gt", Op::greater},
    {"greaterthan", Op::greater},
    {">=", Op::greater_equal},
    {"ge", Op::greater_equal},
    {"<", Op::less},
    {"lt", Op::less},
    {"lessthan", Op::less},
    {"<=", Op::less_equal},
    {"le", Op::less_equal},
    {"in", Op::in},
}};

// value % divisor == remainder, as Python calculates.
Result<bool> has_remainder(const Value& value, const Value& divisor, int64_t remainder,
                           Budget& budget) {
  ASAP_ASSIGN(const Value rest, calculate(Op::modulo, value, divisor, budget));
  return equal(rest, Value::integer(remainder), budget);
}

// `is` of Python, where it can be told from ==: for none, true and false.
Result<bool> same_as(const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_none()) return a.is_none() && b.is_none();
    if (value->is(Kind::boolean)) {
      return a.is(Kind::boolean) && b.is(Kind::boolean) && a.as_bool() == b.as_bool();
    }
  }
  return fail(Code::unsupported, "the test sameas of a {} and a {} is not supported", a.type_name(),
              b.type_name());
}

}  // namespace

Result<bool> apply_test(Interpreter& interpreter, const std::string& name, const Value& operand,
                        const Arguments& arguments) {
  Budget& budget = interpreter.budget();
  const std::string what = "test " + name;
  for (const auto& [known, test] : kSimple) {
    if (known != name) continue;
    ASAP_TRY(Bound::bind(what, arguments, {}, 0));
    return test(operand);
  }
  for (const auto& [known, op] : kComparisons) {
    if (known != name) continue;
    ASAP_ASSIGN(const Bound bound, Bound::bind(what, arguments, {"other"}, 1));
    return compare(op, operand, bound.at(0), budget);
  }
  if (name == "odd" || name == "even") {
    ASAP_TRY(Bound::bind(what, arguments, {}, 0));
    return has_remainder(operand, Value::integer(2), name == "odd" ? 1 : 0, budget);
  }
  if (name == "divisibleby") {
    ASAP_ASSIGN(const Bound bound, Bound::bind(what, arguments, {"num"}, 1));
    return has_remainder(operand, bound.at(0), 0, budget);
  }
  if (name == "lower" || name == "upper") {
    ASAP_TRY(Bound::bind(what, arguments, {}, 0));
    ASAP_ASSIGN(const std::string text, interpreter.text_of(operand));
    return has_class(text, "is" + name);
  }
  if (name == "sameas") {
    ASAP_ASSIGN(const Bound bound, Bound::bind(what, arguments, {"other"}, 1));
    return same_as(operand, bound.at(0));
  }
  if (name == "filter" || name == "test") {
    return fail(Code::unsupported, "the test \"{}\" is not supported", name);
  }
  return fail(Code::invalid, "there is no test named \"{}\"", name);
}

}  // namespace asap::jinja
