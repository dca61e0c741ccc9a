#include "tests/manners_scan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace asap::manners {

namespace {

constexpr size_t kNone = std::string_view::npos;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}
bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool has_word(std::string_view text, std::string_view word) {
  return find_word(text, word) != kNone;
}

// One pass over the text; each skip() leaves `at_` just behind what it blanked.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : text_(text), out_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with("//")) {
        skip_line_comment();
      } else if (rest.starts_with("/*")) {
        skip_to(text_.find("*/", at_ + 2), 2);
      } else if (rest.front() == '"' && follows_raw_prefix()) {
        skip_raw_string();
      } else if (rest.front() == '"' || (rest.front() == '\'' && !separates_digits())) {
        skip_literal(rest.front());
      } else {
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  void blank(size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, out_.size()); ++i) {
      if (out_[i] != '\n') out_[i] = ' ';
    }
  }

  void skip_to(size_t found, size_t length) {
    const size_t end = found == kNone ? text_.size() : found + length;
    blank(at_, end);
    at_ = end;
  }

  // A backslash at the end of its line continues the comment.
  void skip_line_comment() {
    size_t end = text_.find('\n', at_);
    while (end != kNone && text_[end - 1] == '\\') end = text_.find('\n', end + 1);
    skip_to(end, 0);
  }

  // A literal that is not closed ends with its line.
  void skip_literal(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') {
      end += text_[end] == '\\' ? 2 : 1;
    }
    blank(at_ + 1, end);
    at_ = std::min(end + 1, text_.size());
  }

  // The letters and digits just before `at_`.
  std::string_view word_before() const {
    size_t begin = at_;
    while (begin > 0 && (is_word(text_[begin - 1]) || text_[begin - 1] == '\'')) --begin;
    return text_.substr(begin, at_ - begin);
  }
  bool follows_raw_prefix() const {
    constexpr std::array<std::string_view, 5> kPrefixes = {"R", "u8R", "uR", "UR", "LR"};
    return std::find(kPrefixes.begin(), kPrefixes.end(), word_before()) != kPrefixes.end();
  }
  bool separates_digits() const {
    const std::string_view word = word_before();
    return !word.empty() && is_digit(word.front());
  }

  void skip_raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == kNone) return skip_literal('"');
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const size_t found = text_.find(close, open);
    const size_t end = found == kNone ? text_.size() : found + close.size();
    blank(at_ + 1, end - 1);
    at_ = end;
  }

  size_t at_ = 0;
  std::string_view text_;
  std::string out_;
};

// Blanks preprocessor directives: their braces and parentheses are not the program's.
std::string blank_directives(std::string_view code) {
  std::string out(code);
  size_t begin = 0;
  bool continued = false;
  while (begin < out.size()) {
    const size_t end = std::min(out.find('\n', begin), out.size());
    const std::string_view line = trim(std::string_view(out).substr(begin, end - begin));
    const bool directive = continued || line.starts_with('#');
    continued = directive && line.ends_with('\\');
    if (directive)
      std::fill(out.begin() + static_cast<long>(begin), out.begin() + static_cast<long>(end), ' ');
    begin = end + 1;
  }
  return out;
}

// What an opening brace outside any function begins.
enum class Scope { transparent, function, other };

// The head without template<...>, alignas(...) and [[...]], which hide the words that matter.
std::string without_decorations(std::string_view head) {
  std::string out;
  for (size_t i = 0; i < head.size();) {
    const std::string_view rest = head.substr(i);
    const bool starts_word = i == 0 || !is_word(head[i - 1]);
    const bool is_template = starts_word && rest.starts_with("template");
    const bool is_alignas = starts_word && rest.starts_with("alignas");
    if (!is_template && !is_alignas && !rest.starts_with("[[")) {
      out += head[i++];
      continue;
    }
    const char open = is_template ? '<' : is_alignas ? '(' : '[';
    const char close = is_template ? '>' : is_alignas ? ')' : ']';
    int depth = 0;
    i = std::min(head.find(open, i), head.size());
    for (; i < head.size(); ++i) {
      if (head[i] == open) ++depth;
      if (head[i] == close && --depth == 0) break;
    }
    i = std::min(i + 1, head.size());
  }
  return out;
}

Scope classify(std::string_view head) {
  const std::string plain = without_decorations(head);
  if (has_word(plain, "namespace")) return Scope::transparent;
  if (trim(plain).starts_with("extern") && trim(plain).ends_with('"')) return Scope::transparent;
  if (plain.find('(') != kNone) return Scope::function;
  const bool is_class =
      has_word(plain, "class") || has_word(plain, "struct") || has_word(plain, "union");
  const bool is_scope = is_class && !has_word(plain, "enum") && plain.find('=') == kNone;
  return is_scope ? Scope::transparent : Scope::other;
}

// Whether the head is a constructor's up to somewhere in its member initialisers: `A::A(int n) :
// a_(n), b_`. A brace after a name then initialises a member; after `)` or `}` it opens the body.
bool is_member_initialiser(std::string_view head) {
  const std::string_view text = trim(head);
  if (text.empty() || !(is_word(text.back()) || text.back() == '>')) return false;
  int depth = 0;
  bool seen_parameters = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth == 0) seen_parameters = true;
    const bool doubled =
        (i > 0 && text[i - 1] == ':') || (i + 1 < text.size() && text[i + 1] == ':');
    if (text[i] == ':' && !doubled && depth == 0 && seen_parameters) return true;
  }
  return false;
}

// "int Foo::bar(int x) const" -> "Foo::bar"; "auto f = [](int x)" -> "f".
std::string name_of(std::string_view head) {
  const std::string plain = without_decorations(head);
  const size_t end = std::min({plain.find('('), plain.find(" ="), plain.size()});
  const std::string_view before = trim(std::string_view(plain).substr(0, end));
  const auto is_name = [](char c) { return is_word(c) || c == ':' || c == '~'; };
  size_t begin = before.size();
  while (begin > 0 && is_name(before[begin - 1])) --begin;
  return std::string(before.substr(begin == before.size() ? 0 : begin));
}

class FunctionFinder {
 public:
  explicit FunctionFinder(std::string_view code) : code_(code) {}

  FunctionScan run() {
    for (at_ = 0; at_ < code_.size(); ++at_) step(code_[at_]);
    scan_.balanced = scan_.balanced && open_scopes_ == 0;
    return std::move(scan_);
  }

 private:
  std::string_view head() const {
    return std::string_view(code_).substr(head_begin_, at_ - head_begin_);
  }
  void new_head() {
    head_begin_ = at_ + 1;
    parens_ = 0;
  }

  void step(char c) {
    if (c == '(') ++parens_;
    if (c == ')') --parens_;
    if (c == '{') on_open();
    if (c == '}') on_close();
    if (c == ';' && parens_ == 0) new_head();
    if (c == ':' && is_access_specifier()) new_head();
  }

  bool is_access_specifier() const {
    const std::string_view word = trim(head());
    return word == "public" || word == "private" || word == "protected";
  }

  void on_open() {
    if (parens_ > 0 ||
        is_member_initialiser(head())) {  // `Options o = {}` among parameters, `a_{1}`
      at_ = matching_brace();
      return;
    }
    const Scope scope = classify(head());
    if (scope == Scope::transparent) {
      ++open_scopes_;
      new_head();
      return;
    }
    const size_t close = matching_brace();
    if (scope == Scope::function) add_function(close);
    at_ = close;
    new_head();
  }

  void on_close() {
    if (--open_scopes_ < 0) {
      scan_.balanced = false;
      open_scopes_ = 0;
    }
    new_head();
  }

  // Of the brace at at_.
  size_t matching_brace() {
    int depth = 0;
    for (size_t i = at_; i < code_.size(); ++i) {
      if (code_[i] == '{') ++depth;
      if (code_[i] == '}' && --depth == 0) return i;
    }
    scan_.balanced = false;
    return code_.size() - 1;
  }

  void add_function(size_t close) {
    size_t begin = head_begin_;
    while (begin < at_ && is_space(code_[begin])) ++begin;
    const int line = line_of(code_, begin);
    scan_.functions.push_back({name_of(head()), line, line_of(code_, close) - line + 1});
  }

  const std::string code_;
  size_t at_ = 0;
  size_t head_begin_ = 0;  // behind the last ; { } or access specifier outside functions
  int parens_ = 0;         // open in the head
  int open_scopes_ = 0;    // namespaces and classes
  FunctionScan scan_;
};

}  // namespace

std::string blank_comments_and_literals(std::string_view text) {
  return Blanker(text).run();
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

int line_of(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  return 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
}

int columns(std::string_view line) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  return static_cast<int>(line.size()) -
         static_cast<int>(std::count_if(line.begin(), line.end(), continues));
}

size_t find_word(std::string_view text, std::string_view word, size_t from) {
  for (size_t at = text.find(word, from); at != kNone; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_word(text[at - 1]);
    const bool ends = end == text.size() || !is_word(text[end]);
    if (begins && ends) return at;
  }
  return kNone;
}

FunctionScan find_functions(std::string_view code) {
  return FunctionFinder(blank_directives(code)).run();
}

std::vector<Include> find_includes(std::string_view text) {
  const std::string code = blank_comments_and_literals(text);
  const std::vector<std::string_view> lines = split_lines(text);
  const std::vector<std::string_view> code_lines = split_lines(code);
  std::vector<Include> includes;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string_view directive = trim(code_lines[i]);
    if (!directive.starts_with('#')) continue;
    directive = trim(directive.substr(1));
    if (!directive.starts_with("include")) continue;
    const size_t open = lines[i].find_first_of("\"<");
    if (open == kNone) continue;
    const bool quoted = lines[i][open] == '"';
    const size_t close = lines[i].find(quoted ? '"' : '>', open + 1);
    if (close == kNone) continue;
    includes.push_back({std::string(lines[i].substr(open + 1, close - open - 1)), quoted,
                        static_cast<int>(i) + 1});
  }
  return includes;
}

}  // namespace asap::manners
