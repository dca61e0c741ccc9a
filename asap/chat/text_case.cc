#include "asap/chat/text_case.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "asap/chat/text.h"
#include "asap/model/utf8.h"

namespace asap::jinja {

namespace {

struct Range {
  char32_t first, last;
};

// Characters whose upper or title case is several characters, without the sharp s.
constexpr std::array kSeveral = {
    Range{0x149, 0x149},   Range{0x1F0, 0x1F0},   Range{0x390, 0x390},   Range{0x3B0, 0x3B0},
    Range{0x587, 0x587},   Range{0x1E96, 0x1E9A}, Range{0x1F50, 0x1F50}, Range{0x1F52, 0x1F52},
    Range{0x1F54, 0x1F54}, Range{0x1F56, 0x1F56}, Range{0x1F80, 0x1FAF}, Range{0x1FB2, 0x1FB4},
    Range{0x1FB6, 0x1FB7}, Range{0x1FBC, 0x1FBC}, Range{0x1FC2, 0x1FC4}, Range{0x1FC6, 0x1FC7},
    Range{0x1FCC, 0x1FCC}, Range{0x1FD2, 0x1FD3}, Range{0x1FD6, 0x1FD7}, Range{0x1FE2, 0x1FE4},
    Range{0x1FE6, 0x1FE7}, Range{0x1FF2, 0x1FF4}, Range{0x1FF6, 0x1FF7}, Range{0x1FFC, 0x1FFC},
    Range{0xFB00, 0xFB06}, Range{0xFB13, 0xFB17},
};
constexpr char32_t kSharpS = 0xDF;
constexpr char32_t kDottedI = 0x130;       // lower case: two characters
constexpr char32_t kCapitalSigma = 0x3A3;  // lower case: by its place in the word

enum class To { upper, lower, title };

Status append(char32_t code, To to, std::string& out) {
  if (code == kSharpS && to != To::lower) {
    out += to == To::upper ? "SS" : "Ss";
    return {};
  }
  const bool several = std::any_of(kSeveral.begin(), kSeveral.end(), [&](const Range& range) {
    return code >= range.first && code <= range.last;
  });
  if (to == To::lower ? code == kDottedI || code == kCapitalSigma : several) {
    return fail(Code::unsupported, "the case of the character U+{:04X} is not supported",
                static_cast<uint32_t>(code));
  }
  const auto old = static_cast<utf8proc_int32_t>(code);
  const utf8proc_int32_t made = to == To::upper   ? utf8proc_toupper(old)
                                : to == To::lower ? utf8proc_tolower(old)
                                                  : utf8proc_totitle(old);
  append_utf8(static_cast<char32_t>(made), &out);
  return {};
}

// Calls `choose(code)` for every character in turn and maps it to that case.
template <typename Choose>
Result<std::string> map_case(std::string_view text, Choose choose) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    ASAP_TRY(append(c.code, choose(c.code), out));
    at += c.length;
  }
  return out;
}

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_upper_letter(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LU;
}
bool is_lower_letter(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL;
}
bool is_cased(char32_t code) {
  const auto found = category(code);
  return found == UTF8PROC_CATEGORY_LU || found == UTF8PROC_CATEGORY_LL ||
         found == UTF8PROC_CATEGORY_LT;
}
bool is_alpha(char32_t code) {
  const auto found = category(code);
  return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_ND;
}

// Characters outside the letters that Python calls upper or lower case (circled letters, Roman
// numerals, modifiers).
bool has_doubtful_case(char32_t code) {
  if (code < 0x80) return false;
  const auto found = category(code);
  return found == UTF8PROC_CATEGORY_LM || found == UTF8PROC_CATEGORY_NL ||
         found == UTF8PROC_CATEGORY_SO || code == 0xAA || code == 0xBA || code == 0x345;
}

// Characters outside the decimal digits that Python may call digits or numbers.
bool is_doubtful_number(char32_t code) {
  return code >= 0x80 && category(code) != UTF8PROC_CATEGORY_ND;
}

bool each(std::string_view text, bool (*test)(char32_t)) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    if (!test(c.code)) return false;
    at += c.length;
  }
  return !text.empty();
}

bool any(std::string_view text, bool (*test)(char32_t)) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    if (test(c.code)) return true;
    at += c.length;
  }
  return false;
}

}  // namespace

Result<std::string> upper(std::string_view text) {
  return map_case(text, [](char32_t) { return To::upper; });
}

Result<std::string> lower(std::string_view text) {
  return map_case(text, [](char32_t) { return To::lower; });
}

Result<std::string> capitalize(std::string_view text) {
  return map_case(text, [first = true](char32_t) mutable {
    return std::exchange(first, false) ? To::title : To::lower;
  });
}

Result<std::string> swapcase(std::string_view text) {
  return map_case(text,
                  [](char32_t code) { return is_upper_letter(code) ? To::lower : To::upper; });
}

Result<std::string> title_words(std::string_view text) {
  return map_case(text, [inside = false](char32_t code) mutable {
    return std::exchange(inside, is_cased(code)) ? To::lower : To::title;
  });
}

Result<std::string> title_filter(std::string_view text) {
  const auto begins_word = [](char32_t code) {
    return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' ||
           code == '<';
  };
  // The filter's own rule maps the first character with upper(), not with title case.
  return map_case(text, [begins_word, first = true](char32_t code) mutable {
    return std::exchange(first, begins_word(code)) ? To::upper : To::lower;
  });
}

Result<bool> has_class(std::string_view text, std::string_view name) {
  const auto unsure = [&] {
    return fail(Code::unsupported, "{}() of \"{}\" is not supported", name, text.substr(0, 40));
  };
  if (name == "isspace") return each(text, is_space);
  if (name == "isascii") return is_ascii(text);
  if (name == "isprintable") return text.empty() || each(text, is_printable);
  if (name == "isalpha") return each(text, is_alpha);
  if (name == "isdecimal") return each(text, is_decimal);
  if (name == "isdigit" || name == "isnumeric") {
    if (any(text, is_doubtful_number)) return unsure();
    return each(text, is_decimal);
  }
  if (name == "isalnum") {
    const auto letter_or_digit = [](char32_t code) { return is_alpha(code) || is_decimal(code); };
    if (each(text, letter_or_digit)) return true;
    if (any(text, [](char32_t code) { return is_doubtful_number(code) && !is_alpha(code); })) {
      return unsure();
    }
    return false;
  }
  if (name == "islower" || name == "isupper") {
    if (any(text, has_doubtful_case)) return unsure();
    const bool want_lower = name == "islower";
    return any(text, want_lower ? is_lower_letter : is_upper_letter) &&
           !any(
               text, want_lower
                         ? [](char32_t code) { return is_cased(code) && !is_lower_letter(code); }
                         : [](char32_t code) { return is_cased(code) && !is_upper_letter(code); });
  }
  return fail(Code::unsupported, "the method {}() of a str is not supported", name);
}

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

}  // namespace asap::jinja
