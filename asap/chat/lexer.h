// Lexer of the template language: cuts a template into text and tokens.
//
// White space is treated as Hugging Face's environment does: trim_blocks (the newline after a tag
// goes) and lstrip_blocks (so does the indentation before one), with the signs - and + beside a
// tag, and one newline at the template's end dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/chat/value.h"

namespace asap::jinja {

enum class TokenKind : uint8_t {
  data,  // text to copy
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  number,  // an integer or a float
  op,      // an operator or a bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // data; the name; the operator
  Value value;       // of a string or number
  int line = 1;
};

// The last token is `end`. Errors: invalid (with the line), unsupported (a construct by name).
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace asap::jinja
