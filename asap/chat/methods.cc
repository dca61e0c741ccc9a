#include "asap/chat/methods.h"

#include <algorithm>
#include <array>
#include <span>

#include "asap/chat/interpreter.h"
#include "asap/chat/operators.h"

namespace asap::jinja {

namespace {

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 36> kStringMethods = {
    "capitalize", "center",     "count",       "endswith",  "find",      "format",
    "index",      "isalnum",    "isalpha",     "isascii",   "isdecimal", "isdigit",
    "islower",    "isnumeric",  "isprintable", "isspace",   "isupper",   "join",
    "ljust",      "lower",      "lstrip",      "partition", "replace",   "rfind",
    "rindex",     "rjust",      "rpartition",  "rsplit",    "rstrip",    "split",
    "splitlines", "startswith", "strip",       "swapcase",  "title",     "upper",
};
constexpr std::array<std::string_view, 3> kMoreStringMethods = {"removeprefix", "removesuffix",
                                                                "zfill"};
constexpr std::array<std::string_view, 11> kOtherStringAttributes = {
    "casefold",  "encode",    "expandtabs", "format_map", "isidentifier", "istitle",
    "maketrans", "translate", "escape",     "unescape",   "striptags"};
constexpr std::array<std::string_view, 3> kListMethods = {"copy", "count", "index"};
constexpr std::array<std::string_view, 2> kTupleMethods = {"count", "index"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear",  "extend",  "insert",
                                                          "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kDictMethods = {"copy", "get", "items", "keys", "values"};
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault",
                                                          "update"};
constexpr std::array<std::string_view, 1> kOtherDictAttributes = {"fromkeys"};
constexpr std::array<std::string_view, 7> kOtherSequenceAttributes = {
    "count", "index", "start", "stop", "step", "isdisjoint", "mapping"};
constexpr std::array<std::string_view, 14> kNumberAttributes = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate",  "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",       "is_integer",
    "numerator",        "real",      "to_bytes",   "from_number"};
constexpr std::array<std::string_view, 8> kIteratorAttributes = {
    "close", "gi_code", "gi_frame", "gi_running", "gi_suspended", "gi_yieldfrom", "send", "throw"};

bool has(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value bound_method(const Value& self, const std::string& name) {
  auto callable = std::make_shared<Callable>();
  callable->what = Callable::What::method;
  callable->name = name;
  callable->self = self;
  return Value::of(std::shared_ptr<const Callable>(std::move(callable)));
}

tl::unexpected<Error> unsupported(const Value& object, std::string_view name) {
  return fail(Code::unsupported, "the attribute \"{}\" of a {} is not supported", name,
              object.type_name());
}

// The value as an attribute of its type, by the names of the type's methods: those that work,
// those that would change it, and those that are missing here.
Result<std::optional<Value>> by_names(const Value& object, const Text& name, Names methods,
                                      Names changes, Names others, std::string_view changed_type) {
  if (has(methods, *name)) return bound_method(object, *name);
  if (has(changes, *name)) return Value::undefined(name, changed_type);
  if (has(others, *name)) return unsupported(object, *name);
  return std::nullopt;
}

Result<std::optional<Value>> loop_attribute(const Value& object, std::string_view name,
                                            const Text& shared_name) {
  const Loop& loop = object.loop();
  const auto number = [](size_t value) { return Value::integer(static_cast<int64_t>(value)); };
  const size_t length = loop.items->size();
  if (name == "index0") return number(loop.index0);
  if (name == "index") return number(loop.index0 + 1);
  if (name == "revindex0") return number(length - loop.index0 - 1);
  if (name == "revindex") return number(length - loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.index0 + 1 == length);
  if (name == "length") return number(length);
  if (name == "depth0") return number(0);
  if (name == "depth") return number(1);
  if (name == "cycle" || name == "changed") return bound_method(object, *shared_name);
  if (name == "previtem" && loop.index0 > 0) return (*loop.items)[loop.index0 - 1];
  if (name == "nextitem" && loop.index0 + 1 < length) return (*loop.items)[loop.index0 + 1];
  return std::nullopt;
}

Result<Value> call_loop_method(Interpreter& interpreter, Loop& loop, const std::string& name,
                               const Arguments& arguments) {
  if (!arguments.named.empty()) {
    return fail(Code::invalid, "loop.{} takes no arguments by name", name);
  }
  if (name == "cycle") {
    if (arguments.positional.empty()) return fail(Code::invalid, "loop.cycle needs values");
    return arguments.positional[loop.index0 % arguments.positional.size()];
  }
  for (const Value& value : arguments.positional) {
    if (value.kind() <= Kind::string) continue;
    return fail(Code::unsupported, "loop.changed of a {} is not supported", value.type_name());
  }
  Value now = make_sequence(SequenceKind::tuple, arguments.positional);
  ASAP_ASSIGN(const bool same, equal(loop.last_changed, now, interpreter.budget()));
  loop.last_changed = std::move(now);
  return Value::boolean(!same);
}

Result<Value> call_sequence_method(Interpreter& interpreter, const Value& self,
                                   const std::string& name, const Arguments& arguments) {
  if (name == "copy") {
    ASAP_TRY(Bound::bind("copy", arguments, {}, 0));
    return self;
  }
  if (name == "index" && arguments.positional.size() > 1) {
    return fail(Code::unsupported, "index of a part of a list is not supported");
  }
  ASAP_ASSIGN(const Bound bound, Bound::bind(name, arguments, {"value"}, 1));
  int64_t found = 0;
  const std::vector<Value>& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    ASAP_ASSIGN(const bool same, equal(items[i], bound.at(0), interpreter.budget()));
    if (same && name == "index") return Value::integer(static_cast<int64_t>(i));
    if (same) ++found;
  }
  if (name == "index") return fail(Code::invalid, "the value is not in the list");
  return Value::integer(found);
}

Result<Value> call_dict_method(Interpreter& interpreter, const Value& self, const std::string& name,
                               const Arguments& arguments) {
  if (name == "get") {
    ASAP_ASSIGN(const Bound bound, Bound::bind("get", arguments, {"key", "default"}, 1));
    if (bound.at(0).is(Kind::dict) || (bound.at(0).is(Kind::sequence))) {
      ASAP_TRY(contains(self, bound.at(0), interpreter.budget()));  // says what is no key
    }
    ASAP_ASSIGN(const Value* found, find_entry(self.dict(), bound.at(0), interpreter.budget()));
    if (found) return *found;
    return bound.has(1) ? bound.at(1) : Value::none();
  }
  ASAP_TRY(Bound::bind(name, arguments, {}, 0));
  if (name == "copy") return self;
  std::vector<Value> items;
  const auto& entries = self.dict().entries;
  ASAP_TRY(interpreter.budget().make(entries.size() * 4 * sizeof(Value)));
  for (const auto& [key, value] : entries) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      items.push_back(make_sequence(SequenceKind::tuple, {key, value}));
    }
  }
  const SequenceKind kind = name == "keys"     ? SequenceKind::keys
                            : name == "values" ? SequenceKind::values
                                               : SequenceKind::items;
  return make_sequence(kind, std::move(items));
}

}  // namespace

Result<std::optional<Value>> own_attribute(Interpreter&, const Value& object, const Text& name) {
  if (name->starts_with("__") || (name->starts_with("_") && object.is(Kind::name_space))) {
    return fail(Code::unsupported, "the attribute \"{}\" of a {} is not open to templates", *name,
                object.type_name());
  }
  switch (object.kind()) {
    case Kind::string:
      if (has(kMoreStringMethods, *name)) return bound_method(object, *name);
      return by_names(object, name, kStringMethods, {}, kOtherStringAttributes, "");
    case Kind::dict:
      return by_names(object, name, kDictMethods, kDictChanges, kOtherDictAttributes, "!dict");
    case Kind::sequence:
      if (object.sequence().kind == SequenceKind::list) {
        return by_names(object, name, kListMethods, kListChanges, {}, "!list");
      }
      if (object.sequence().kind == SequenceKind::tuple) {
        return by_names(object, name, kTupleMethods, {}, {}, "");
      }
      return by_names(object, name, {}, {}, kOtherSequenceAttributes, "");
    case Kind::boolean:
    case Kind::integer:
    case Kind::big_integer:
    case Kind::real: return by_names(object, name, {}, {}, kNumberAttributes, "");
    case Kind::iterator: return by_names(object, name, {}, {}, kIteratorAttributes, "");
    case Kind::name_space:
      if (const Value* found = object.name_space().find(*name)) return *found;
      return std::nullopt;
    case Kind::loop: return loop_attribute(object, *name, name);
    case Kind::callable: return unsupported(object, *name);
    case Kind::undefined:
    case Kind::none: break;
  }
  return std::nullopt;
}

Result<Value> call_method(Interpreter& interpreter, const Value& self, const std::string& name,
                          const Arguments& arguments) {
  switch (self.kind()) {
    case Kind::string: return call_string_method(interpreter, self, name, arguments);
    case Kind::dict: return call_dict_method(interpreter, self, name, arguments);
    case Kind::loop: return call_loop_method(interpreter, self.loop(), name, arguments);
    default: return call_sequence_method(interpreter, self, name, arguments);
  }
}

}  // namespace asap::jinja
