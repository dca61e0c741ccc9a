// What a Tokenizer is made of. Private to tokenizer.cc (use) and tokenizer_load.cc (reading
// tokenizer.json).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "asap/model/added_tokens.h"
#include "asap/model/bpe.h"
#include "asap/model/pretokenizer.h"
#include "asap/model/tokenizer.h"

namespace asap {

struct TokenizerData {
  struct Token {
    uint32_t begin = 0, length = 0;  // its bytes in `bytes`
    bool known = false;
    bool special = false;
  };

  Bpe bpe;
  Pretokenizer pretokenizer;
  bool normalize_nfc = false;
  AddedTokens raw_tokens;               // looked for in the text as it comes
  AddedTokens normalized_tokens;        // looked for after normalisation
  TokenIds added_ids;                   // added tokens by content
  std::vector<int32_t> prefix, suffix;  // put around a text when special tokens are asked for
  std::vector<Token> tokens;            // by id
  std::string bytes;

  std::string_view bytes_of(int32_t id, bool skip_special) const;
};

struct Tokenizer::Impl : TokenizerData {};

}  // namespace asap
