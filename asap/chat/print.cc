#include "asap/chat/print.h"

#include <array>
#include <charconv>
#include <cmath>

#include "asap/chat/text_case.h"
#include "asap/model/utf8.h"

namespace asap::jinja {

namespace {

void append_escaped(char32_t code, std::string& out) {
  const auto number = static_cast<uint32_t>(code);
  if (code < 0x100) {
    out += fmt::format("\\x{:02x}", number);
  } else if (code < 0x10000) {
    out += fmt::format("\\u{:04x}", number);
  } else {
    out += fmt::format("\\U{:08x}", number);
  }
}

Status append_items(const Sequence& sequence, std::string& out, Budget& budget) {
  const bool tuple = sequence.kind == SequenceKind::tuple;
  if (!tuple && sequence.kind != SequenceKind::list) {
    return fail(Code::unsupported, "printing a {} is not supported",
                sequence.kind == SequenceKind::range ? "range" : "view of a dict");
  }
  out += tuple ? '(' : '[';
  bool first = true;
  for (const Value& item : sequence.items) {
    if (!std::exchange(first, false)) out += ", ";
    ASAP_TRY(append_repr(item, out, budget));
  }
  if (tuple && sequence.items.size() == 1) out += ',';
  out += tuple ? ')' : ']';
  return {};
}

Status append_entries(const Dict& dict, std::string& out, Budget& budget) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!std::exchange(first, false)) out += ", ";
    ASAP_TRY(append_repr(key, out, budget));
    out += ": ";
    ASAP_TRY(append_repr(value, out, budget));
  }
  out += '}';
  return {};
}

Status check_size(const std::string& out, Budget& budget) {
  ASAP_TRY(budget.spend(1));
  if (out.size() <= budget.limits().output_bytes) return {};
  return fail(Code::invalid, "the text exceeds {} bytes", budget.limits().output_bytes);
}

}  // namespace

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer;
  // d.ddde[+-]xx with the fewest digits that read back.
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view made(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = made.find('e');
  int exponent = 0;
  const size_t digits_at = e + (made[e + 1] == '+' ? 2 : 1);
  std::from_chars(made.data() + digits_at, made.data() + made.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(made);
  std::string sign, digits;
  for (const char c : made.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) {
    return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  }
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string repr_text(std::string_view text) {
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    if (c.code == static_cast<char32_t>(quote) || c.code == '\\') {
      out += '\\';
      out += text[at];
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (!is_printable(c.code)) {
      append_escaped(c.code, out);
    } else {
      out += text.substr(at, c.length);
    }
    at += c.length;
  }
  return out += quote;
}

Status append_repr(const Value& value, std::string& out, Budget& budget) {
  ASAP_TRY(check_size(out, budget));
  switch (value.kind()) {
    case Kind::undefined: out += "Undefined"; return {};
    case Kind::none: out += "None"; return {};
    case Kind::boolean: out += value.as_bool() ? "True" : "False"; return {};
    case Kind::integer: out += fmt::format("{}", value.as_integer()); return {};
    case Kind::big_integer: out += value.digits(); return {};
    case Kind::real: out += real_text(value.as_real()); return {};
    case Kind::string:
      if (value.is_safe()) {
        out += "Markup(" + repr_text(value.as_string()) + ")";
      } else {
        out += repr_text(value.as_string());
      }
      return budget.spend(value.as_string().size() / 16);
    case Kind::sequence: return append_items(value.sequence(), out, budget);
    case Kind::dict: return append_entries(value.dict(), out, budget);
    default: break;
  }
  return fail(Code::unsupported, "printing a {} is not supported", value.type_name());
}

Status append_str(const Value& value, std::string& out, Budget& budget) {
  if (!value.is_string() && !value.is_undefined()) return append_repr(value, out, budget);
  if (value.is_string()) out += value.as_string();
  return check_size(out, budget);
}

Result<std::string> str(const Value& value, Budget& budget) {
  std::string out;
  ASAP_TRY(append_str(value, out, budget));
  ASAP_TRY(budget.make(out.size()));
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace asap::jinja
