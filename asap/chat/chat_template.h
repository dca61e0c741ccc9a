// ChatTemplate: turns a conversation into the prompt that a model was trained on.
//
// The template is the checkpoint's own (chat_template.jinja, chat_template.json or
// tokenizer_config.json), or a file of the user's, or a scheme that is built in for models that
// ship none. Thread-safe after load.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/chat/template.h"
#include "asap/chat/value.h"

namespace asap {

struct ChatInput {
  jinja::Value messages;  // a list of messages as clients send them
  jinja::Value tools;     // a list of tools, or none
  bool add_generation_prompt = true;
  jinja::Value variables;  // a dict of what else the template may use (chat_template_kwargs)
};

class ChatTemplate {
 public:
  // The template of DIR. Errors: not_found (the model has none), invalid (a file is malformed),
  // unsupported (a construct of the template, with its name and line).
  static Result<ChatTemplate> load(const std::string& directory);
  // The template in `file`, with the special tokens of DIR.
  static Result<ChatTemplate> load_file(const std::string& file, const std::string& directory);
  // From texts: `config` is that of tokenizer_config.json, or "". Fuzzed.
  static Result<ChatTemplate> parse(const std::string& source, const std::string& config);

  // The prompt. `now` is Unix time in seconds, for templates that show the date. Errors: invalid
  // (the conversation, with the place: "messages[2]"), unsupported.
  Result<std::string> render(const ChatInput& input, int64_t now) const;

  // Where the template comes from, for a log.
  const std::string& origin() const { return origin_; }

 private:
  // What a template wants of the messages. Found out by rendering a few when it is loaded.
  struct Wants {
    bool parts = false;           // content as a list of parts, not only as a text
    bool arguments_text = false;  // arguments of tool calls as JSON text, not as an object
    bool null_content = false;    // no content at all where a tool is called
  };

  ChatTemplate() = default;

  void find_out_wants();
  // The messages as the template wants them.
  Result<jinja::Value> prepared(const jinja::Value& messages) const;
  Result<jinja::Value> prepared_message(const jinja::Value& message, const std::string& path) const;
  Result<std::string> render_prepared(const ChatInput& input, int64_t now) const;
  const jinja::Template& chosen(bool with_tools) const;

  std::string origin_;
  bool deepseek_v32_ = false;               // the built-in scheme; no template then
  std::vector<jinja::Template> templates_;  // the default, then perhaps the one for tools
  jinja::Value special_tokens_;             // a dict: bos_token, eos_token, ...
  Wants wants_;
};

}  // namespace asap
