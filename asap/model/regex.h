// Regex: the Oniguruma patterns of tokenizer.json, over valid UTF-8.
//
// Thread-safe after compile. The work of one search is bounded by the length of the text, so a
// hostile pattern costs time in proportion to it and never hangs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"

struct re_pattern_buffer;  // Oniguruma's compiled pattern

namespace asap {

struct Span {
  size_t begin = 0, end = 0;  // bytes
};

class Regex {
 public:
  // Errors: invalid, with Oniguruma's message.
  static Result<Regex> compile(std::string_view pattern);

  // Appends the matches in order; they do not overlap, and an empty match never touches the one
  // before. A search that exceeds its bound counts as "no further match". ascii_words: the caller
  // vouches that the pattern matches exactly ` ?[A-Z]?[a-z]+` wherever that is followed by the end,
  // or by ASCII other than letters and the apostrophe. Such matches are then found without
  // Oniguruma, which is ten times as fast.
  void find_all(std::string_view text, bool ascii_words, std::vector<Span>* matches) const;

 private:
  struct Free {
    void operator()(re_pattern_buffer* pattern) const;
  };
  explicit Regex(re_pattern_buffer* pattern) : pattern_(pattern) {}
  std::unique_ptr<re_pattern_buffer, Free> pattern_;
};

// Unicode's \w (UTS 18: letters, marks, decimal digits, connectors, joiners) and \s.
bool is_word_char(char32_t code);
bool is_space_char(char32_t code);
// Where the white space that ends at text[at] begins, not before `floor`; where the white space
// that begins at text[at] ends. `text` is valid UTF-8.
size_t space_begin(std::string_view text, size_t at, size_t floor);
size_t space_end(std::string_view text, size_t at);

}  // namespace asap
