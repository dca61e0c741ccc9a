// HttpFront: the HTTP face of an instance. Wires an engine, a tokenizer and a chat template to the
// paths that clients know:
//
//   POST /v1/completions /v1/chat/completions /tokenize /detokenize   GET /v1/models
//   /v1/models/NAME /load /get_loads GET /health /liveness /ping   /ready /readiness /health/ready
//   /metrics   /version GET /v1/fault_tolerance/status /admin/peers   POST /admin/drain
//   /admin/resume POST /start_profile /stop_profile
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "asap/base/result.h"
#include "asap/chat/chat_template.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/engine.h"
#include "asap/serve/auth.h"
#include "asap/serve/http.h"

namespace asap {

struct ServeOptions : HttpOptions {
  std::string served_model_name;  // what "model" of a request must say; not empty
  std::string model_root;         // where the model lies, as /v1/models shows it; "": the name
  Duration queue_timeout{0};      // of requests without X-Queue-Timeout-S; 0: none
  bool log_requests = false;      // a line for each that ends
  AuthKeys auth;
};

class HttpFront {
 public:
  // Serves until stop(). `engine` and `tokenizer` must outlive the front. The engine need not be
  // ready yet. Without a chat template, chats are refused with the error that stands in for it.
  // `bound`: from HttpServer::bind(options); null: done here.
  static Result<std::unique_ptr<HttpFront>> start(ServeOptions options, Engine& engine,
                                                  const Tokenizer& tokenizer,
                                                  Result<ChatTemplate> chat,
                                                  std::unique_ptr<HttpServer> bound = nullptr);
  uint16_t port() const { return server_->port(); }
  // Closes every connection and cancels what runs for it. Idempotent; the destructor calls it too.
  void stop() { server_->stop(); }

 private:
  explicit HttpFront(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}
  std::unique_ptr<HttpServer> server_;
};

}  // namespace asap
