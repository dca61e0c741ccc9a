#include "asap/chat/operators.h"

#include <algorithm>
#include <cmath>

#include "asap/chat/format.h"
#include "asap/chat/print.h"

namespace asap::jinja {

namespace {

bool is_list_of(const Value& value, SequenceKind kind) {
  return value.is(Kind::sequence) && value.sequence().kind == kind;
}

// Only immutable values can be keys, in Python as here.
bool is_hashable(const Value& value) {
  if (value.is(Kind::sequence)) {
    const std::vector<Value>& items = value.sequence().items;
    return value.sequence().kind == SequenceKind::tuple &&
           std::all_of(items.begin(), items.end(), is_hashable);
  }
  return value.kind() < Kind::sequence;
}

// Up to here every integer is a double too.
constexpr int64_t kExactInteger = int64_t{1} << 53;

std::string_view symbol(Op op) {
  switch (op) {
    case Op::add: return "+";
    case Op::subtract: return "-";
    case Op::multiply: return "*";
    case Op::divide: return "/";
    case Op::floor_divide: return "//";
    case Op::modulo: return "%";
    case Op::power: return "**";
    case Op::equal: return "==";
    case Op::unequal: return "!=";
    case Op::less: return "<";
    case Op::less_equal: return "<=";
    case Op::greater: return ">";
    case Op::greater_equal: return ">=";
    case Op::in: return "in";
    case Op::not_in: return "not in";
  }
  return "?";
}

tl::unexpected<Error> mismatch(Op op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return fail(Code::invalid, "{}", value->undefined_message());
  }
  if (a.is(Kind::big_integer) || b.is(Kind::big_integer)) {
    return fail(Code::unsupported, "{} of an integer beyond 64 bits is not supported", symbol(op));
  }
  return fail(Code::invalid, "{} is not possible between a {} and a {}", symbol(op), a.type_name(),
              b.type_name());
}

tl::unexpected<Error> too_large(Op op) {
  return fail(Code::unsupported, "the result of {} exceeds 64 bits", symbol(op));
}

tl::unexpected<Error> by_zero() {
  return fail(Code::invalid, "division by zero");
}

// Every int64 and every double is a long double of the same value on the machines we build for.
long double exact(const Value& number) {
  return number.is(Kind::real) ? static_cast<long double>(number.as_real())
                               : static_cast<long double>(number.as_integer());
}

Result<bool> equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    ASAP_ASSIGN(const bool same, equal(a[i], b[i], budget));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    ASAP_ASSIGN(const Value* const other, find_entry(b, key, budget));
    if (!other) return false;
    ASAP_ASSIGN(const bool same, equal(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

// Orders two lists or two tuples: by their first items that differ.
Result<bool> less_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ASAP_ASSIGN(const bool same, equal(a[i], b[i], budget));
    if (!same) return less(a[i], b[i], budget);
  }
  return a.size() < b.size();
}

// Two lists, or two tuples.
bool are_alike(const Value& a, const Value& b) {
  for (const SequenceKind kind : {SequenceKind::list, SequenceKind::tuple}) {
    if (is_list_of(a, kind) && is_list_of(b, kind)) return true;
  }
  return false;
}

Result<Value> repeat(const Value& value, int64_t times, Budget& budget) {
  const uint64_t count = times < 0 ? 0 : static_cast<uint64_t>(times);
  const uint64_t size =
      value.is_string() ? value.as_string().size() : value.sequence().items.size() * sizeof(Value);
  if (size != 0 && count > budget.limits().output_bytes / size) {
    return fail(Code::invalid, "a value exceeds {} bytes", budget.limits().output_bytes);
  }
  ASAP_TRY(budget.make(size * count));
  if (size == 0) return value;
  if (value.is_string()) {
    std::string out;
    out.reserve(size * count);
    for (uint64_t i = 0; i < count; ++i) out += value.as_string();
    return value.is_safe() ? Value::safe_text(std::move(out)) : Value::text(std::move(out));
  }
  std::vector<Value> items;
  for (uint64_t i = 0; i < count; ++i) {
    items.insert(items.end(), value.sequence().items.begin(), value.sequence().items.end());
  }
  return make_sequence(value.sequence().kind, std::move(items));
}

Result<Value> concatenate(const Value& a, const Value& b, Budget& budget) {
  if (a.is_string()) {
    ASAP_TRY(budget.make(a.as_string().size() + b.as_string().size()));
    if (!a.is_safe() && !b.is_safe()) return Value::text(a.as_string() + b.as_string());
    const auto part = [](const Value& text) {
      return text.is_safe() ? text.as_string() : escape_html(text.as_string());
    };
    return Value::safe_text(part(a) + part(b));
  }
  std::vector<Value> items = a.sequence().items;
  items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
  ASAP_TRY(budget.make(items.size() * sizeof(Value)));
  return make_sequence(a.sequence().kind, std::move(items));
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return by_zero();
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return too_large(Op::power);
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large(Op::power);
  }
  return Value::integer(result);
}

Result<Value> calculate_integers(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &result)) return too_large(op);
      return Value::integer(result);
    case Op::subtract:
      if (__builtin_sub_overflow(a, b, &result)) return too_large(op);
      return Value::integer(result);
    case Op::multiply:
      if (__builtin_mul_overflow(a, b, &result)) return too_large(op);
      return Value::integer(result);
    case Op::divide:
      if (b == 0) return by_zero();
      if (std::max(a, b) > kExactInteger || std::min(a, b) < -kExactInteger) {
        return fail(Code::unsupported, "division of integers beyond 2^53 is not supported");
      }
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Op::power: return integer_power(a, b);
    default: break;
  }
  if (b == 0) return by_zero();
  if (a == INT64_MIN && b == -1) {
    return op == Op::modulo ? Result<Value>(Value::integer(0)) : too_large(op);
  }
  // Python rounds down: the remainder has the divisor's sign.
  const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);
  if (op == Op::modulo) return Value::integer(adjust ? a % b + b : a % b);
  return Value::integer(adjust ? a / b - 1 : a / b);
}

Result<Value> calculate_reals(Op op, double a, double b) {
  switch (op) {
    case Op::add: return Value::real(a + b);
    case Op::subtract: return Value::real(a - b);
    case Op::multiply: return Value::real(a * b);
    case Op::divide:
      if (b == 0) return by_zero();
      return Value::real(a / b);
    case Op::power: {
      if (a == 0 && b < 0) return by_zero();
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        return fail(Code::unsupported, "a complex number as the result of ** is not supported");
      }
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return fail(Code::invalid, "the result of ** is too large for a float");
      }
      return Value::real(result);
    }
    default: break;
  }
  if (b == 0) return by_zero();
  // As CPython's float_divmod: the remainder has the divisor's sign, the quotient is exact.
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (op == Op::modulo) return Value::real(remainder);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::real(quotient - floor > 0.5 ? floor + 1 : floor);
}

}  // namespace

Result<bool> equal(const Value& a, const Value& b, Budget& budget) {
  ASAP_TRY(budget.spend(1));
  if (a.is_number() && b.is_number()) return exact(a) == exact(b);
  if (a.kind() != b.kind()) {
    if ((a.is(Kind::big_integer) && b.is(Kind::real)) ||
        (a.is(Kind::real) && b.is(Kind::big_integer))) {
      return mismatch(Op::equal, a, b);
    }
    return false;
  }
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string: return a.as_string() == b.as_string();
    case Kind::big_integer: return a.digits() == b.digits();
    case Kind::dict: return equal_dicts(a.dict(), b.dict(), budget);
    case Kind::name_space: return &a.name_space() == &b.name_space();
    case Kind::sequence:
      if (are_alike(a, b)) return equal_items(a.sequence().items, b.sequence().items, budget);
      if (is_list_of(a, SequenceKind::list) || is_list_of(b, SequenceKind::list) ||
          is_list_of(a, SequenceKind::tuple) || is_list_of(b, SequenceKind::tuple)) {
        return false;
      }
      break;
    default: break;
  }
  return fail(Code::unsupported, "comparing a {} with a {} is not supported", a.type_name(),
              b.type_name());
}

Result<bool> less(const Value& a, const Value& b, Budget& budget) {
  ASAP_TRY(budget.spend(1));
  if (a.is_number() && b.is_number()) return exact(a) < exact(b);
  if (a.is_string() && b.is_string()) return a.as_string() < b.as_string();
  if (are_alike(a, b)) return less_items(a.sequence().items, b.sequence().items, budget);
  return mismatch(Op::less, a, b);
}

Result<bool> compare(Op op, const Value& a, const Value& b, Budget& budget) {
  switch (op) {
    case Op::equal: return equal(a, b, budget);
    case Op::in: return contains(b, a, budget);
    case Op::less: return less(a, b, budget);
    case Op::greater: return less(b, a, budget);
    case Op::unequal: {
      ASAP_ASSIGN(const bool same, equal(a, b, budget));
      return !same;
    }
    case Op::not_in: {
      ASAP_ASSIGN(const bool found, contains(b, a, budget));
      return !found;
    }
    default: break;
  }
  // With a NaN neither holds, so <= is not the opposite of >.
  ASAP_ASSIGN(const bool before, op == Op::less_equal ? less(a, b, budget) : less(b, a, budget));
  if (before) return true;
  return equal(a, b, budget);
}

Result<bool> contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::undefined: return false;
    case Kind::string:
      if (!item.is_string()) return mismatch(Op::in, item, container);
      ASAP_TRY(budget.spend(container.as_string().size() / 64));
      return container.as_string().find(item.as_string()) != std::string::npos;
    case Kind::dict: {
      if (!is_hashable(item)) {
        return fail(Code::invalid, "a {} cannot be a key of a dict", item.type_name());
      }
      ASAP_ASSIGN(const Value* const found, find_entry(container.dict(), item, budget));
      return found != nullptr;
    }
    case Kind::sequence:
      for (const Value& one : container.sequence().items) {
        ASAP_ASSIGN(const bool same, equal(one, item, budget));
        if (same) return true;
      }
      return false;
    case Kind::iterator: {
      Iterator& iterator = container.iterator();
      while (iterator.next < iterator.items.size()) {
        ASAP_ASSIGN(const bool same, equal(iterator.items[iterator.next++], item, budget));
        if (same) return true;
      }
      return false;
    }
    default: return mismatch(Op::in, item, container);
  }
}

Result<Value> calculate(Op op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_integral() && b.is_integral()) {
    return calculate_integers(op, a.as_integer(), b.as_integer());
  }
  if (a.is_number() && b.is_number()) return calculate_reals(op, a.as_real(), b.as_real());
  if (op == Op::modulo && a.is_string()) return percent_format(a, b, budget);
  if (op == Op::add && ((a.is_string() && b.is_string()) || are_alike(a, b))) {
    return concatenate(a, b, budget);
  }
  const auto repeats = [](const Value& value) {
    return value.is_string() || is_list_of(value, SequenceKind::list) ||
           is_list_of(value, SequenceKind::tuple);
  };
  if (op == Op::multiply && repeats(a) && b.is_integral()) {
    return repeat(a, b.as_integer(), budget);
  }
  if (op == Op::multiply && a.is_integral() && repeats(b)) {
    return repeat(b, a.as_integer(), budget);
  }
  return mismatch(op, a, b);
}

Result<Value> negate(const Value& value) {
  if (value.is(Kind::real)) return Value::real(-value.as_real());
  if (!value.is_integral()) return mismatch(Op::subtract, Value::integer(0), value);
  return calculate_integers(Op::subtract, 0, value.as_integer());
}

Result<Value> positive(const Value& value) {
  if (value.is(Kind::real)) return value;
  if (!value.is_integral()) return mismatch(Op::add, Value::integer(0), value);
  return Value::integer(value.as_integer());
}

Result<const Value*> find_entry(const Dict& dict, const Value& key, Budget& budget) {
  if (key.is_string()) return dict.find(key.as_string());
  if (!is_hashable(key)) return nullptr;
  for (const auto& [name, value] : dict.entries) {
    ASAP_ASSIGN(const bool same, equal(name, key, budget));
    if (same) return &value;
  }
  return nullptr;
}

Status set_entry(DictBuilder& dict, Value key, Value value, Budget& budget) {
  if (key.is_string()) {
    dict.set(std::move(key), std::move(value));
    return {};
  }
  if (!is_hashable(key)) {
    return fail(Code::invalid, "a {} cannot be a key of a dict", key.type_name());
  }
  const auto& entries = dict.so_far().entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    ASAP_ASSIGN(const bool same, equal(entries[i].first, key, budget));
    if (!same) continue;
    dict.replace(i, std::move(value));
    return {};
  }
  dict.append(std::move(key), std::move(value));
  return {};
}

}  // namespace asap::jinja
