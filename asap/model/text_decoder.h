// TextDecoder: the "decoder" of tokenizer.json. Turns the tokens of a stream into text.
//
// Known: Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip.
//
// What Hugging Face's library does to a whole list of tokens is done here as the tokens come. Text
// is held back only as long as later tokens can change it: half a character, a run of byte tokens
// (one that is not UTF-8 as a whole becomes replacement characters altogether), the end of a text
// that Strip may strip. So a stream gives exactly what decoding the whole gives.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/model/pattern.h"

namespace asap {

class TextDecoder {
 public:
  // What a stream has left in the steps of its decoder.
  class State {
   private:
    friend class TextDecoder;
    struct Step {
      std::string held;
      size_t count = 0;   // tokens seen, or characters stripped
      bool open = false;  // the beginning is over
    };
    std::vector<Step> steps_;
  };

  // Errors: invalid; unsupported, with the type's name.
  static Result<TextDecoder> parse(const nlohmann::json& config);
  // Tokens are bytes; together they are UTF-8.
  static TextDecoder bytes();

  // What push() takes for the token `text`: what the first steps make of it, whatever stands beside
  // it. Bytes, if the decoder is ByteLevel.
  std::string prepared(std::string_view text) const;
  // The bytes that a prepared token stands for on its own.
  std::string alone(std::string_view prepared) const;
  // Whether the text of prepared tokens is just their bytes, ill-formed ones replaced.
  bool just_bytes() const;

  // Appends the text that is certain after this prepared token.
  void push(std::string_view prepared, State* state, std::string* out) const;
  // Appends what was held back; the state is then as new.
  void finish(State* state, std::string* out) const;

 private:
  enum class Kind { byte_level, byte_fallback, fuse, metaspace, replace, strip };
  struct Step {
    explicit Step(Kind which) : kind(which) {}
    Kind kind;
    bool joined = false;                     // what comes in is one token, in parts
    bool prepared = false;                   // byte_level: what comes in is bytes already
    std::shared_ptr<const Pattern> pattern;  // replace: this
    std::string content;                     // replace: by this; strip, metaspace: the character
    size_t start = 0, stop = 0;              // strip: at most so many
    bool drop_first = false;                 // metaspace: the first token loses the character
  };
  struct Run {  // one call of push or finish
    State* state;
    std::string* out;
  };

  Status add(const nlohmann::json& config, int depth);
  Status add_sequence(const nlohmann::json& config, int depth);
  Status add_replace(const nlohmann::json& config);
  Status add_strip(const nlohmann::json& config);
  Status add_metaspace(const nlohmann::json& config);
  Status add_step(Step step);
  // A step's work on a whole token.
  static std::string changed(const Step& step, std::string_view token, bool first);
  // A token, or a part of the only token, comes to a step; and nothing more will come to it.
  void feed(size_t index, std::string_view token, Run& run) const;
  void feed_part(size_t index, std::string_view part, Run& run) const;
  void end(size_t index, Run& run) const;
  void end_byte_run(size_t index, Run& run) const;
  void strip_part(size_t index, std::string_view part, Run& run) const;
  void replace_part(size_t index, std::string_view part, Run& run) const;

  std::vector<Step> first_;  // steps that work on each token on its own
  std::vector<Step> steps_;
  bool joined_ = false;  // after all steps so far there is one token
  size_t growth_ = 1;    // a text may become this many times as long
};

}  // namespace asap
