// Pretokenizer: the "pre_tokenizer" of tokenizer.json. Cuts a text into the pieces that BPE never
// merges across.
//
// Known: Sequence, Split, Digits and, as the last step, ByteLevel. The byte alphabet of ByteLevel
// is not spelled out: pieces stay UTF-8, and BPE works on their bytes.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/model/regex.h"

namespace asap {

class Pretokenizer {
 public:
  // Errors: invalid; unsupported, with the type's name.
  static Result<Pretokenizer> parse(const nlohmann::json& config);

  // Appends the pieces of `text` (valid UTF-8) in order; none is empty. They point into `text`, or
  // into `arena` where a space had to be put before the text.
  void split(std::string_view text, std::deque<std::string>* arena,
             std::vector<std::string_view>* pieces) const;

 private:
  // What becomes of a match, in the words of tokenizer.json.
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  struct Step {
    std::optional<Regex> regex;  // else `literal`, if that is not empty
    bool ascii_words = false;    // of the regex: see Regex::find_all
    std::string literal;
    Behavior behavior = Behavior::isolated;
    bool invert = false;  // the gaps are the matches
    bool add_prefix_space = false;
  };
  struct Cut {
    size_t begin, end;
    bool match;
  };

  Status add(const nlohmann::json& config, int depth);
  Status add_split(const nlohmann::json& config);
  Status add_digits(const nlohmann::json& config);
  Status add_byte_level(const nlohmann::json& config);
  Status add_regex(std::string_view pattern, Step step);
  static void find_matches(const Step& step, std::string_view text, std::vector<Span>* matches);
  static void find_cuts(const Step& step, std::string_view text, const std::vector<Span>& matches,
                        std::vector<Cut>* cuts);
  static void emit(Behavior behavior, std::string_view text, const std::vector<Cut>& cuts,
                   std::vector<std::string_view>* pieces);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace asap
