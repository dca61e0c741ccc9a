// Pretokenizer: the "pre_tokenizer" of tokenizer.json. Cuts a text into the pieces that BPE never
// merges across.
//
// Known: Sequence, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit,
// Metaspace and, as the last step, ByteLevel. The byte alphabet of ByteLevel is not spelled out:
// pieces stay UTF-8, and BPE works on their bytes.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/model/metaspace.h"
#include "asap/model/pattern.h"

namespace asap {

class Pretokenizer {
 public:
  // null: a text is one piece. Errors: invalid; unsupported, with the type's name.
  static Result<Pretokenizer> parse(const nlohmann::json& config);
  static Result<Pretokenizer> kimi();

  // Whether BPE works on bytes, not on characters.
  bool byte_level() const { return byte_level_; }
  // Whether what comes of a text depends on its being the beginning of the whole.
  bool minds_beginning() const { return minds_beginning_; }
  // Whether parts of a text are in no piece.
  bool removes() const;

  // Appends the pieces of `text` (valid UTF-8) in order; none is empty. They point into `text`, or
  // into `arena` where characters were put before it or replaced. `beginning`: nothing stands
  // before `text`.
  void split(std::string_view text, bool beginning, std::deque<std::string>* arena,
             std::vector<std::string_view>* pieces) const;

 private:
  // What becomes of a match, in the words of tokenizer.json.
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  using Prepend = MetaspaceOptions::Prepend;
  struct Step {
    std::string space;   // spaces become this, if it is not empty
    std::string prefix;  // is put before a piece that does not begin with it
    Prepend where = Prepend::never;
    std::optional<Pattern> pattern;  // then the piece is cut by this
    Behavior behavior = Behavior::isolated;
    bool invert = false;  // the gaps are the matches
  };
  struct Cut {
    size_t begin, end;
    bool match;
  };

  Status add(const nlohmann::json& config, int depth);
  Status add_sequence(const nlohmann::json& config, int depth);
  Status add_split(const nlohmann::json& config);
  Status add_digits(const nlohmann::json& config);
  Status add_punctuation(const nlohmann::json& config);
  Status add_removal(std::string_view pattern, bool invert);
  Status add_delimiter(const nlohmann::json& config);
  Status add_metaspace(const nlohmann::json& config);
  Status add_byte_level(const nlohmann::json& config);
  Status add_regex(std::string_view pattern, Step step);
  static Result<Behavior> behavior_of(const nlohmann::json& config, const std::string& where,
                                      const std::string& fallback);
  static void find_cuts(const Step& step, std::string_view text, const std::vector<Span>& matches,
                        std::vector<Cut>* cuts);
  static void emit(Behavior behavior, std::string_view text, const std::vector<Cut>& cuts,
                   std::vector<std::string_view>* pieces);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  bool minds_beginning_ = false;
};

}  // namespace asap
