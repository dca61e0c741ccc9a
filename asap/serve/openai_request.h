// POST /v1/completions and /v1/chat/completions: from the body's bytes to a checked request. A chat
// is a completion of the text that the model's template makes of the messages.
//
// Everything here is a pure function of the body and the limits. Unknown fields are ignored, as
// every client sends some; known ones of the wrong type or range are refused with the field's name,
// what came and what is expected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <variant>
#include <vector>

#include "asap/chat/chat_template.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/engine.h"
#include "asap/serve/http_error.h"

namespace asap {

struct RequestLimits {
  std::string model;      // the served name
  int max_model_len = 0;  // prompt + completion, in tokens
  int vocab = 0;          // ids are in [0, vocab)
};

// One prompt: a text, or token ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::vector<Prompt> prompts;  // at least one; each becomes n choices
  int n = 1;
  SamplingParams sampling;  // sampling.seed is valid only if has_seed
  bool has_seed = false;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool return_timing = false;  // where the time to the first token went; ours, not OpenAI's
  bool add_special_tokens = true;
  bool fill_context = false;  // as many tokens as the model has room for; max_tokens is not used
  std::string_view prompt_field = "prompt";      // what errors about the prompt name
  std::string_view length_field = "max_tokens";  // ... and about the length of the answer
  std::vector<std::string> stop;                 // the text ends before the first of these
  bool include_stop = false;                     // ... or behind it
  bool skip_special_tokens = true;               // in the text
  int priority = 0;                              // as in vLLM: lower starts earlier
  std::string request_id;                        // the client's own; ""
};

inline constexpr size_t kMaxChoices = 256;  // prompts times n
inline constexpr size_t kMaxBiases = 300;
inline constexpr size_t kMaxStopIds = 64;
inline constexpr int kMaxPriority = 1000;
inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxStops = 16;       // strings
inline constexpr int kMaxStopBytes = 256;  // of one string

// Never throws. All errors are 400, but 404 for a model that is not served.
tl::expected<CompletionRequest, ApiError> parse_completion(std::string_view body,
                                                           const RequestLimits& limits);

// The same of a chat: its one prompt is what `chat` renders at the Unix time `now`, in seconds.
tl::expected<CompletionRequest, ApiError> parse_chat(std::string_view body,
                                                     const RequestLimits& limits,
                                                     const ChatTemplate& chat, int64_t now);

// Turns texts into ids and checks the lengths: each prompt with max_tokens must fit the model.
tl::expected<std::vector<std::vector<int32_t>>, ApiError> tokenize_prompts(
    CompletionRequest& request, const RequestLimits& limits, const Tokenizer& tokenizer);

}  // namespace asap
