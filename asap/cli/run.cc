// asap run: one request, without HTTP.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "asap/chat/chat_template.h"
#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/validators.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/make_engine.h"
#include "asap/runtime/run_requests.h"

namespace asap {

namespace {

struct RunFlags {
  EngineConfig config;
  std::string trace_file;
  bool check_config = false;
  std::string tokens;
  std::string prompt;
  bool chat = false;
  std::string chat_template;
  int max_tokens = 16;
  double temperature = 0;
  bool in_process = false;
  bool ignore_eos = false;
  bool json = false;
  std::string dump_logits;
};

// "1,2,3" to ids.
Result<std::vector<int32_t>> parse_tokens(const std::string& text) {
  std::vector<int32_t> out;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    size_t used = 0;
    int64_t id = -1;
    try {
      id = std::stoll(part, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (part.empty() || used != part.size() || id < 0 || id > INT32_MAX) {
      return fail(Code::invalid, "--tokens: \"{}\" is not a token id; write ids as 1,2,3", part);
    }
    out.push_back(static_cast<int32_t>(id));
    at = comma + 1;
  }
  return out;
}

Status dump_logits(const std::string& path, const std::vector<float>& logits) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(logits.data()),
             static_cast<std::streamsize>(logits.size() * sizeof(float)));
  file.flush();
  if (!file) return fail(Code::invalid, "cannot write {}", path);
  return {};
}

// The prompt as a user's one message, in the words of the chat template.
Result<std::string> chat_prompt(const RunFlags& flags) {
  ASAP_ASSIGN(const ChatTemplate chat,
              flags.chat_template.empty()
                  ? ChatTemplate::load(flags.config.model)
                  : ChatTemplate::load_file(flags.chat_template, flags.config.model));
  jinja::DictBuilder message;
  message.set("role", jinja::Value::text(std::string("user")));
  message.set("content", jinja::Value::text(flags.prompt));
  ChatInput input;
  input.messages = jinja::make_list({message.finish()});
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return chat.render(input, std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

// What could not be served by any model.
Status check_numbers(const RunFlags& flags) {
  if (flags.max_tokens < 1) {
    return fail(Code::invalid, "--max-tokens is {}; it must be at least 1", flags.max_tokens);
  }
  if (!(flags.temperature >= 0) || !std::isfinite(flags.temperature)) {
    return fail(Code::invalid, "--temperature is {}; it must be a number of at least 0 (0: greedy)",
                flags.temperature);
  }
  return {};
}

// What this model has no room or no token for, before it is loaded.
Status check_prompt(const RunFlags& flags, const std::vector<int32_t>& prompt) {
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(flags.config)));
  const int limit =
      flags.config.max_model_len > 0 ? flags.config.max_model_len : spec.max_positions;
  for (const int32_t id : prompt) {
    if (id < spec.vocab) continue;
    return fail(Code::invalid, "--tokens: {} is no token of this model; ids are from 0 to {}", id,
                spec.vocab - 1);
  }
  const auto tokens = static_cast<int64_t>(prompt.size());
  if (tokens >= limit) {
    return fail(Code::invalid,
                "the prompt has {} tokens; at most {} leave room for one more (--max-model-len {})",
                tokens, limit - 1, limit);
  }
  if (tokens + flags.max_tokens <= limit) return {};
  return fail(
      Code::invalid,
      "--max-tokens is {}; behind the prompt's {} there is room for {} (--max-model-len {})",
      flags.max_tokens, tokens, limit - tokens, limit);
}

// A directory without tokenizer can still run token ids.
Result<std::vector<int32_t>> prompt_ids(const RunFlags& flags, const Result<Tokenizer>& tokenizer) {
  if (!flags.tokens.empty()) return parse_tokens(flags.tokens);
  if (!tokenizer) return tl::unexpected<Error>(tokenizer.error());
  if (!flags.chat) return tokenizer->encode(flags.prompt, true);
  ASAP_ASSIGN(const std::string prompt, chat_prompt(flags));
  return tokenizer->encode(prompt, false);  // the template writes the special tokens
}

Result<Answer> answer_of(RunFlags& flags, const Platform& platform,
                         const Result<Tokenizer>& tokenizer) {
  EngineRequest request;
  request.id = "run";
  ASAP_ASSIGN(request.prompt, prompt_ids(flags, tokenizer));
  ASAP_TRY(check_prompt(flags, request.prompt));
  request.sampling.max_tokens = flags.max_tokens;
  request.sampling.temperature = flags.temperature;
  request.sampling.seed = flags.config.seed;
  request.sampling.ignore_eos = flags.ignore_eos;
  request.sampling.want_logits = !flags.dump_logits.empty();
  flags.config.return_logits = request.sampling.want_logits;
  flags.config.trace = !flags.trace_file.empty();
  EngineOptions options;
  options.in_process = flags.in_process;
  options.trace_file = flags.trace_file;
  options.interrupted = &interrupted;
  ASAP_ASSIGN(const auto engine, make_engine(flags.config, platform, options));
  std::vector<EngineRequest> requests;
  requests.push_back(std::move(request));
  ASAP_ASSIGN(auto answers, run_requests(*engine, std::move(requests), &interrupted));
  ASAP_TRY(engine->close());
  return std::move(answers.front());
}

void print_answer(const RunFlags& flags, const Answer& answer, const std::string& text) {
  if (flags.json) {
    const nlohmann::json out = {
        {"token_ids", answer.tokens}, {"text", text}, {"ttft_ms", answer.ttft.to_millis()}};
    std::printf("%s\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return;
  }
  std::string ids;
  for (const int32_t id : answer.tokens) ids += fmt::format("{}{}", ids.empty() ? "" : ",", id);
  std::printf("tokens: %s\n", ids.c_str());
  if (!text.empty()) std::printf("text: %s\n", text.c_str());
  std::printf("ttft: %.2f ms\n", answer.ttft.to_millis());
}

int run(RunFlags& flags, const Platform& platform) {
  if (const Status numbers = check_numbers(flags); !numbers) return report(numbers.error());
  if (flags.check_config) return print_config(flags.config);
  if (flags.tokens.empty() == flags.prompt.empty()) {
    return report({Code::invalid, "give either --tokens 1,2,3 or --prompt \"text\""});
  }
  flags.chat = flags.chat || !flags.chat_template.empty();
  if (flags.chat && flags.prompt.empty()) {
    return report({Code::invalid, "--chat needs --prompt \"text\""});
  }
  if (const Status status = check_model(flags.config); !status) return report(status.error());
  if (const Status status = check_context(flags.config); !status) return report(status.error());
  catch_interrupts();
  const Result<Tokenizer> tokenizer = load_tokenizer(flags.config);
  const Result<Answer> answer = answer_of(flags, platform, tokenizer);
  if (!answer) return report(answer.error());
  if (!flags.dump_logits.empty()) {
    if (const Status status = dump_logits(flags.dump_logits, answer->logits); !status) {
      return report(status.error());
    }
  }
  print_answer(flags, *answer, tokenizer ? tokenizer->decode(answer->tokens, true) : "");
  return 0;
}

}  // namespace

std::function<int()> add_run(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<RunFlags>();
  add_engine_flags(app, flags->config, flags->trace_file, flags->check_config);
  app.add_option("--tokens", flags->tokens, "Prompt as token ids: 1,2,3");
  app.add_option("--prompt", flags->prompt, "Prompt as text");
  app.add_flag("--chat", flags->chat, "The prompt is a user's message: through the chat template");
  app.add_option("--chat-template", flags->chat_template,
                 "File with the chat template (Jinja); implies --chat")
      ->check(readable_file());
  app.add_option("--max-tokens", flags->max_tokens, "Tokens to generate")->capture_default_str();
  app.add_option("--temperature", flags->temperature, "0: greedy")->capture_default_str();
  app.add_flag("--in-process", flags->in_process, "All devices in this process, no workers");
  app.add_flag("--ignore-eos", flags->ignore_eos, "Go on after the end-of-text token");
  app.add_flag("--json", flags->json, "Print one JSON object: token_ids, text, ttft_ms");
  app.add_option("--dump-logits", flags->dump_logits,
                 "Write the last prompt position's logits, little-endian float32, to this file")
      ->check(writable_file());
  return [flags, &platform] { return run(*flags, platform); };
}

}  // namespace asap
