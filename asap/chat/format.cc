#include "asap/chat/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "asap/chat/print.h"
#include "asap/chat/text.h"

namespace asap::jinja {

namespace {

constexpr size_t kMaxWidth = 10'000;
constexpr size_t kMaxPrecision = 100;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// What stands between % or : and the conversion.
struct Spec {
  char fill = ' ';
  char align = 0;  // < > ^ =, or 0: by the value
  char sign = '-';
  bool alternate = false;
  bool comma = false;
  size_t width = 0;
  std::optional<size_t> precision;
  char type = 0;
};

// Digits at `at`, which moves behind them.
Result<size_t> take_number(std::string_view text, size_t& at, size_t limit) {
  size_t number = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    number = number * 10 + static_cast<size_t>(text[at] - '0');
    if (number > limit) {
      return fail(Code::invalid, "a width or precision in a format exceeds {}", limit);
    }
  }
  return number;
}

std::string pad(const std::string& text, const Spec& spec, char align) {
  const size_t have = length(text);
  if (have >= spec.width) return text;
  const size_t missing = spec.width - have;
  const auto fill = [&](size_t n) { return std::string(n, spec.fill); };
  if (align == '<') return text + fill(missing);
  if (align == '^') return fill(missing / 2) + text + fill(missing - missing / 2);
  if (align == '=') {
    const size_t sign = text.starts_with('-') || text.starts_with('+') || text.starts_with(' ');
    return text.substr(0, sign) + fill(missing) + text.substr(sign);
  }
  return fill(missing) + text;
}

std::string with_commas(const std::string& digits) {
  const size_t whole = std::min(digits.find('.'), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string signed_text(bool negative, std::string digits, const Spec& spec) {
  if (spec.comma) digits = with_commas(digits);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return sign + digits;
}

Result<std::string> integer_text(int64_t value, const Spec& spec) {
  const uint64_t size =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits;
  switch (spec.type) {
    case 0:
    case 'd': digits = fmt::format("{}", size); break;
    case 'x': digits = fmt::format("{:x}", size); break;
    case 'X': digits = fmt::format("{:X}", size); break;
    case 'o': digits = fmt::format("{:o}", size); break;
    case 'b': digits = fmt::format("{:b}", size); break;
    default: return fail(Code::unsupported, "the format code '{}' of an int", spec.type);
  }
  if (spec.alternate || (spec.comma && spec.type != 0 && spec.type != 'd')) {
    return fail(Code::unsupported, "the format flags '#' and ',' are not supported here");
  }
  return signed_text(value < 0, std::move(digits), spec);
}

Result<std::string> real_with(double value, const Spec& spec) {
  if (spec.alternate) return fail(Code::unsupported, "the format flag '#' is not supported");
  const double size = std::fabs(value);
  std::string digits;
  if (spec.type == 0) {
    if (spec.precision) {
      return fail(Code::unsupported, "a precision without a format code is not supported");
    }
    digits = real_text(size);
  } else {
    const bool percent = spec.type == '%';
    const char code[] = {'%', '.', '*', percent ? 'f' : spec.type, 0};
    const double shown = percent ? size * 100 : size;
    const int precision = static_cast<int>(spec.precision.value_or(6));
    std::string buffer(512, '\0');
    const int bytes = std::snprintf(buffer.data(), buffer.size(), code, precision, shown);
    digits = buffer.substr(0, static_cast<size_t>(std::clamp(bytes, 0, 511)));
    if (percent) digits += '%';
  }
  return signed_text(std::signbit(value) && !std::isnan(value), std::move(digits), spec);
}

bool is_real_code(char type) {
  return type != 0 && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

// A number or text with its spec; both ways of formatting end here.
Result<std::string> spelled(const Value& value, const Spec& spec, Budget& budget) {
  if (value.is(Kind::real) || (value.is_integral() && is_real_code(spec.type))) {
    if (spec.type != 0 && !is_real_code(spec.type)) {
      return fail(Code::invalid, "the format code '{}' does not fit a float", spec.type);
    }
    ASAP_ASSIGN(const std::string text, real_with(value.as_real(), spec));
    return pad(text, spec, spec.align ? spec.align : '>');
  }
  if (value.is(Kind::integer) || (value.is(Kind::boolean) && spec.type != 0)) {
    if (spec.precision) return fail(Code::invalid, "an int takes no precision in a format");
    ASAP_ASSIGN(const std::string text, integer_text(value.as_integer(), spec));
    return pad(text, spec, spec.align ? spec.align : '>');
  }
  if (spec.type != 0 && spec.type != 's') {
    return fail(Code::invalid, "the format code '{}' does not fit a {}", spec.type,
                value.type_name());
  }
  ASAP_ASSIGN(std::string text, str(value, budget));
  if (spec.precision) text = std::string(substring(text, 0, *spec.precision));
  return pad(text, spec, spec.align ? spec.align : '<');
}

// ---- %

class Percent {
 public:
  Percent(std::string_view text, const Value& values, Budget& budget)
      : text_(text), values_(values), budget_(budget) {}

  Result<std::string> run() {
    std::string out;
    while (at_ < text_.size()) {
      if (text_[at_] != '%') {
        out += text_[at_++];
        continue;
      }
      ++at_;
      ASAP_ASSIGN(const std::string part, conversion());
      ASAP_TRY(budget_.make(part.size() + 1));
      out += part;
    }
    // What Python can look names up in may stay unused.
    const bool mapping = values_.is(Kind::dict) || values_.is_undefined() ||
                         (values_.is(Kind::sequence) && !is_tuple() &&
                          values_.sequence().kind <= SequenceKind::range);
    if (!mapping && used_ < (is_tuple() ? values_.sequence().items.size() : 1)) {
      return fail(Code::invalid, "not all values were used by the % format");
    }
    return out;
  }

 private:
  bool is_tuple() const {
    return values_.is(Kind::sequence) && values_.sequence().kind == SequenceKind::tuple;
  }

  Result<Value> next_value() {
    if (!is_tuple()) {
      if (used_++ > 0) return fail(Code::invalid, "not enough values for the % format");
      return values_;
    }
    if (used_ == values_.sequence().items.size()) {
      return fail(Code::invalid, "not enough values for the % format");
    }
    return values_.sequence().items[used_++];
  }

  Result<Value> named_value() {
    const size_t end = text_.find(')', at_);
    if (end == text_.npos) return fail(Code::invalid, "a name in a % format has no \")\"");
    const std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (!values_.is(Kind::dict)) return fail(Code::invalid, "%({})s needs a dict", name);
    const Value* found = values_.dict().find(name);
    if (!found) return fail(Code::invalid, "the dict for a % format lacks \"{}\"", name);
    return *found;
  }

  Result<std::string> conversion() {
    std::optional<Value> named;
    if (at_ < text_.size() && text_[at_] == '(') {
      ASAP_ASSIGN(named, named_value());
    }
    Spec spec;
    bool zero = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '-') {
        spec.align = '<';
      } else if (c == '0') {
        zero = true;
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    ASAP_ASSIGN(spec.width, take_number(text_, at_, kMaxWidth));
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      ASAP_ASSIGN(spec.precision, take_number(text_, at_, kMaxPrecision));
    }
    if (at_ == text_.size()) return fail(Code::invalid, "a % format is incomplete");
    spec.type = text_[at_++];
    if (spec.type == '%') return std::string("%");
    Value value;
    if (named) {
      value = *named;
    } else {
      ASAP_ASSIGN(value, next_value());
    }
    return converted(value, spec, zero);
  }

  Result<std::string> converted(const Value& value, Spec spec, bool zero) {
    switch (spec.type) {
      case 's':
      case 'r': {
        std::string text;
        ASAP_TRY(spec.type == 's' ? append_str(value, text, budget_)
                                  : append_repr(value, text, budget_));
        spec.type = 's';
        return spelled(Value::text(std::move(text)), right_aligned(spec), budget_);
      }
      case 'i':
      case 'u': spec.type = 'd'; [[fallthrough]];
      case 'd':
      case 'x':
      case 'X':
      case 'o':
        if (value.is(Kind::real) && spec.type == 'd' && std::fabs(value.as_real()) < 9e18) {
          return number(Value::integer(static_cast<int64_t>(value.as_real())), spec, zero);
        }
        if (!value.is_integral()) break;
        return number(value, spec, zero);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) break;
        return number(value, spec, zero);
      default: return fail(Code::unsupported, "the % format code '{}' is not supported", spec.type);
    }
    return fail(Code::invalid, "the % format code '{}' needs a number, not a {}", spec.type,
                value.type_name());
  }

  Result<std::string> number(const Value& value, Spec spec, bool zero) {
    if (spec.precision && !is_real_code(spec.type)) {
      return fail(Code::unsupported, "a precision with the % format code '{}' is not supported",
                  spec.type);
    }
    if (zero && spec.align == 0) {
      spec.fill = '0';
      spec.align = '=';
    }
    return spelled(value, right_aligned(spec), budget_);
  }

  // In a % format everything without a minus stands on the right.
  static Spec right_aligned(Spec spec) {
    if (spec.align == 0) spec.align = '>';
    return spec;
  }

  std::string_view text_;
  const Value& values_;
  Budget& budget_;
  size_t at_ = 0;
  size_t used_ = 0;
};

// ---- {}

Result<Spec> parse_spec(std::string_view text) {
  const std::string_view kAligns = "<>^=";
  Spec spec;
  size_t at = 0;
  if (text.size() > 1 && (text[0] & 0x80) == 0 && kAligns.find(text[1]) != kAligns.npos) {
    spec.fill = text[0];
    spec.align = text[1];
    at = 2;
  } else if (!text.empty() && kAligns.find(text[0]) != kAligns.npos) {
    spec.align = text[0];
    at = 1;
  }
  const auto skip = [&](char c) { return at < text.size() && text[at] == c && ++at > 0; };
  for (const char sign : {'+', '-', ' '}) {
    if (skip(sign)) spec.sign = sign;
  }
  spec.alternate = skip('#');
  if (skip('0') && spec.align == 0) {
    spec.fill = '0';
    spec.align = '=';
  }
  ASAP_ASSIGN(spec.width, take_number(text, at, kMaxWidth));
  spec.comma = skip(',');
  if (skip('.')) {
    ASAP_ASSIGN(spec.precision, take_number(text, at, kMaxPrecision));
  }
  if (at < text.size()) spec.type = text[at++];
  const bool known =
      spec.type == 0 || std::string_view("sdxXobeEfFgG%").find(spec.type) != std::string_view::npos;
  if (at < text.size() || !known) {
    return fail(Code::unsupported, "the format specification \"{}\" is not supported", text);
  }
  return spec;
}

Result<std::string> format_value(const Value& value, std::string_view spec_text, Budget& budget) {
  if (spec_text.empty()) return str(value, budget);
  ASAP_ASSIGN(const Spec spec, parse_spec(spec_text));
  const bool text = value.is_string();
  if (!text && !value.is_number()) {
    return fail(Code::invalid, "a {} takes no format specification (\"{}\")", value.type_name(),
                spec_text);
  }
  if (spec.comma && spec.width != 0 && spec.fill == '0') {
    return fail(Code::unsupported, "the format specification \"{}\" is not supported", spec_text);
  }
  if ((text && (spec.align == '=' || spec.sign != '-' || spec.comma || spec.alternate)) ||
      (value.is(Kind::boolean) && spec.type == 0)) {
    return fail(Code::unsupported, "the format specification \"{}\" of a {} is not supported",
                spec_text, value.type_name());
  }
  if (!text && spec.type == 's') {
    return fail(Code::invalid, "the format code 's' does not fit a {}", value.type_name());
  }
  return spelled(value, spec, budget);
}

class Braces {
 public:
  Braces(std::string_view text, const Arguments& arguments, Budget& budget)
      : text_(text), arguments_(arguments), budget_(budget) {}

  Result<std::string> run() {
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '{' && c != '}') {
        out += c;
      } else if (at_ < text_.size() && text_[at_] == c) {
        out += c;
        ++at_;
      } else if (c == '}') {
        return fail(Code::invalid, "a single \"}}\" in a format");
      } else {
        ASAP_ASSIGN(const std::string part, field());
        ASAP_TRY(budget_.make(part.size() + 1));
        out += part;
      }
    }
    return out;
  }

 private:
  Result<std::string> field() {
    const size_t end = text_.find('}', at_);
    if (end == text_.npos) return fail(Code::invalid, "a \"{{\" in a format is not closed");
    const std::string_view whole = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (whole.find('{') != whole.npos) {
      return fail(Code::unsupported, "fields inside fields of a format are not supported");
    }
    const size_t colon = std::min(whole.find(':'), whole.size());
    std::string_view name = whole.substr(0, colon);
    const std::string_view spec = whole.substr(std::min(colon + 1, whole.size()));
    char conversion = 0;
    if (const size_t mark = name.find('!'); mark != name.npos) {
      if (name.size() != mark + 2) return fail(Code::invalid, "a conversion in a format is wrong");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    ASAP_ASSIGN(const Value value, lookup(name));
    if (conversion == 0) return format_value(value, spec, budget_);
    std::string text;
    if (conversion == 's') {
      ASAP_TRY(append_str(value, text, budget_));
    } else if (conversion == 'r') {
      ASAP_TRY(append_repr(value, text, budget_));
    } else {
      return fail(Code::unsupported, "the conversion !{} in a format is not supported", conversion);
    }
    return format_value(Value::text(std::move(text)), spec, budget_);
  }

  Result<Value> lookup(std::string_view name) {
    if (name.find_first_of(".[") != name.npos) {
      return fail(Code::unsupported, "the format field \"{}\": attributes are not supported", name);
    }
    const bool number = std::all_of(name.begin(), name.end(), is_digit);
    if (!number) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      return fail(Code::invalid, "the format needs a value named \"{}\"", name);
    }
    if (name.empty() ? manual_ : automatic_) {
      return fail(Code::invalid, "a format mixes numbered and unnumbered fields");
    }
    size_t index = next_;
    if (name.empty()) {
      automatic_ = true;
      ++next_;
    } else {
      manual_ = true;
      size_t at = 0;
      ASAP_ASSIGN(index, take_number(name, at, kMaxWidth));
    }
    if (index >= arguments_.positional.size()) {
      return fail(Code::invalid, "the format needs more than the {} values given",
                  arguments_.positional.size());
    }
    return arguments_.positional[index];
  }

  std::string_view text_;
  const Arguments& arguments_;
  Budget& budget_;
  size_t at_ = 0;
  size_t next_ = 0;
  bool automatic_ = false, manual_ = false;
};

}  // namespace

Result<Value> percent_format(const Value& text, const Value& values, Budget& budget) {
  if (text.is_safe()) {
    return fail(Code::unsupported, "%% with a text marked safe is not supported");
  }
  ASAP_ASSIGN(std::string out, Percent(text.as_string(), values, budget).run());
  return Value::text(std::move(out));
}

Result<Value> brace_format(const Value& text, const Arguments& arguments, Budget& budget) {
  if (text.is_safe()) {
    return fail(Code::unsupported, "format() of a text marked safe is not supported");
  }
  ASAP_ASSIGN(std::string out, Braces(text.as_string(), arguments, budget).run());
  return Value::text(std::move(out));
}

}  // namespace asap::jinja
