// Methods of str.
#include <algorithm>

#include "asap/chat/format.h"
#include "asap/chat/interpreter.h"
#include "asap/chat/methods.h"
#include "asap/chat/text.h"
#include "asap/chat/text_case.h"

namespace asap::jinja {

namespace {

struct Call {
  Interpreter& interpreter;
  std::string_view text;
  const std::string& name;
  const Arguments& arguments;
};

Result<Value> list_of_texts(Call& call, const std::vector<std::string_view>& parts,
                            SequenceKind kind) {
  ASAP_TRY(call.interpreter.budget().make(call.text.size() + parts.size() * 2 * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::text(std::string(part)));
  return make_sequence(kind, std::move(items));
}

Result<Value> call_strip(Call& call) {
  ASAP_ASSIGN(const Bound bound, Bound::bind(call.name, call.arguments, {"chars"}, 0));
  std::string given;
  std::optional<std::string_view> chars;
  if (bound.given(0)) {
    ASAP_ASSIGN(given, bound.text(0, ""));
    chars = given;
  }
  return call.interpreter.text(
      std::string(strip(call.text, chars, call.name != "rstrip", call.name != "lstrip")));
}

Result<Value> call_split(Call& call) {
  ASAP_ASSIGN(const Bound bound, Bound::bind(call.name, call.arguments, {"sep", "maxsplit"}, 0));
  std::string separator;
  if (bound.given(0)) {
    ASAP_ASSIGN(separator, bound.text(0, ""));
  }
  if (bound.given(0) && separator.empty()) return fail(Code::invalid, "the separator is empty");
  ASAP_ASSIGN(const int64_t limit, bound.integer(1, -1));
  const size_t cuts = limit < 0 ? kAll : static_cast<size_t>(limit);
  return list_of_texts(call,
                       call.name == "split" ? split(call.text, separator, cuts)
                                            : split_right(call.text, separator, cuts),
                       SequenceKind::list);
}

Result<Value> call_split_lines(Call& call) {
  ASAP_ASSIGN(const Bound bound, Bound::bind(call.name, call.arguments, {"keepends"}, 0));
  return list_of_texts(call, split_lines(call.text, bound.truth(0, false)), SequenceKind::list);
}

Result<Value> call_partition(Call& call) {
  ASAP_ASSIGN(const Bound bound, Bound::bind(call.name, call.arguments, {"sep"}, 1));
  ASAP_ASSIGN(const std::string separator, bound.text(0, ""));
  if (separator.empty()) return fail(Code::invalid, "the separator is empty");
  const bool right = call.name == "rpartition";
  const size_t at = right ? call.text.rfind(separator) : call.text.find(separator);
  std::vector<std::string_view> parts = {call.text, "", ""};
  if (at != call.text.npos) {
    parts = {call.text.substr(0, at), separator, call.text.substr(at + separator.size())};
  } else if (right) {
    std::swap(parts[0], parts[2]);
  }
  return list_of_texts(call, parts, SequenceKind::tuple);
}

// The part [start:end) of the text that find, count and startswith look at. Nothing if start lies
// behind the end of the text.
Result<std::optional<std::string_view>> part_of(Call& call, const Bound& bound, size_t& start) {
  const auto size = static_cast<int64_t>(length(call.text));
  const auto place = [&](int64_t at) { return at < 0 ? std::max<int64_t>(at + size, 0) : at; };
  int64_t from = 0, to = size;
  if (bound.given(1)) {
    ASAP_ASSIGN(from, bound.integer(1, 0));
  }
  if (bound.given(2)) {
    ASAP_ASSIGN(to, bound.integer(2, size));
  }
  from = place(from);
  to = std::min(place(to), size);
  if (from > size || from > to) return std::optional<std::string_view>();
  start = static_cast<size_t>(from);
  return std::optional(substring(call.text, start, static_cast<size_t>(to)));
}

Result<Value> call_find(Call& call) {
  ASAP_ASSIGN(const Bound bound,
              Bound::bind(call.name, call.arguments, {"sub", "start", "end"}, 1));
  if (!bound.at(0).is_string()) {
    return fail(Code::invalid, "{} needs a string, not a {}", call.name, bound.at(0).type_name());
  }
  const std::string& wanted = bound.at(0).as_string();
  size_t start = 0;
  ASAP_ASSIGN(const auto part, part_of(call, bound, start));
  if (call.name == "count") {
    return Value::integer(part ? static_cast<int64_t>(count(*part, wanted)) : 0);
  }
  const bool right = call.name[0] == 'r';
  const size_t at = !part   ? std::string_view::npos
                    : right ? part->rfind(wanted)
                            : part->find(wanted);
  if (at != std::string_view::npos) {
    return Value::integer(static_cast<int64_t>(start + length(part->substr(0, at))));
  }
  if (call.name.ends_with("index")) {
    return fail(Code::invalid, "{}: the text has no such part", call.name);
  }
  return Value::integer(-1);
}

Result<Value> call_starts_or_ends(Call& call) {
  ASAP_ASSIGN(const Bound bound,
              Bound::bind(call.name, call.arguments, {"prefix", "start", "end"}, 1));
  size_t start = 0;
  ASAP_ASSIGN(const auto part, part_of(call, bound, start));
  std::vector<Value> candidates = {bound.at(0)};
  if (bound.at(0).is(Kind::sequence) && bound.at(0).sequence().kind == SequenceKind::tuple) {
    candidates = bound.at(0).sequence().items;
  }
  bool found = false;
  for (const Value& candidate : candidates) {
    if (!candidate.is_string()) {
      return fail(Code::invalid, "{} needs a string or a tuple of them, not a {}", call.name,
                  candidate.type_name());
    }
    const std::string& wanted = candidate.as_string();
    found =
        found ||
        (part && (call.name == "startswith" ? part->starts_with(wanted) : part->ends_with(wanted)));
  }
  return Value::boolean(found);
}

Result<Value> call_replace(Call& call) {
  ASAP_ASSIGN(const Bound bound,
              Bound::bind(call.name, call.arguments, {"old", "new", "count"}, 2));
  ASAP_ASSIGN(const std::string old, bound.text(0, ""));
  ASAP_ASSIGN(const std::string by, bound.text(1, ""));
  ASAP_ASSIGN(const int64_t limit, bound.integer(2, -1));
  const size_t times = limit < 0 ? kAll : static_cast<size_t>(limit);
  ASAP_TRY(call.interpreter.budget().make(call.text.size() +
                                          by.size() * std::min(times, count(call.text, old))));
  return call.interpreter.text(replace(call.text, old, by, times));
}

Result<Value> call_join(Call& call) {
  ASAP_ASSIGN(const Bound bound, Bound::bind(call.name, call.arguments, {"iterable"}, 1));
  ASAP_ASSIGN(const auto items, call.interpreter.items_of(bound.at(0)));
  std::string out;
  for (size_t i = 0; i < items->size(); ++i) {
    const Value& item = (*items)[i];
    if (!item.is_string()) {
      return fail(Code::invalid, "join needs strings; item {} is a {}", i, item.type_name());
    }
    if (i > 0) out += call.text;
    out += item.as_string();
    ASAP_TRY(call.interpreter.budget().make(call.text.size() + item.as_string().size()));
  }
  return call.interpreter.text(std::move(out));
}

// center, ljust, rjust, zfill.
Result<Value> call_justify(Call& call) {
  const bool zeros = call.name == "zfill";
  ASAP_ASSIGN(const Bound bound,
              zeros ? Bound::bind(call.name, call.arguments, {"width"}, 1)
                    : Bound::bind(call.name, call.arguments, {"width", "fillchar"}, 1));
  ASAP_ASSIGN(const int64_t width, bound.integer(0, 0));
  std::string fill = zeros ? "0" : " ";
  if (!zeros) {
    ASAP_ASSIGN(fill, bound.text(1, " "));
  }
  if (length(fill) != 1) return fail(Code::invalid, "{} fills with one character", call.name);
  const auto have = static_cast<int64_t>(length(call.text));
  if (width <= have) return call.interpreter.text(std::string(call.text));
  const auto missing = static_cast<size_t>(width - have);
  ASAP_TRY(call.interpreter.budget().make(missing));
  ASAP_TRY(call.interpreter.budget().make(missing * fill.size()));
  const auto filling = [&](size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += fill;
    return out;
  };
  const std::string text(call.text);
  if (call.name == "ljust") return call.interpreter.text(text + filling(missing));
  if (call.name == "rjust") return call.interpreter.text(filling(missing) + text);
  if (zeros) {
    const size_t sign = text.starts_with('-') || text.starts_with('+');
    return call.interpreter.text(text.substr(0, sign) + filling(missing) + text.substr(sign));
  }
  // Python puts the odd one to the left if the width is odd.
  const size_t left = missing / 2 + (missing & static_cast<size_t>(width) & 1);
  return call.interpreter.text(filling(left) + text + filling(missing - left));
}

Result<Value> call_remove(Call& call) {
  ASAP_ASSIGN(const Bound bound, Bound::bind(call.name, call.arguments, {"part"}, 1));
  if (!bound.at(0).is_string()) return fail(Code::invalid, "{} needs a string", call.name);
  const std::string& part = bound.at(0).as_string();
  std::string_view text = call.text;
  if (call.name == "removeprefix" && text.starts_with(part)) text.remove_prefix(part.size());
  if (call.name == "removesuffix" && text.ends_with(part)) text.remove_suffix(part.size());
  return call.interpreter.text(std::string(text));
}

Result<Value> call_case(Call& call) {
  ASAP_TRY(Bound::bind(call.name, call.arguments, {}, 0));
  ASAP_ASSIGN(std::string out, call.name == "upper"        ? upper(call.text)
                               : call.name == "lower"      ? lower(call.text)
                               : call.name == "title"      ? title_words(call.text)
                               : call.name == "capitalize" ? capitalize(call.text)
                                                           : swapcase(call.text));
  return call.interpreter.text(std::move(out));
}

Result<Value> call_class(Call& call) {
  ASAP_TRY(Bound::bind(call.name, call.arguments, {}, 0));
  ASAP_ASSIGN(const bool holds, has_class(call.text, call.name));
  return Value::boolean(holds);
}

using Method = Result<Value> (*)(Call&);
constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"strip", call_strip},
    {"lstrip", call_strip},
    {"rstrip", call_strip},
    {"split", call_split},
    {"rsplit", call_split},
    {"splitlines", call_split_lines},
    {"partition", call_partition},
    {"rpartition", call_partition},
    {"find", call_find},
    {"rfind", call_find},
    {"index", call_find},
    {"rindex", call_find},
    {"count", call_find},
    {"startswith", call_starts_or_ends},
    {"endswith", call_starts_or_ends},
    {"replace", call_replace},
    {"join", call_join},
    {"center", call_justify},
    {"ljust", call_justify},
    {"rjust", call_justify},
    {"zfill", call_justify},
    {"removeprefix", call_remove},
    {"removesuffix", call_remove},
    {"upper", call_case},
    {"lower", call_case},
    {"title", call_case},
    {"capitalize", call_case},
    {"swapcase", call_case},
};

}  // namespace

Result<Value> call_string_method(Interpreter& interpreter, const Value& self,
                                 const std::string& name, const Arguments& arguments) {
  ASAP_TRY(interpreter.budget().spend(self.as_string().size() / 16 + 1));
  if (self.is_safe()) {
    return fail(Code::unsupported, "{}() of a text marked safe is not supported", name);
  }
  if (name == "format") return brace_format(self, arguments, interpreter.budget());
  Call call{interpreter, self.as_string(), name, arguments};
  for (const auto& [known, method] : kMethods) {
    if (known == name) return method(call);
  }
  return call_class(call);
}

}  // namespace asap::jinja
