// Tokenizer: text to token ids and back, as tokenizer.json or tiktoken.model says: byte-pair
// encoding, on bytes or SentencePiece style on characters.
//
// Thread-safe after load: encode and decode are const and may run concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/model/text_decoder.h"

namespace asap {

class Tokenizer {
 public:
  // Reads DIR/tokenizer.json, or tiktoken.model where there is none (Kimi), and, if present,
  // tokenizer_config.json (add_bos_token, bos_token, add_eos_token, eos_token; for tiktoken.model
  // also the names of special tokens). Errors: not_found, invalid (malformed), unsupported (a
  // component that is not implemented, by name).
  static Result<Tokenizer> load(const std::string& directory);
  // `config` is the text of tokenizer_config.json, or empty. Both are fuzzed.
  static Result<Tokenizer> parse(const std::string& tokenizer_json, const std::string& config);
  static Result<Tokenizer> parse_tiktoken(const std::string& tiktoken_model,
                                          const std::string& config);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `text`. add_special: what the post-processor and add_bos_token put around it. Invalid
  // UTF-8 becomes U+FFFD.
  std::vector<int32_t> encode(std::string_view text, bool add_special) const;
  // Text of `ids`; bytes that are no UTF-8 become U+FFFD. Ids outside the vocabulary give nothing.
  // Some tokenizers strip the space that encode() puts before a text.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const;
  // Raw bytes that `id` stands for inside a text ("" for an id outside the vocabulary or a skipped
  // special token).
  std::string token_bytes(int32_t id, bool skip_special) const;
  int32_t vocab_size() const;                   // largest id + 1
  int32_t id_of(std::string_view token) const;  // -1: unknown
  bool is_special(int32_t id) const;
  // Bytes of a text that one id may stand for, so that a text's size says how many ids it gives at
  // least. 0: any number, as something may be left out (white space beside a special token,
  // unknown characters).
  size_t most_bytes_per_id() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns a stream of ids into text and never emits half a character: what later ids can still change
// waits, and flush() gives the rest. Together that is exactly what decode() gives for all of them.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  std::string push(int32_t id);
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  TextDecoder::State state_;
};

}  // namespace asap
