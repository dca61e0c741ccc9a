// Interpreter: the values of expressions.
#include <algorithm>

#include "asap/chat/filters.h"
#include "asap/chat/functions.h"
#include "asap/chat/interpreter.h"
#include "asap/chat/methods.h"
#include "asap/chat/operators.h"
#include "asap/chat/predicates.h"
#include "asap/chat/print.h"
#include "asap/chat/text.h"

namespace asap::jinja {

namespace {

constexpr int kMaxNesting = kMaxValueDepth;

// Position of item `index` (negative: from the end) among `size`, or -1.
int64_t position(const Value& index, size_t size) {
  if (!index.is_integral()) return -1;
  const auto count = static_cast<int64_t>(size);
  const int64_t at = index.as_integer() < 0 ? index.as_integer() + count : index.as_integer();
  return at >= 0 && at < count ? at : -1;
}

// Python's slice.indices(): the positions of [from:to:step] among `size`.
struct Slice {
  int64_t from = 0, to = 0, step = 1;
};

int64_t bound(const Value& value, int64_t fallback, int64_t size, int64_t step) {
  if (value.is_none()) return fallback;
  int64_t at = std::clamp<int64_t>(value.as_integer(), -size - 1, size + 1);
  if (at < 0) at += size;
  return std::clamp<int64_t>(at, step < 0 ? -1 : 0, step < 0 ? size - 1 : size);
}

// The bounds are none or whole numbers.
Result<Slice> slice_of(const std::vector<Value>& bounds, size_t count) {
  const auto size = static_cast<int64_t>(count);
  Slice slice;
  if (!bounds[2].is_none()) {
    // Steps beyond the size all take one item.
    slice.step = std::clamp<int64_t>(bounds[2].as_integer(), -size - 1, size + 1);
    if (slice.step == 0) return fail(Code::invalid, "the step of a slice cannot be 0");
  }
  slice.from = bound(bounds[0], slice.step < 0 ? size - 1 : 0, size, slice.step);
  slice.to = bound(bounds[1], slice.step < 0 ? -1 : size, size, slice.step);
  return slice;
}

}  // namespace

Result<Value> Interpreter::eval(const Expr& expr) {
  ASAP_TRY(budget_.spend(1));
  if (expr.kind == Expr::Kind::constant) return expr.value;
  if (++nesting_ > budget_.limits().nesting) {
    return fail(Code::invalid, "the template is nested deeper than {} levels",
                budget_.limits().nesting);
  }
  auto value = evaluated(expr);
  --nesting_;
  if (!value) return located(std::move(value).error(), expr.line);
  if (value->depth() > kMaxNesting) {
    return fail(Code::invalid, "a value is nested deeper than {} levels", kMaxNesting);
  }
  return value;
}

Result<Value> Interpreter::evaluated(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::constant: return expr.value;
    case Expr::Kind::name: return eval_name(expr);
    case Expr::Kind::list:
    case Expr::Kind::tuple: {
      ASAP_ASSIGN(std::vector<Value> items, eval_all(expr.parts));
      ASAP_TRY(budget_.make(items.size() * sizeof(Value)));
      return make_sequence(expr.kind == Expr::Kind::list ? SequenceKind::list : SequenceKind::tuple,
                           std::move(items));
    }
    case Expr::Kind::dict: return eval_dict(expr);
    case Expr::Kind::attribute: {
      ASAP_ASSIGN(const Value object, eval(*expr.parts[0]));
      return attribute(object, expr.value.shared_text());
    }
    case Expr::Kind::item: {
      ASAP_ASSIGN(const Value object, eval(*expr.parts[0]));
      ASAP_ASSIGN(const Value key, eval(*expr.parts[1]));
      return item(object, key);
    }
    case Expr::Kind::slice: return eval_slice(expr);
    case Expr::Kind::call: return eval_call(expr, nullptr);
    case Expr::Kind::filter: return eval_filter(expr);
    case Expr::Kind::test: return eval_test(expr);
    case Expr::Kind::comparison: return eval_comparison(expr);
    case Expr::Kind::concat: return eval_concat(expr);
    case Expr::Kind::conditional: return eval_conditional(expr);
    default: return eval_operator(expr);
  }
}

Result<Value> Interpreter::eval_name(const Expr& expr) {
  for (Scope* scope = scope_.get(); scope; scope = scope->outer.get()) {
    if (const Value* found = scope->find(expr.name)) return *found;
  }
  return global(expr.name, expr.value.shared_text());
}

Result<std::vector<Value>> Interpreter::eval_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) {
    ASAP_ASSIGN(Value value, eval(*expr));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::eval_dict(const Expr& expr) {
  DictBuilder dict;
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    ASAP_ASSIGN(Value key, eval(*expr.parts[i]));
    ASAP_ASSIGN(Value value, eval(*expr.parts[i + 1]));
    ASAP_TRY(budget_.make(2 * sizeof(Value)));
    ASAP_TRY(set_entry(dict, std::move(key), std::move(value), budget_));
  }
  return dict.finish();
}

Result<Value> Interpreter::eval_slice(const Expr& expr) {
  ASAP_ASSIGN(const Value object, eval(*expr.parts[0]));
  std::vector<Value> bounds;
  for (size_t i = 1; i < 4; ++i) {
    if (!expr.parts[i]) {
      bounds.push_back(Value::none());
      continue;
    }
    ASAP_ASSIGN(Value value, eval(*expr.parts[i]));
    bounds.push_back(std::move(value));
  }
  if (object.is_undefined()) return fail(Code::invalid, "{}", object.undefined_message());
  const bool whole_numbers = std::all_of(bounds.begin(), bounds.end(), [](const Value& value) {
    return value.is_none() || value.is_integral();
  });
  if (!whole_numbers) return fail(Code::invalid, "a slice needs whole numbers");
  if (!object.is_string() && !object.is(Kind::sequence)) {
    return fail(Code::invalid, "a {} cannot be sliced", object.type_name());
  }
  return slice(object, bounds);
}

Result<Value> Interpreter::slice(const Value& object, const std::vector<Value>& bounds) {
  if (object.is_safe())
    return fail(Code::unsupported, "a part of a text marked safe is not supported");
  if (object.is_string()) {
    const std::string_view whole = object.as_string();
    ASAP_TRY(budget_.spend(whole.size() / 16));
    ASAP_ASSIGN(const Slice part, slice_of(bounds, length(whole)));
    std::string out;
    if (part.step == 1) {
      out = substring(whole, static_cast<size_t>(part.from), static_cast<size_t>(part.to));
    } else {
      ASAP_TRY(budget_.make(whole.size() * sizeof(std::string_view)));
      const std::vector<std::string_view> all = characters(whole);
      for (int64_t i = part.from; part.step > 0 ? i < part.to : i > part.to; i += part.step) {
        out += all[static_cast<size_t>(i)];
      }
    }
    return text(std::move(out));
  }
  const bool sliceable =
      object.is(Kind::sequence) && (object.sequence().kind == SequenceKind::list ||
                                    object.sequence().kind == SequenceKind::tuple);
  if (!sliceable) {
    return fail(Code::unsupported, "a slice of a {} is not supported", object.type_name());
  }
  const std::vector<Value>& all = object.sequence().items;
  ASAP_ASSIGN(const Slice part, slice_of(bounds, all.size()));
  std::vector<Value> items;
  for (int64_t i = part.from; part.step > 0 ? i < part.to : i > part.to; i += part.step) {
    items.push_back(all[static_cast<size_t>(i)]);
  }
  ASAP_TRY(budget_.make(items.size() * sizeof(Value)));
  return make_sequence(object.sequence().kind, std::move(items));
}

Result<Value> Interpreter::eval_comparison(const Expr& expr) {
  ASAP_ASSIGN(Value left, eval(*expr.parts[0]));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    ASAP_ASSIGN(Value right, eval(*expr.parts[i + 1]));
    ASAP_ASSIGN(const bool holds, compare(expr.ops[i], left, right, budget_));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::eval_concat(const Expr& expr) {
  std::string out;
  for (const ExprPtr& part : expr.parts) {
    ASAP_ASSIGN(const Value value, eval(*part));
    ASAP_TRY(append_str(value, out, budget_));
  }
  return text(std::move(out));
}

Result<Value> Interpreter::eval_operator(const Expr& expr) {
  ASAP_ASSIGN(const Value left, eval(*expr.parts[0]));
  switch (expr.kind) {
    case Expr::Kind::negation: return Value::boolean(!left.truth());
    case Expr::Kind::minus: return negate(left);
    case Expr::Kind::plus: return positive(left);
    case Expr::Kind::conjunction: return left.truth() ? eval(*expr.parts[1]) : left;
    case Expr::Kind::disjunction: return left.truth() ? left : eval(*expr.parts[1]);
    default: break;
  }
  ASAP_ASSIGN(const Value right, eval(*expr.parts[1]));
  return calculate(expr.ops[0], left, right, budget_);
}

Result<Value> Interpreter::eval_conditional(const Expr& expr) {
  ASAP_ASSIGN(const Value condition, eval(*expr.parts[1]));
  if (condition.truth()) return eval(*expr.parts[0]);
  if (expr.parts[2]) return eval(*expr.parts[2]);
  static const Text kNothing = std::make_shared<const std::string>("the inline if without else");
  return Value::undefined(kNothing, "");
}

Result<Arguments> Interpreter::eval_arguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.parts.size(); ++i) {
    ASAP_ASSIGN(Value value, eval(*expr.parts[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, part] : expr.named) {
    ASAP_ASSIGN(Value value, eval(*part));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (expr.spread.positional) {
    ASAP_ASSIGN(const Value more, eval(*expr.spread.positional));
    ASAP_ASSIGN(const auto items, items_of(more));
    arguments.positional.insert(arguments.positional.end(), items->begin(), items->end());
  }
  if (expr.spread.named) {
    ASAP_ASSIGN(const Value more, eval(*expr.spread.named));
    if (!more.is(Kind::dict)) {
      return fail(Code::invalid, "** needs a dict, not a {}", more.type_name());
    }
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is_string()) return fail(Code::invalid, "** needs a dict with names as keys");
      arguments.named.emplace_back(key.as_string(), value);
    }
  }
  return arguments;
}

Result<Value> Interpreter::eval_call(const Expr& expr, const Value* caller) {
  ASAP_ASSIGN(const Value callee, eval(*expr.parts[0]));
  ASAP_ASSIGN(Arguments arguments, eval_arguments(expr));
  if (caller) arguments.named.emplace_back("caller", *caller);
  return call(callee, arguments);
}

Result<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) return fail(Code::invalid, "{}", callee.undefined_message());
  if (callee.is(Kind::loop)) {
    return fail(Code::unsupported, "calling loop() is not supported: no loop is recursive");
  }
  if (!callee.is(Kind::callable)) {
    return fail(Code::invalid, "a {} cannot be called", callee.type_name());
  }
  const Callable& callable = callee.callable();
  switch (callable.what) {
    case Callable::What::macro: return call_macro(*callable.macro, arguments);
    case Callable::What::method: return call_method(*this, callable.self, callable.name, arguments);
    case Callable::What::function: return call_function(*this, callable.name, arguments);
  }
  return Value();
}

Result<Value> Interpreter::eval_filter(const Expr& expr) {
  ASAP_ASSIGN(const Value operand, eval(*expr.parts[0]));
  ASAP_ASSIGN(const Arguments arguments, eval_arguments(expr));
  return filter(expr.name, operand, arguments);
}

Result<Value> Interpreter::eval_test(const Expr& expr) {
  ASAP_ASSIGN(const Value operand, eval(*expr.parts[0]));
  ASAP_ASSIGN(const Arguments arguments, eval_arguments(expr));
  ASAP_ASSIGN(const bool holds, test(expr.name, operand, arguments));
  return Value::boolean(holds);
}

Result<Value> Interpreter::filter(const std::string& name, const Value& operand,
                                  const Arguments& arguments) {
  ASAP_TRY(budget_.spend(operand.is_string() ? operand.as_string().size() / 16 + 1 : 1));
  return apply_filter(*this, name, operand, arguments);
}

Result<bool> Interpreter::test(const std::string& name, const Value& operand,
                               const Arguments& arguments) {
  ASAP_TRY(budget_.spend(1));
  return apply_test(*this, name, operand, arguments);
}

// ---- parts of values

Result<Value> Interpreter::attribute(const Value& object, const Text& name) {
  if (object.is_undefined()) return fail(Code::invalid, "{}", object.undefined_message());
  ASAP_ASSIGN(std::optional<Value> own, own_attribute(*this, object, name));
  if (own) return *std::move(own);
  if (object.is(Kind::dict)) {
    if (const Value* found = object.dict().find(*name)) return *found;
  }
  return Value::undefined(name, object.type_name());
}

Result<Value> Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) return fail(Code::invalid, "{}", object.undefined_message());
  if (object.is_safe())
    return fail(Code::unsupported, "a part of a text marked safe is not supported");
  if (object.is_string()) {
    const std::string_view whole = object.as_string();
    ASAP_TRY(budget_.spend(whole.size() / 16));
    if (const int64_t at = position(key, length(whole)); at >= 0) {
      const auto from = static_cast<size_t>(at);
      return text(std::string(substring(whole, from, from + 1)));
    }
  } else if (object.is(Kind::sequence)) {
    const Sequence& sequence = object.sequence();
    const bool indexed = sequence.kind == SequenceKind::list ||
                         sequence.kind == SequenceKind::tuple ||
                         sequence.kind == SequenceKind::range;
    const int64_t at = indexed ? position(key, sequence.items.size()) : -1;
    if (at >= 0) return sequence.items[static_cast<size_t>(at)];
  } else if (object.is(Kind::dict)) {
    ASAP_ASSIGN(const Value* found, find_entry(object.dict(), key, budget_));
    if (found) return *found;
  }
  if (key.is_string()) {
    ASAP_ASSIGN(std::optional<Value> own, own_attribute(*this, object, key.shared_text()));
    if (own) return *std::move(own);
    return Value::undefined(key.shared_text(), object.type_name());
  }
  ASAP_ASSIGN(std::string shown, str(key, budget_));
  return Value::undefined(std::make_shared<const std::string>(std::move(shown)),
                          object.type_name());
}

Result<std::shared_ptr<const std::vector<Value>>> Interpreter::items_of(const Value& value) {
  using Items = std::shared_ptr<const std::vector<Value>>;
  if (value.is(Kind::sequence)) {
    const auto& sequence = value.shared_sequence();
    return Items(sequence, &sequence->items);
  }
  auto items = std::make_shared<std::vector<Value>>();
  switch (value.kind()) {
    case Kind::undefined: return Items(items);
    case Kind::string:
      ASAP_TRY(budget_.make(value.as_string().size() * 3 * sizeof(Value)));
      for (const std::string_view c : characters(value.as_string())) {
        items->push_back(Value::text(std::string(c)));
      }
      return Items(items);
    case Kind::dict:
      ASAP_TRY(budget_.make(value.dict().entries.size() * sizeof(Value)));
      for (const auto& [key, entry] : value.dict().entries) items->push_back(key);
      return Items(items);
    case Kind::iterator: {
      Iterator& iterator = value.iterator();
      ASAP_TRY(budget_.make((iterator.items.size() - iterator.next) * sizeof(Value)));
      items->assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next),
                    iterator.items.end());
      iterator.next = iterator.items.size();
      return Items(items);
    }
    case Kind::loop:
      return fail(Code::unsupported, "iterating over the loop variable is not supported");
    default: break;
  }
  return fail(Code::invalid, "a {} cannot be iterated over", value.type_name());
}

Result<std::string> Interpreter::text_of(const Value& value) {
  return str(value, budget_);
}

Result<Value> Interpreter::text(std::string value) {
  ASAP_TRY(budget_.make(value.size() + sizeof(Value)));
  return Value::text(std::move(value));
}

}  // namespace asap::jinja
