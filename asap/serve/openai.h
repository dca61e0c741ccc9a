// POST /v1/completions and /v1/chat/completions: joins HTTP, the chat template, the tokenizer and
// the engine. The life of a request:
//
//   body -> parse_completion or parse_chat -> tokenize_prompts -> Engine::submit -> one event per
//   token -> reply or stream
//
// The status line waits for the first token, so every failure before it has its own status.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "asap/chat/chat_template.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/engine.h"
#include "asap/serve/http.h"
#include "asap/serve/metrics.h"

namespace asap {

struct OpenAiOptions {
  std::string model;          // what "model" of a request must say
  Duration queue_timeout{0};  // of requests that bring none; 0: none
  bool log_requests = false;  // a line for each that ends
};

// What all requests share. Engine and tokenizer outlive the server.
class OpenAi {
 public:
  // `chat_in`: the model's template, or why it has none.
  OpenAi(Engine& engine_in, const Tokenizer& tokenizer_in, OpenAiOptions options_in,
         Result<ChatTemplate> chat_in);

  // 64 random bits: for ids, and for the seeds of requests that bring none.
  uint64_t draw();

  Engine& engine;
  const Tokenizer& tokenizer;
  const OpenAiOptions options;
  const Result<ChatTemplate> chat;
  Metrics metrics;

 private:
  const uint64_t base_;
  std::atomic<uint64_t> draws_{0};
};

// Null, or the refusal of a request whose body is large and still on its way, where there is no
// room for even the smallest: under overload, bodies that nobody wants are not read.
std::optional<HttpReply> refuse_by_head(OpenAi& openai, const HttpRequest& head);

HttpHandler completions_handler(std::shared_ptr<OpenAi> openai);
HttpHandler chat_handler(std::shared_ptr<OpenAi> openai);

}  // namespace asap
