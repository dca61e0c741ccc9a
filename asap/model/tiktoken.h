// tiktoken.model: the vocabulary of models that hold no tokenizer.json (Kimi), one token a line:
// its bytes in base64, a space, its id.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"

namespace asap {

// The bytes of every token, by id. Ids are whole and without a gap, and every single byte is a
// token. Errors: invalid, with the line.
Result<std::vector<std::string>> parse_tiktoken(std::string_view text);

}  // namespace asap
