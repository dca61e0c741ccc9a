#include "asap/model/regex.h"

#include <oniguruma.h>
#include <utf8proc.h>

#include <mutex>

#include "asap/model/utf8.h"

namespace asap {

namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr unsigned kMaxParseDepth = 256;

// Oniguruma's tables are global: initialised once, and patterns are compiled one at a time.
std::mutex& compile_mutex() {
  static std::mutex mutex;
  return mutex;
}

bool initialise() {
  static const bool done = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_set_parse_depth_limit(kMaxParseDepth);
    onig_set_warn_func(onig_null_warn);
    onig_set_verb_warn_func(onig_null_warn);
    return onig_initialize(encodings, 1) == ONIG_NORMAL;
  }();
  return done;
}

const OnigUChar* bytes(const char* text) {
  return reinterpret_cast<const OnigUChar*>(text);
}

// What Oniguruma needs per search, one per thread: pieces are short, and allocating it for each
// would cost more than the search.
struct Workspace {
  OnigRegion* region = onig_region_new();
  OnigMatchParam* limits = onig_new_match_param();
  Workspace() = default;
  ~Workspace() {
    onig_region_free(region, 1);
    onig_free_match_param(limits);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

// One walk of a pattern over a text.
class Searcher {
 public:
  Searcher(OnigRegex pattern, std::string_view text)
      : pattern_(pattern), begin_(bytes(text.data())), end_(begin_ + text.size()) {
    const unsigned long limit = 10'000'000 + 64 * static_cast<unsigned long>(text.size());
    onig_set_retry_limit_in_match_of_match_param(workspace().limits, limit);
    onig_set_retry_limit_in_search_of_match_param(workspace().limits, limit);
  }

  // The leftmost match that begins at `from` or later.
  bool next(size_t from, Span* match) {
    const OnigUChar* at = begin_ + from;
    Workspace& work = workspace();
    // Nearly every match of a pre-tokenizer begins where the last one ended, and asking for that
    // costs no region.
    const int length =
        onig_match_with_param(pattern_, begin_, end_, at, nullptr, ONIG_OPTION_NONE, work.limits);
    if (length >= 0) {
      *match = {from, from + static_cast<size_t>(length)};
      return true;
    }
    if (length != ONIG_MISMATCH || at == end_) return false;
    const int found = onig_search_with_param(pattern_, begin_, end_, at, end_, work.region,
                                             ONIG_OPTION_NONE, work.limits);
    if (found < 0) return false;
    *match = {static_cast<size_t>(work.region->beg[0]), static_cast<size_t>(work.region->end[0])};
    return true;
  }

 private:
  static Workspace& workspace() {
    static thread_local Workspace mine;
    return mine;
  }

  OnigRegex pattern_;
  const OnigUChar* begin_;
  const OnigUChar* end_;
};

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

// End of the plain word (regex.h, ascii_words) that begins at `from`, or `from`.
size_t ascii_word_end(std::string_view text, size_t from) {
  size_t at = from;
  if (at < text.size() && text[at] == ' ') ++at;
  if (at < text.size() && is_upper(text[at])) ++at;
  const size_t lower = at;
  while (at < text.size() && is_lower(text[at])) ++at;
  if (at == lower) return from;
  if (at == text.size()) return at;
  const char next = text[at];
  const bool ends = static_cast<unsigned char>(next) < 0x80 && next != '\'' && !is_upper(next);
  return ends ? at : from;
}

bool has_ctype(char32_t code, unsigned ctype) {
  return initialise() && ONIG_ENCODING_UTF8->is_code_ctype(code, ctype) != 0;
}

}  // namespace

void Regex::Free::operator()(re_pattern_buffer* pattern) const {
  onig_free(pattern);
}

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(Code::invalid, "regex of {} bytes exceeds {}", pattern.size(), kMaxPatternBytes);
  }
  const std::lock_guard lock(compile_mutex());
  if (!initialise()) return fail(Code::internal, "Oniguruma does not initialise");
  OnigRegex compiled = nullptr;
  OnigErrorInfo info;
  const OnigUChar* begin = bytes(pattern.data());
  const int rc = onig_new(&compiled, begin, begin + pattern.size(), ONIG_OPTION_NONE,
                          ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
  if (rc != ONIG_NORMAL) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN] = {};
    onig_error_code_to_str(message, rc, &info);
    return fail(Code::invalid, "regex \"{}\" does not compile: {}", pattern.substr(0, 200),
                repair_utf8(reinterpret_cast<const char*>(message)));
  }
  return Regex(compiled);
}

void Regex::find_all(std::string_view text, bool ascii_words, std::vector<Span>* matches) const {
  Searcher searcher(pattern_.get(), text);
  size_t from = 0;
  bool after_match = false;  // `from` is where the last match ended
  while (from <= text.size()) {
    Span match{from, ascii_words ? ascii_word_end(text, from) : from};
    if (match.end == from && !searcher.next(from, &match)) return;
    if (match.begin == match.end && after_match && match.begin == from) {
      from += from < text.size() ? utf8_at(text, from).length : 1;
      after_match = false;
      continue;
    }
    matches->push_back(match);
    from = match.end;
    after_match = true;
  }
}

bool is_word_char(char32_t code) {
  // Oniguruma's own \w would count every number, such as U+00BD.
  if (has_ctype(code, ONIGENC_CTYPE_ALPHA) || has_ctype(code, ONIGENC_CTYPE_DIGIT)) return true;
  return code == 0x200C || code == 0x200D || is_mark_char(code) ||
         utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_PC;
}

bool is_space_char(char32_t code) {
  return has_ctype(code, ONIGENC_CTYPE_SPACE);
}

size_t space_begin(std::string_view text, size_t at, size_t floor) {
  while (at > floor) {
    size_t begin = at - 1;
    while (begin > floor && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_space_char(utf8_at(text, begin).code)) break;
    at = begin;
  }
  return at;
}

size_t space_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = utf8_at(text, at);
    if (!is_space_char(c.code)) break;
    at += c.length;
  }
  return at;
}

}  // namespace asap
