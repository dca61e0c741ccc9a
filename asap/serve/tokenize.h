// POST /tokenize and /detokenize, as vLLM has them: load generators make prompts of an exact length
// with them.
#pragma once

#include <memory>

#include "asap/serve/openai.h"

namespace asap {

HttpHandler tokenize_handler(std::shared_ptr<OpenAi> openai);
HttpHandler detokenize_handler(std::shared_ptr<OpenAi> openai);

}  // namespace asap
