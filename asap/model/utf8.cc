#include "asap/model/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace asap {

namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them (Unicode table
// 3-7).
struct Lead {
  int following;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) return {0, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {3, 0x80, 0xBF};
}

// Decomposition of `text`, marks in canonical order.
std::vector<utf8proc_int32_t> decompose(std::string_view text, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    at += c.length;
    utf8proc_int32_t buffer[32];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c.code), buffer, std::size(buffer), options, &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(std::size(buffer))) {
      codes.push_back(static_cast<utf8proc_int32_t>(c.code));
    } else {
      codes.insert(codes.end(), buffer, buffer + count);
    }
  }
  const auto mark_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  for (auto begin = codes.begin(); begin != codes.end();) {
    auto end = std::find_if(begin, codes.end(), [&](auto code) { return mark_class(code) == 0; });
    if (end - begin > 1) {
      std::stable_sort(begin, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    }
    begin = end == codes.end() ? end : end + 1;
  }
  return codes;
}

}  // namespace

Utf8Char utf8_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(at);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = lead_of(first);
  if (lead.following == 0) return {};
  char32_t code = first & (0x3F >> lead.following);
  for (int i = 1; i <= lead.following; ++i) {
    const size_t next = at + static_cast<size_t>(i);
    const auto length = static_cast<size_t>(i);
    if (next == text.size()) return {0xFFFD, length, false, true};
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte(next) < low || byte(next) > high) return {0xFFFD, length, false, false};
    code = code << 6 | (byte(next) & 0x3F);
  }
  return {code, static_cast<size_t>(lead.following) + 1, true, false};
}

char32_t utf8_last(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return utf8_at(text, at).code;
}

void append_utf8(char32_t code, std::string* out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

bool is_one_char(std::string_view text) {
  return !text.empty() && utf8_at(text, 0).length == text.size();
}

bool is_mark_char(char32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    if (!c.valid) return false;
    at += c.length;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    out.append(c.valid ? text.substr(at, c.length) : std::string_view("\xEF\xBF\xBD"));
    at += c.length;
  }
  return out;
}

size_t utf8_incomplete_tail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t at = text.size() - back;
    if ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) continue;
    return utf8_at(text, at).truncated ? back : 0;
  }
  return 0;
}

std::string normalized(std::string_view text, NormalForm form) {
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  // No normal form changes ASCII, and nothing below U+0300 (lead byte 0xCC) composes or is
  // reordered.
  const uint8_t plain_below = form == NormalForm::nfc ? 0xCC : 0x80;
  const auto plain = [&](char c) { return static_cast<uint8_t>(c) < plain_below; };
  if (std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));
  // utf8proc_map would sort long runs of marks in quadratic time; only its composition is used.
  std::vector<utf8proc_int32_t> codes = decompose(text, options);
  if (composes) {
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options);
    codes.resize(static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0)));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t code : codes) append_utf8(static_cast<char32_t>(code), &out);
  return out;
}

std::string lowercase(std::string_view text) {
  constexpr char32_t kDottedCapitalI = 0x130;  // the only one whose lower case is two characters
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    at += c.length;
    if (c.code == kDottedCapitalI) {
      out += "i\u0307";
    } else {
      const auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code));
      append_utf8(static_cast<char32_t>(lower), &out);
    }
  }
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    if (!is_mark_char(c.code)) out.append(text, at, c.length);
    at += c.length;
  }
  return out;
}

}  // namespace asap
