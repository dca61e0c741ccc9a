// Tokenizer: text to token ids and back, as tokenizer.json says (byte-level BPE).
//
// Thread-safe after load: encode and decode are const and may run concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"

namespace asap {

class Tokenizer {
 public:
  // Reads DIR/tokenizer.json and, if present, tokenizer_config.json (add_bos_token, bos_token).
  // Errors: not_found, invalid (malformed), unsupported (a component that is not implemented, by
  // name).
  static Result<Tokenizer> load(const std::string& directory);
  // `config` is the text of tokenizer_config.json, or empty. Fuzzed.
  static Result<Tokenizer> parse(const std::string& tokenizer_json, const std::string& config);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `text`. add_special: what the post-processor and add_bos_token put around it. Invalid
  // UTF-8 becomes U+FFFD.
  std::vector<int32_t> encode(std::string_view text, bool add_special) const;
  // Text of `ids`; bytes that are no UTF-8 become U+FFFD. Ids outside the vocabulary give nothing.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const;
  // Raw bytes that `id` stands for ("" for an id outside the vocabulary or a skipped special
  // token).
  std::string token_bytes(int32_t id, bool skip_special) const;
  int32_t vocab_size() const;                   // largest id + 1
  int32_t id_of(std::string_view token) const;  // -1: unknown
  bool is_special(int32_t id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns a stream of ids into text and never emits half a character: bytes wait until they form
// whole UTF-8, and flush() gives U+FFFD for what never did.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  std::string push(int32_t id);
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace asap
