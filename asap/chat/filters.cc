#include "asap/chat/filters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "asap/chat/format.h"
#include "asap/chat/interpreter.h"
#include "asap/chat/json.h"
#include "asap/chat/operators.h"
#include "asap/chat/print.h"
#include "asap/chat/text.h"
#include "asap/chat/text_case.h"

namespace asap::jinja {

namespace {

// ---- text

Result<std::string> operand_text(const FilterCall& call) {
  if (call.operand.is_safe()) {
    return fail(Code::unsupported, "the filter {} of a text marked safe is not supported",
                call.name);
  }
  return call.interpreter.text_of(call.operand);
}

Result<Value> filter_case(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  ASAP_ASSIGN(const std::string text, operand_text(call));
  ASAP_ASSIGN(std::string out, call.name == "upper"        ? upper(text)
                               : call.name == "lower"      ? lower(text)
                               : call.name == "capitalize" ? capitalize(text)
                                                           : title_filter(text));
  return call.interpreter.text(std::move(out));
}

Result<Value> filter_trim(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"chars"}));
  ASAP_ASSIGN(const std::string text, operand_text(call));
  std::string given;
  std::optional<std::string_view> chars;
  if (bound.given(0)) {
    ASAP_ASSIGN(given, bound.text(0, ""));
    chars = given;
  }
  return call.interpreter.text(std::string(strip(text, chars, true, true)));
}

Result<Value> filter_replace(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"old", "new", "count"}, 2));
  ASAP_ASSIGN(const std::string text, call.interpreter.text_of(call.operand));
  ASAP_ASSIGN(const std::string old, call.interpreter.text_of(bound.at(0)));
  ASAP_ASSIGN(const std::string by, call.interpreter.text_of(bound.at(1)));
  int64_t limit = -1;
  if (bound.given(2)) {
    ASAP_ASSIGN(limit, bound.integer(2, -1));
  }
  const size_t times = limit < 0 ? kAll : static_cast<size_t>(limit);
  ASAP_TRY(
      call.interpreter.budget().make(text.size() + by.size() * std::min(times, count(text, old))));
  return call.interpreter.text(replace(text, old, by, times));
}

Result<Value> filter_indent(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"width", "first", "blank"}));
  if (!call.operand.is_string() || call.operand.is_safe()) {
    return fail(Code::invalid, "indent needs a string, not a {}", call.operand.type_name());
  }
  std::string indent;
  if (bound.has(0) && bound.at(0).is_string()) {
    indent = bound.at(0).as_string();
  } else {
    ASAP_ASSIGN(const int64_t width, bound.integer(0, 4));
    ASAP_TRY(call.interpreter.budget().make(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const std::string text = call.operand.as_string() + "\n";
  const std::vector<std::string_view> lines = split_lines(text, false);
  ASAP_TRY(call.interpreter.budget().make(text.size() + lines.size() * indent.size()));
  std::string out = bound.truth(1, false) ? indent : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (!lines[i].empty() || bound.truth(2, false))) out += indent;
    out += lines[i];
  }
  return call.interpreter.text(std::move(out));
}

Result<Value> filter_center(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"width"}));
  ASAP_ASSIGN(const std::string text, operand_text(call));
  ASAP_ASSIGN(const int64_t width, bound.integer(0, 80));
  static const Text kCenter = std::make_shared<const std::string>("center");
  Value self = Value::text(text);
  ASAP_ASSIGN(const Value method, call.interpreter.attribute(self, kCenter));
  return call.interpreter.call(method, Arguments{{Value::integer(width)}, {}});
}

Result<Value> filter_truncate(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"length", "killwords", "end", "leeway"}));
  if (call.operand.is_undefined()) return call.operand;
  if (!call.operand.is_string() || call.operand.is_safe()) {
    return fail(Code::invalid, "truncate needs a string, not a {}", call.operand.type_name());
  }
  ASAP_ASSIGN(const int64_t limit, bound.integer(0, 255));
  ASAP_ASSIGN(const std::string end, bound.text(2, "..."));
  int64_t leeway = 5;
  if (bound.given(3)) {
    ASAP_ASSIGN(leeway, bound.integer(3, 5));
  }
  const auto end_length = static_cast<int64_t>(length(end));
  if (limit < end_length || leeway < 0) return fail(Code::invalid, "truncate: length is too small");
  const std::string& text = call.operand.as_string();
  if (static_cast<int64_t>(length(text)) <= limit + leeway) return call.operand;
  std::string_view kept = substring(text, 0, static_cast<size_t>(limit - end_length));
  if (!bound.truth(1, false)) kept = split_right(kept, " ", 1).front();
  return call.interpreter.text(std::string(kept) + end);
}

Result<Value> filter_string(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  if (call.operand.is_string()) return call.operand;
  ASAP_ASSIGN(std::string text, call.interpreter.text_of(call.operand));
  return Value::text(std::move(text));
}

Result<Value> filter_safe(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  ASAP_ASSIGN(std::string text, call.interpreter.text_of(call.operand));
  return Value::safe_text(std::move(text));
}

Result<Value> filter_escape(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  if (call.operand.is_safe() && call.name != "forceescape") return call.operand;
  ASAP_ASSIGN(const std::string text, call.interpreter.text_of(call.operand));
  ASAP_TRY(call.interpreter.budget().make(text.size() * 5));
  return Value::safe_text(escape_html(text));
}

Result<Value> filter_format(const FilterCall& call) {
  ASAP_ASSIGN(const std::string text, operand_text(call));
  const Value pattern = Value::text(text);
  if (!call.arguments.positional.empty() && !call.arguments.named.empty()) {
    return fail(Code::invalid, "format takes either values or values with names");
  }
  if (call.arguments.named.empty()) {
    return percent_format(pattern, make_sequence(SequenceKind::tuple, call.arguments.positional),
                          call.interpreter.budget());
  }
  DictBuilder values;
  for (const auto& [name, value] : call.arguments.named) values.set(name, value);
  return percent_format(pattern, values.finish(), call.interpreter.budget());
}

Result<Value> filter_tojson(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  if (bound.given(1)) {
    style.item_separator = ",";
    if (bound.at(1).is_string()) {
      style.indent = bound.at(1).as_string();
    } else {
      ASAP_ASSIGN(const int64_t width, bound.integer(1, 0));
      style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 100)), ' ');
      if (width > 100) return fail(Code::unsupported, "tojson: an indent of {}", width);
    }
  }
  if (bound.given(2)) {
    ASAP_ASSIGN(const auto parts, call.interpreter.items_of(bound.at(2)));
    if (parts->size() != 2 || !(*parts)[0].is_string() || !(*parts)[1].is_string()) {
      return fail(Code::invalid, "tojson: separators are two strings");
    }
    style.item_separator = (*parts)[0].as_string();
    style.key_separator = (*parts)[1].as_string();
  }
  std::string out;
  ASAP_TRY(append_json(call.operand, style, out, call.interpreter.budget()));
  return call.interpreter.text(std::move(out));
}

// ---- numbers

// The number that Python's int() and float() would read, without the spaces around it and without
// a plus. Unsupported: digits beyond ASCII and underscores between digits, which Python knows too.
Result<std::string> numeral(const FilterCall& call) {
  std::string_view body = strip(call.operand.as_string(), std::nullopt, true, true);
  if (!is_ascii(body) || body.find('_') != body.npos) {
    return fail(Code::unsupported, "{} of the text \"{}\" is not supported", call.name,
                substring(body, 0, 40));
  }
  if (body.size() > 1 && body[0] == '+' && body[1] != '-') body.remove_prefix(1);
  return std::string(body);
}

std::optional<double> parse_real(const std::string& text) {
  const char* const end = text.data() + text.size();
  double value = 0;
  const auto read = std::from_chars(text.data(), end, value);
  if (text.empty() || read.ptr != end || text.find('(') != text.npos) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) return std::strtod(text.c_str(), nullptr);
  if (read.ec != std::errc()) return std::nullopt;
  return value;
}

// An integer of that base, with the base's prefix or without. Unsupported: beyond 64 bits.
Result<std::optional<int64_t>> parse_integer(std::string digits, int64_t base) {
  const size_t sign = digits.starts_with('-');
  const std::string_view prefix = base == 16 ? "xX" : base == 8 ? "oO" : base == 2 ? "bB" : "";
  if (digits.size() > sign + 2 && digits[sign] == '0' &&
      prefix.find(digits[sign + 1]) != prefix.npos) {
    digits.erase(sign, 2);
  }
  const char* const end = digits.data() + digits.size();
  int64_t value = 0;
  const auto read = std::from_chars(digits.data(), end, value, static_cast<int>(base));
  if (digits.empty() || read.ptr != end) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) {
    return fail(Code::unsupported, "int of a number beyond 64 bits is not supported");
  }
  if (read.ec != std::errc()) return std::nullopt;
  return value;
}

Result<Value> truncated(double value) {
  if (std::fabs(value) >= 0x1p63) {
    return fail(Code::unsupported, "int of a number beyond 64 bits is not supported");
  }
  return Value::integer(static_cast<int64_t>(value));
}

Result<Value> filter_int(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"default", "base"}));
  ASAP_ASSIGN(int64_t base, bound.integer(1, 10));
  const Value fallback = bound.has(0) ? bound.at(0) : Value::integer(0);
  const Value& operand = call.operand;
  if (operand.is_undefined()) return fail(Code::invalid, "{}", operand.undefined_message());
  if (operand.is_integral()) return Value::integer(operand.as_integer());
  if (operand.is(Kind::big_integer)) return operand;
  if (operand.is(Kind::real)) {
    if (std::isnan(operand.as_real())) return fallback;
    return truncated(operand.as_real());
  }
  if (!operand.is_string()) return fallback;
  if (base != 10 && base != 16 && base != 8 && base != 2) {
    return fail(Code::unsupported, "int with the base {} is not supported", base);
  }
  ASAP_ASSIGN(const std::string text, numeral(call));
  ASAP_ASSIGN(const std::optional<int64_t> integer, parse_integer(text, base));
  if (integer) return Value::integer(*integer);
  const auto real = parse_real(text);
  if (!real || !std::isfinite(*real)) return fallback;
  return truncated(*real);
}

Result<Value> filter_float(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"default"}));
  const Value fallback = bound.has(0) ? bound.at(0) : Value::real(0);
  const Value& operand = call.operand;
  if (operand.is_undefined()) return fail(Code::invalid, "{}", operand.undefined_message());
  if (operand.is_number()) return Value::real(operand.as_real());
  if (operand.is(Kind::big_integer)) {
    return Value::real(std::strtod(operand.digits().c_str(), nullptr));
  }
  if (!operand.is_string()) return fallback;
  ASAP_ASSIGN(const std::string text, numeral(call));
  const auto real = parse_real(text);
  return real ? Value::real(*real) : fallback;
}

// Python's round(): to the nearest, ties to even, of the exact binary value.
Result<Value> rounded(const Value& value, int64_t precision) {
  if (value.is_integral()) {
    if (precision >= 0) return Value::integer(value.as_integer());
    return fail(Code::unsupported, "round of an int to {} places is not supported", precision);
  }
  const double number = value.as_real();
  if (!std::isfinite(number) || precision > 300) return value;
  if (precision < 0) {
    return fail(Code::unsupported, "round to {} places is not supported", precision);
  }
  return Value::real(
      std::strtod(fmt::format("{:.{}f}", number, static_cast<int>(precision)).c_str(), nullptr));
}

Result<Value> filter_round(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"precision", "method"}));
  ASAP_ASSIGN(const int64_t precision, bound.integer(0, 0));
  ASAP_ASSIGN(const std::string method, bound.text(1, "common"));
  if (!call.operand.is_number()) {
    return fail(Code::invalid, "round needs a number, not a {}", call.operand.type_name());
  }
  if (method == "common") return rounded(call.operand, precision);
  if (method != "ceil" && method != "floor") {
    return fail(Code::invalid, "round: the method is common, ceil or floor");
  }
  if (precision < 0 || precision > 15) {
    return fail(Code::unsupported, "round to {} places is not supported", precision);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.operand.as_real() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> filter_abs(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  if (call.operand.is(Kind::real)) return Value::real(std::fabs(call.operand.as_real()));
  if (!call.operand.is_integral()) {
    return fail(Code::invalid, "abs needs a number, not a {}", call.operand.type_name());
  }
  if (call.operand.as_integer() >= 0) return Value::integer(call.operand.as_integer());
  return negate(call.operand);
}

// ---- anything

Result<Value> filter_default(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"default_value", "boolean"}));
  const bool replaced =
      call.operand.is_undefined() || (bound.truth(1, false) && !call.operand.truth());
  if (!replaced) return call.operand;
  return bound.has(0) ? bound.at(0) : Value::text(std::string());
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"upper", filter_case},        {"lower", filter_case},
    {"capitalize", filter_case},   {"title", filter_case},
    {"trim", filter_trim},         {"replace", filter_replace},
    {"indent", filter_indent},     {"center", filter_center},
    {"truncate", filter_truncate}, {"string", filter_string},
    {"safe", filter_safe},         {"escape", filter_escape},
    {"e", filter_escape},          {"forceescape", filter_escape},
    {"format", filter_format},     {"tojson", filter_tojson},
    {"int", filter_int},           {"float", filter_float},
    {"round", filter_round},       {"abs", filter_abs},
    {"default", filter_default},   {"d", filter_default},
};

// Filters of Jinja that are not implemented.
constexpr std::array<std::string_view, 12> kUnsupported = {
    "attr",      "filesizeformat", "groupby",   "pprint", "random",   "slice",
    "striptags", "urlencode",      "wordcount", "urlize", "wordwrap", "xmlattr"};

}  // namespace

Result<Bound> FilterCall::bind(std::initializer_list<std::string_view> names,
                               size_t required) const {
  return Bound::bind("filter " + name, arguments, names, required);
}

Result<Value> apply_filter(Interpreter& interpreter, const std::string& name, const Value& operand,
                           const Arguments& arguments) {
  const FilterCall call{interpreter, name, operand, arguments};
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter(call);
  }
  if (const Filter filter = find_sequence_filter(name)) return filter(call);
  if (std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end()) {
    return fail(Code::unsupported, "the filter \"{}\" is not supported", name);
  }
  return fail(Code::invalid, "there is no filter named \"{}\"", name);
}

}  // namespace asap::jinja
