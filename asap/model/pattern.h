// Pattern: what "Split" and "Replace" of tokenizer.json look for: a regular expression or a plain
// text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/model/regex.h"

namespace asap {

// What ByteLevel applies when use_regex is set.
extern const std::string_view kGpt2Pattern;
// What Kimi's own code applies; its checkpoints hold no tokenizer.json that would say so.
extern const std::string_view kKimiPattern;

class Pattern {
 public:
  // Reads `owner`'s "pattern": {"Regex": "..."} or {"String": "..."}. `where` opens every message.
  static Result<Pattern> parse(const nlohmann::json& owner, const std::string& where);
  static Result<Pattern> regex(std::string_view source, const std::string& where);
  static Pattern literal(std::string text);

  // Appends the matches in `text` (valid UTF-8) in order; they do not overlap.
  void find_all(std::string_view text, std::vector<Span>* matches) const;
  // `text` with every match replaced.
  std::string replaced(std::string_view text, std::string_view by) const;
  // At most this many times as long as `text` is what replaced(text, by) gives.
  size_t growth(std::string_view by) const;
  // The plain text that is looked for; empty for a regular expression.
  const std::string& literal() const { return literal_; }

 private:
  std::optional<Regex> regex_;  // else `literal_`
  bool ascii_words_ = false;    // of the regex: see Regex::find_all
  std::string literal_;
};

}  // namespace asap
