// Normalizer: the "normalizer" of tokenizer.json. Rewrites a text before it is cut into pieces.
//
// Known: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/model/pattern.h"
#include "asap/model/utf8.h"

namespace asap {

class Normalizer {
 public:
  // null: leaves texts as they are. Errors: invalid; unsupported, with the type's name.
  static Result<Normalizer> parse(const nlohmann::json& config);

  bool empty() const { return steps_.empty(); }
  // `text` (valid UTF-8) after all steps. Points into `text`, or into `arena` where it was changed.
  std::string_view apply(std::string_view text, std::deque<std::string>* arena) const;
  std::string apply(std::string_view text) const;
  // Bytes of a text that may become one byte. 0: any number, as steps leave something out.
  size_t most_bytes_per_byte() const;

 private:
  enum class Kind { normal_form, lowercase, strip_accents, strip, prepend, replace };
  struct Step {
    Kind kind;
    NormalForm form = NormalForm::nfc;
    bool left = false, right = false;  // what Strip strips
    std::optional<Pattern> pattern;    // what Replace replaces
    std::string content;               // by this; or what Prepend puts in front
  };

  Status add(const nlohmann::json& config, int depth);
  Status add_sequence(const nlohmann::json& config, int depth);
  Status add_text_step(const nlohmann::json& config, Kind kind);
  Status grow(size_t factor);
  static size_t most_bytes_per_byte(const Step& step);
  static std::string run(const Step& step, std::string_view text);

  std::vector<Step> steps_;
  size_t growth_ = 1;  // a text may become this many times as long
};

}  // namespace asap
