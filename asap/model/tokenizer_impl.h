// What a Tokenizer is made of. Private to tokenizer.cc (use) and tokenizer_load.cc (reading the
// files).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "asap/model/added_tokens.h"
#include "asap/model/bpe.h"
#include "asap/model/normalizer.h"
#include "asap/model/pretokenizer.h"
#include "asap/model/text_decoder.h"
#include "asap/model/tokenizer.h"

namespace asap {

struct TokenizerData {
  struct Token {
    uint32_t begin = 0, length = 0;  // in `texts`
    bool known = false;
    bool special = false;
  };

  Bpe bpe;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  TextDecoder decoder;
  AddedTokens raw_tokens;               // looked for in the text as it comes
  AddedTokens normalized_tokens;        // looked for after normalisation
  TokenIds added_ids;                   // added tokens by content
  std::vector<int32_t> prefix, suffix;  // put around a text when special tokens are asked for
  std::vector<Token> tokens;            // by id
  size_t most_bytes_per_id = 0;         // Tokenizer::most_bytes_per_id()
  std::string texts;                    // as the decoder takes them (TextDecoder::prepared)

  int32_t id_of(std::string_view token) const;  // -1: unknown
  // What the decoder takes for `id`; nothing if that is no token, or a special one to be skipped.
  const Token* find(int32_t id, bool skip_special) const;
  std::string_view text_of(const Token& token) const {
    return std::string_view(texts).substr(token.begin, token.length);
  }
};

struct Tokenizer::Impl : TokenizerData {};

}  // namespace asap
