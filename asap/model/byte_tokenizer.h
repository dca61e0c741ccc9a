// A tokenizer for models that come without one (--load-format dummy): token i < 256 is the byte i.
// Higher ids, which such a model generates as well, stand for no text.
#pragma once

#include "asap/model/tokenizer.h"

namespace asap {

Tokenizer byte_tokenizer();

}  // namespace asap
