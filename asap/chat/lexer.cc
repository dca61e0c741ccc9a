#include "asap/chat/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "asap/chat/text.h"
#include "asap/model/utf8.h"

namespace asap::jinja {

namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// As Python reads text files: one kind of newline, and the last one dropped.
std::string normalise(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      out += source[at];
      continue;
    }
    out += '\n';
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// What stands in "..." with Python's escapes resolved.
Result<std::string> unescape(std::string_view text, int line);

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalise(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) ASAP_TRY(root());
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  // ---- text between tags

  // Text up to the next tag, and the tag.
  Status root() {
    size_t tag = at_;
    const auto opens = [&](size_t i) {
      return source_[i] == '{' && i + 1 < source_.size() &&
             (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#');
    };
    while (tag < source_.size() && !opens(tag)) ++tag;
    if (tag == source_.size()) {
      add(TokenKind::data, source_.substr(at_));
      advance(tag);
      return {};
    }
    const char kind = source_[tag + 1];
    size_t next = tag + 2;
    const char sign = take_sign(next);
    add(TokenKind::data, kept(at_, tag, sign, kind != '{'));
    size_t raw_body = 0;
    if (kind == '%' && is_raw(next, raw_body)) {
      leave(raw_body);
      return raw();
    }
    advance(next);
    line_starting_ = false;
    if (kind == '#') return comment();
    add(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin, "");
    return inside(kind == '{' ? "}}" : "%}");
  }

  // '-', '+' or 0 at `next`, which moves behind it.
  char take_sign(size_t& next) const {
    if (next < source_.size() && (source_[next] == '-' || source_[next] == '+')) {
      return source_[next++];
    }
    return 0;
  }

  // The text [begin, end) before a tag, as far as the tag leaves it.
  std::string_view kept(size_t begin, size_t end, char sign, bool block) const {
    const std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') return strip(text, std::nullopt, false, true);
    if (sign == '+' || !block) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == text.npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return text;
    if (!strip(text.substr(line_begin), std::nullopt, true, false).empty()) return text;
    return text.substr(0, line_begin);
  }

  size_t skip_space(size_t at) const {
    return source_.size() - strip(std::string_view(source_).substr(std::min(at, source_.size())),
                                  std::nullopt, true, false)
                                .size();
  }
  bool looking_at(size_t at, std::string_view text) const {
    return source_.compare(at, text.size(), text) == 0;
  }

  // Behind the end of a tag that begins at `at` ("%}", "-%}", "+%}"), with what the end removes;
  // 0 if there is none.
  size_t tag_end(size_t at, std::string_view end, bool trims, bool plus) const {
    if (at < source_.size() && source_[at] == '-' && looking_at(at + 1, end)) {
      return skip_space(at + 1 + end.size());
    }
    if (plus && at < source_.size() && source_[at] == '+' && looking_at(at + 1, end)) {
      return at + 1 + end.size();
    }
    if (at >= source_.size() || !looking_at(at, end)) return 0;
    const size_t after = at + end.size();
    return trims && after < source_.size() && source_[after] == '\n' ? after + 1 : after;
  }

  // Whether a block tag whose inside begins at `at` is {% raw %}; `body` is then behind it.
  bool is_raw(size_t at, size_t& body) const {
    const size_t word = skip_space(at);
    if (!looking_at(word, "raw")) return false;
    body = tag_end(skip_space(word + 3), "%}", false, false);
    return body != 0;
  }

  Status raw() {
    for (size_t tag = source_.find("{%", at_); tag != source_.npos;
         tag = source_.find("{%", tag + 1)) {
      size_t next = tag + 2;
      const char sign = take_sign(next);
      const size_t word = skip_space(next);
      if (!looking_at(word, "endraw")) continue;
      const size_t after = tag_end(skip_space(word + 6), "%}", true, true);
      if (after == 0) continue;
      add(TokenKind::data, kept(at_, tag, sign, true));
      leave(after);
      return {};
    }
    return fail(Code::invalid, "line {}: {{% raw %}} has no {{% endraw %}}", line_);
  }

  Status comment() {
    for (size_t end = source_.find("#}", at_); end != source_.npos;
         end = source_.find("#}", end + 1)) {
      const bool signed_end = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
      leave(tag_end(signed_end ? end - 1 : end, "#}", true, true));
      return {};
    }
    return fail(Code::invalid, "line {}: a comment has no end: write #}}", line_);
  }

  // ---- inside {{ }} and {% %}

  Status inside(std::string_view end) {
    const bool block = end == "%}";
    brackets_.clear();
    while (true) {
      if (brackets_.empty()) {
        if (const size_t after = tag_end(at_, end, block, block); after != 0) {
          add(block ? TokenKind::block_end : TokenKind::variable_end, "");
          leave(after);
          return {};
        }
      }
      if (at_ >= source_.size()) {
        return fail(Code::invalid, "line {}: the template ends inside a tag: \"{}\" is missing",
                    line_, end);
      }
      if (const size_t after = skip_space(at_); after != at_) {
        advance(after);
        continue;
      }
      ASAP_TRY(token());
    }
  }

  Status token() {
    const char c = source_[at_];
    if (is_digit(c)) return number();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      if (end < source_.size() && (source_[end] & 0x80)) return strange(end);
      add(TokenKind::name, source_.substr(at_, end - at_));
      advance(end);
      return {};
    }
    if (c == '\'' || c == '"') return string(c);
    return op();
  }

  Status strange(size_t at) const {
    const std::string_view text = source_;
    if (text[at] & 0x80) {
      return fail(Code::unsupported,
                  "line {}: a name with characters beyond ASCII (\"{}\") is not supported", line_,
                  text.substr(at, utf8_at(text, at).length));
    }
    return fail(Code::invalid, "line {}: unexpected character '{}'", line_, text[at]);
  }

  // Behind the digits at `at` of that base, with single underscores between them; `at` if none.
  size_t digits(size_t at, int base, bool may_begin_with_underscore) const {
    const auto is_one = [&](size_t i) {
      if (i >= source_.size()) return false;
      const char c = source_[i];
      if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return true;
      return c >= '0' && c < '0' + std::min(base, 10);
    };
    size_t end = at;
    while (true) {
      const bool underscore = end < source_.size() && source_[end] == '_' && is_one(end + 1) &&
                              (end > at || may_begin_with_underscore);
      if (!underscore && !is_one(end)) return end;
      end += underscore ? 2 : 1;
    }
  }

  Status number() {
    if (const size_t end = real_end(); end != 0) {
      std::string text = source_.substr(at_, end - at_);
      text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
      // strtod takes what does not fit as infinity, as Python does.
      add(TokenKind::number, "", Value::real(std::strtod(text.c_str(), nullptr)));
      advance(end);
      return {};
    }
    size_t begin = at_;
    int base = 10;
    size_t end = 0;
    if (source_[at_] == '0') {
      const char mark = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : ' ';
      const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
      if (marked != 0 && digits(at_ + 2, marked, true) > at_ + 2) {
        base = marked;
        begin = at_ + 2;
        end = digits(begin, base, true);
      } else {
        end = at_ + 1;
        while (end < source_.size() && (source_[end] == '0' || looking_at(end, "_0"))) {
          end += source_[end] == '0' ? 1 : 2;
        }
      }
    } else {
      end = digits(at_, 10, false);
    }
    std::string text = source_.substr(begin, end - begin);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    int64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (read.ec != std::errc()) {
      return fail(Code::unsupported, "line {}: the number {} exceeds 64 bits", line_, text);
    }
    add(TokenKind::number, "", Value::integer(value));
    advance(end);
    return {};
  }

  // Behind a float that begins here, or 0.
  size_t real_end() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return 0;
    const size_t whole = digits(at_, 10, false);
    size_t end = whole;
    if (end < source_.size() && source_[end] == '.') {
      const size_t fraction = digits(end + 1, 10, false);
      if (fraction > end + 1) end = fraction;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      const size_t after = digits(exponent, 10, false);
      if (after > exponent) end = after;
    }
    return end > whole ? end : 0;
  }

  Status string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      return fail(Code::invalid, "line {}: a string has no end: {} is missing", line_, quote);
    }
    ASAP_ASSIGN(std::string text,
                unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
    add(TokenKind::string, "", Value::text(std::move(text)));
    advance(end + 1);
    return {};
  }

  Status op() {
    constexpr std::array<std::string_view, 25> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",",
    };
    const auto* const found =
        std::find_if(kOperators.begin(), kOperators.end(),
                     [&](std::string_view text) { return looking_at(at_, text); });
    if (found == kOperators.end()) return strange(at_);
    ASAP_TRY(balance(found->front()));
    add(TokenKind::op, *found);
    advance(at_ + found->size());
    return {};
  }

  Status balance(char c) {
    constexpr size_t kMaxBrackets = 200;
    if (c == '(' || c == '[' || c == '{') {
      if (brackets_.size() == kMaxBrackets) {
        return fail(Code::invalid, "line {}: more than {} brackets are open", line_, kMaxBrackets);
      }
      brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    }
    if (c != ')' && c != ']' && c != '}') return {};
    if (brackets_.empty()) return fail(Code::invalid, "line {}: unexpected '{}'", line_, c);
    if (brackets_.back() != c) {
      return fail(Code::invalid, "line {}: unexpected '{}', expected '{}'", line_, c,
                  brackets_.back());
    }
    brackets_.pop_back();
    return {};
  }

  // ---- position

  void add(TokenKind kind, std::string_view text, Value value = {}) {
    if (kind == TokenKind::data && text.empty()) return;
    tokens_.push_back({kind, std::string(text), std::move(value), line_});
  }
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  // Behind a tag: what follows starts a line if the tag took the newline with it.
  void leave(size_t to) {
    advance(to);
    line_starting_ = source_[to - 1] == '\n';
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones that are awaited
  std::vector<Token> tokens_;
};

Result<std::string> unescape(std::string_view text, int line) {
  std::string out;
  constexpr std::string_view kSimple = "\\'\"abfnrtv";
  constexpr std::string_view kMeans = "\\'\"\a\b\f\n\r\t\v";
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\') {
      out += text[at++];
      continue;
    }
    const char c = text[at + 1];
    const size_t simple = kSimple.find(c);
    const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == '\n') {
      at += 2;
    } else if (simple != kSimple.npos) {
      out += kMeans[simple];
      at += 2;
    } else if (length != 0 || (c >= '0' && c <= '7')) {
      const bool octal = length == 0;
      const std::string_view digits = text.substr(at + (octal ? 1 : 2), octal ? 3 : length);
      uint32_t code = 0;
      const auto read =
          std::from_chars(digits.data(), digits.data() + digits.size(), code, octal ? 8 : 16);
      const auto used = static_cast<size_t>(read.ptr - digits.data());
      if ((!octal && used != length) || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        return fail(Code::invalid, "line {}: the escape \\{} in a string names no character", line,
                    text.substr(at + 1, 1 + length));
      }
      append_utf8(static_cast<char32_t>(code), &out);
      at += (octal ? 1 : 2) + used;
    } else if (c == 'N' || (c & 0x80) != 0) {
      return fail(Code::unsupported, "line {}: the escape \\{} in a string is not supported", line,
                  text.substr(at + 1, utf8_at(text, at + 1).length));
    } else {
      out += text[at++];  // Python leaves what it does not know
    }
  }
  return out;
}

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace asap::jinja
