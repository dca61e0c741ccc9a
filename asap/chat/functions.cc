#include "asap/chat/functions.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "asap/chat/interpreter.h"
#include "asap/chat/operators.h"

namespace asap::jinja {

namespace {

constexpr int64_t kMaxRange = 100'000;  // items; the limit of Jinja's sandbox

Result<Value> range(Interpreter& interpreter, const Arguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) {
    return fail(Code::invalid, "range takes one to three numbers");
  }
  for (const Value& value : given) {
    if (value.is_integral()) continue;
    return fail(Code::invalid, "range needs whole numbers, not a {}", value.type_name());
  }
  const int64_t from = given.size() == 1 ? 0 : given[0].as_integer();
  const int64_t to = given.size() == 1 ? given[0].as_integer() : given[1].as_integer();
  const int64_t step = given.size() == 3 ? given[2].as_integer() : 1;
  if (step == 0) return fail(Code::invalid, "the step of a range cannot be 0");
  std::vector<Value> items;
  for (int64_t at = from; step > 0 ? at < to : at > to;) {
    if (items.size() == kMaxRange) {
      return fail(Code::invalid, "a range of more than {} numbers", kMaxRange);
    }
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  ASAP_TRY(interpreter.budget().make(items.size() * sizeof(Value)));
  return make_sequence(SequenceKind::range, std::move(items));
}

Result<Value> dict(Interpreter& interpreter, const Arguments& arguments) {
  Budget& budget = interpreter.budget();
  DictBuilder out;
  if (arguments.positional.size() > 1) {
    return fail(Code::invalid, "dict takes at most one argument without a name");
  }
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::dict)) {
      for (const auto& [key, value] : source.dict().entries) {
        ASAP_TRY(set_entry(out, key, value, budget));
      }
      continue;
    }
    ASAP_ASSIGN(const auto pairs, interpreter.items_of(source));
    for (const Value& pair : *pairs) {
      ASAP_ASSIGN(const auto both, interpreter.items_of(pair));
      if (both->size() != 2) return fail(Code::invalid, "dict needs pairs of key and value");
      ASAP_TRY(set_entry(out, (*both)[0], (*both)[1], budget));
    }
  }
  for (const auto& [name, value] : arguments.named) out.set(name, value);
  ASAP_TRY(budget.make(out.so_far().entries.size() * 2 * sizeof(Value)));
  return out.finish();
}

Result<Value> make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  ASAP_ASSIGN(const Value attributes, dict(interpreter, arguments));
  ASAP_TRY(interpreter.budget().make(sizeof(Namespace)));
  Namespace& space = interpreter.new_namespace();
  for (const auto& [key, value] : attributes.dict().entries) {
    if (!key.is_string()) return fail(Code::invalid, "namespace needs names as keys");
    space.attributes.emplace_back(key.as_string(), value);
  }
  return Value::of(&space);
}

Result<Value> raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  ASAP_ASSIGN(const Bound bound,
              Bound::bind("raise_exception", arguments, {"message"}, /*required=*/1));
  ASAP_ASSIGN(const std::string message, interpreter.text_of(bound.at(0)));
  return fail(Code::invalid, "the template refuses: {}", message);
}

Result<Value> strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  ASAP_ASSIGN(const Bound bound,
              Bound::bind("strftime_now", arguments, {"format"}, /*required=*/1));
  ASAP_ASSIGN(const std::string format, bound.text(0, ""));
  // What means the same to Python and to C.
  constexpr std::string_view kDirectives = "aAbBcdHIjmMpSUwWxXyY%eFTDRGVu";
  for (size_t at = format.find('%'); at != format.npos; at = format.find('%', at + 2)) {
    const char directive = at + 1 < format.size() ? format[at + 1] : ' ';
    if (kDirectives.find(directive) == kDirectives.npos) {
      return fail(Code::unsupported, "strftime_now: the directive %{} is not supported", directive);
    }
  }
  const std::time_t now = interpreter.now();
  std::tm fields{};
  localtime_r(&now, &fields);
  std::string out(format.size() * 32 + 64, '\0');
  // The mark tells an empty result from one that did not fit.
  const size_t bytes = std::strftime(out.data(), out.size(), (format + ".").c_str(), &fields);
  if (bytes == 0) return fail(Code::invalid, "strftime_now: the text is too long");
  out.resize(bytes - 1);
  return interpreter.text(std::move(out));
}

using Function = Result<Value> (*)(Interpreter&, const Arguments&);
constexpr std::array<std::pair<std::string_view, Function>, 5> kFunctions = {{
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
}};
constexpr std::array<std::string_view, 4> kUnsupported = {"lipsum", "cycler", "joiner", "self"};

const Function* find(std::string_view name) {
  for (const auto& [known, function] : kFunctions) {
    if (known == name) return &function;
  }
  return nullptr;
}

}  // namespace

Result<Value> global(std::string_view name, const Text& shared_name) {
  if (find(name)) {
    auto callable = std::make_shared<Callable>();
    callable->name = name;
    return Value::of(std::shared_ptr<const Callable>(std::move(callable)));
  }
  if (std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end()) {
    return fail(Code::unsupported, "the global \"{}\" is not supported", name);
  }
  return Value::undefined(shared_name, "");
}

Result<Value> call_function(Interpreter& interpreter, std::string_view name,
                            const Arguments& arguments) {
  return (*find(name))(interpreter, arguments);
}

}  // namespace asap::jinja
