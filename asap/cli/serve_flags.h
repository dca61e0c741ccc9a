// The flags of asap serve, and what can be found wrong with them before the model is loaded.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "asap/chat/chat_template.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/config.h"
#include "asap/serve/front.h"

namespace asap {

struct ServeFlags {
  EngineConfig config;
  ServeOptions options;
  std::string trace_file;
  bool check_config = false;
  double shutdown_timeout_s = 30;
  std::string port_file;
  std::string chat_template;
  std::string api_key_file;
  double queue_timeout_s = 0;
  size_t max_body_mib = 16;
  size_t max_body_mib_total = 1024;
};

// Takes prompts apart and puts chats together; `chat` is an error where the model has no template.
struct ServeTexts {
  Tokenizer tokenizer;
  Result<ChatTemplate> chat;
};

void add_serve_flags(CLI::App& app, ServeFlags& flags);
// Checks everything but the port, the weights and the memory, and fills in what follows from other
// flags: the bundled model, keys of files, names, limits. serve and --check-config both begin so.
// Errors: as serve reports them.
Result<ServeTexts> check_serve(ServeFlags& flags);

}  // namespace asap
