#include "asap/serve/openai_request.h"

#include <algorithm>
#include <charconv>

#include "asap/chat/json.h"
#include "asap/serve/json_fields.h"

namespace asap {
namespace {

using Json = nlohmann::json;

// ---- prompt

tl::expected<Prompt, ApiError> parse_one_prompt(const Json& value, std::string_view name,
                                                int vocab) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty()) return bad("prompt", "{} is empty: at least one token is needed", name);
    return Prompt(text);
  }
  if (value.is_array()) {
    if (value.empty()) return bad("prompt", "{} is empty: at least one token is needed", name);
    auto ids = parse_ids(value, "prompt", name, vocab);
    if (!ids) return tl::unexpected(std::move(ids).error());
    return Prompt(*std::move(ids));
  }
  return bad("prompt", "{} is {}: expected a string or an array of token ids", name,
             describe(value));
}

// string | [string, ...] | [int, ...] | [[int, ...], ...]
Checked parse_prompts(const Fields& fields, int vocab, std::vector<Prompt>& out) {
  const Json* value = fields.find("prompt");
  if (!value) return bad("prompt", "prompt is missing: expected a string or an array of token ids");
  const bool several = value->is_array() && !value->empty() && !value->front().is_number();
  if (!several) {
    auto prompt = parse_one_prompt(*value, "prompt", vocab);
    if (!prompt) return tl::unexpected(std::move(prompt).error());
    out.push_back(*std::move(prompt));
    return {};
  }
  if (value->size() > kMaxChoices) {
    return bad("prompt", "prompt holds {} prompts: at most {} per request", value->size(),
               kMaxChoices);
  }
  for (const Json& item : *value) {
    auto prompt = parse_one_prompt(item, fmt::format("prompt[{}]", out.size()), vocab);
    if (!prompt) return tl::unexpected(std::move(prompt).error());
    out.push_back(*std::move(prompt));
  }
  return {};
}

// ---- the other fields

// What a client wants the answer's text to conform to. Ignoring it would hand out text that the
// client then fails to read. OpenAI's name, then those of vLLM.
Checked check_format(const Fields& fields) {
  const Json* format = fields.find("response_format");
  if (format && !(format->is_object() && format->value("type", Json()) == "text")) {
    return fields.wrong("response_format", *format,
                        "{\"type\": \"text\"}: other formats are not enforced");
  }
  for (const std::string_view name : {"structured_outputs", "guided_json", "guided_regex",
                                      "guided_choice", "guided_grammar", "structural_tag"}) {
    if (const Json* value = fields.find(name)) {
      return fields.wrong(name, *value, "none: formats are not enforced");
    }
  }
  return {};
}

// Fields that would change the answer's meaning and are served with one value only.
Checked check_unsupported(const Fields& fields) {
  bool echo = false;
  ASAP_CHECKED(fields.boolean("echo", echo));
  if (echo) return bad("echo", "echo is true: only false is supported");
  if (const Json* suffix = fields.find("suffix"); suffix && *suffix != "") {
    return fields.wrong("suffix", *suffix, "none: it is not supported");
  }
  return check_format(fields);
}

Checked parse_stop(const Fields& fields, std::vector<std::string>& out) {
  const Json* value = fields.find("stop");
  if (!value) return {};
  const auto expected =
      fmt::format("a string or up to {} strings, each of 1 to {} bytes", kMaxStops, kMaxStopBytes);
  if (value->is_string()) {
    out.push_back(value->get<std::string>());
  } else if (value->is_array() && value->size() <= kMaxStops) {
    for (const Json& item : *value) {
      if (!item.is_string()) return fields.wrong("stop", item, expected);
      out.push_back(item.get<std::string>());
    }
  } else {
    return fields.wrong("stop", *value, expected);
  }
  for (const std::string& stop : out) {
    if (stop.empty() || stop.size() > kMaxStopBytes) return fields.wrong("stop", stop, expected);
  }
  return {};
}

// How many answers to each prompt. best_of: so many would be made and the best n kept.
Checked parse_n(const Fields& fields, int& out) {
  int64_t n = 1;
  ASAP_CHECKED(fields.integer("n", 1, kMaxChoices, n));
  int64_t best_of = n;
  ASAP_CHECKED(fields.integer("best_of", 1, kMaxChoices, best_of));
  if (best_of != n) {
    return bad("best_of", "best_of is {}: expected n ({}), as all answers are returned", best_of,
               n);
  }
  out = static_cast<int>(n);
  return {};
}

// max_completion_tokens is the newer name of the same thing, and wins, as with OpenAI and vLLM.
Checked parse_length(const Fields& fields, int max_model_len, CompletionRequest& request) {
  SamplingParams& out = request.sampling;
  int64_t max_tokens = out.max_tokens;
  for (const std::string_view name : {"max_tokens", "max_completion_tokens"}) {
    ASAP_CHECKED(fields.integer(name, 1, max_model_len, max_tokens));
    if (fields.find(name)) request.length_field = name;
  }
  out.max_tokens = static_cast<int>(max_tokens);
  ASAP_CHECKED(fields.boolean("ignore_eos", out.ignore_eos));
  int64_t min_tokens = 0;
  ASAP_CHECKED(fields.integer("min_tokens", 0, max_tokens, min_tokens));
  out.min_tokens = static_cast<int>(min_tokens);
  return {};
}

// {"token id": bias, ...}
Checked parse_logit_bias(const Fields& fields, int vocab, SamplingParams& out) {
  const Json* value = fields.find("logit_bias");
  if (!value) return {};
  if (!value->is_object() || value->size() > kMaxBiases) {
    return fields.wrong("logit_bias", *value,
                        fmt::format("an object of at most {} token ids", kMaxBiases));
  }
  const Fields biases(*value, "logit_bias.");
  for (const auto& [key, bias] : value->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab) {
      return bad("logit_bias", "logit_bias has the key {}: expected a token id from 0 to {}",
                 describe(key), vocab - 1);
    }
    if (!bias.is_number()) return biases.wrong(key, bias, "a number from -100 to 100");
    double number = 0;
    ASAP_CHECKED(biases.number(key, -100, 100, number));
    out.logit_bias.emplace_back(id, static_cast<float>(number));
  }
  return {};
}

Checked parse_sampling(const Fields& fields, int vocab, CompletionRequest& out) {
  SamplingParams& p = out.sampling;
  ASAP_CHECKED(fields.number("temperature", 0, kLargestNumber, p.temperature));
  ASAP_CHECKED(fields.number("top_p", 0, 1, p.top_p));
  if (p.top_p == 0) return bad("top_p", "top_p is 0: expected a number above 0 and up to 1");
  ASAP_CHECKED(fields.number("min_p", 0, 1, p.min_p));
  ASAP_CHECKED(fields.number("presence_penalty", -2, 2, p.presence_penalty));
  ASAP_CHECKED(fields.number("frequency_penalty", -2, 2, p.frequency_penalty));
  ASAP_CHECKED(fields.number("repetition_penalty", 0.01, 100, p.repetition_penalty));
  int64_t top_k = 0;  // -1 is vLLM's "all"
  ASAP_CHECKED(fields.integer("top_k", -1, INT32_MAX, top_k));
  p.top_k = static_cast<int>(std::max<int64_t>(0, top_k));
  ASAP_CHECKED(parse_logit_bias(fields, vocab, p));
  ASAP_CHECKED(fields.ids("stop_token_ids", vocab, kMaxStopIds, p.stop_token_ids));
  int64_t seed = 0;
  ASAP_CHECKED(fields.integer("seed", INT64_MIN, INT64_MAX, seed));
  out.has_seed = fields.find("seed") != nullptr;
  out.sampling.seed = static_cast<uint64_t>(seed);
  return {};
}

Checked parse_logprobs(const Fields& fields, SamplingParams& out) {
  int64_t logprobs = -1;
  ASAP_CHECKED(fields.integer("logprobs", 0, kMaxLogprobs, logprobs));
  out.logprobs = static_cast<int>(logprobs);
  return {};
}

// In chat a switch, and the number of alternatives beside it.
Checked parse_chat_logprobs(const Fields& fields, SamplingParams& out) {
  bool wanted = false;
  ASAP_CHECKED(fields.boolean("logprobs", wanted));
  int64_t alternatives = 0;
  ASAP_CHECKED(fields.integer("top_logprobs", 0, kMaxLogprobs, alternatives));
  if (alternatives > 0 && !wanted) {
    return bad("top_logprobs", "top_logprobs is {}: expected with \"logprobs\": true only",
               alternatives);
  }
  out.logprobs = wanted ? static_cast<int>(alternatives) : -1;
  return {};
}

Checked parse_stream(const Fields& fields, CompletionRequest& out) {
  ASAP_CHECKED(fields.boolean("stream", out.stream));
  const Json* options = fields.find("stream_options");
  if (!options) return {};
  if (!options->is_object()) return fields.wrong("stream_options", *options, "an object");
  ASAP_CHECKED(Fields(*options, "stream_options.").boolean("include_usage", out.include_usage));
  return {};
}

// The fields that completions and chats share, but for the lengths.
Checked parse_common(const Fields& fields, const RequestLimits& limits, CompletionRequest& out) {
  ASAP_CHECKED(parse_n(fields, out.n));
  ASAP_CHECKED(parse_sampling(fields, limits.vocab, out));
  ASAP_CHECKED(parse_stop(fields, out.stop));
  ASAP_CHECKED(parse_stream(fields, out));
  ASAP_CHECKED(fields.boolean("return_token_ids", out.return_token_ids));
  ASAP_CHECKED(fields.boolean("return_timing", out.return_timing));
  ASAP_CHECKED(fields.boolean("add_special_tokens", out.add_special_tokens));
  ASAP_CHECKED(fields.boolean("skip_special_tokens", out.skip_special_tokens));
  ASAP_CHECKED(fields.boolean("include_stop_str_in_output", out.include_stop));
  int64_t priority = 0;
  ASAP_CHECKED(fields.integer("priority", -kMaxPriority, kMaxPriority, priority));
  out.priority = static_cast<int>(priority);
  ASAP_CHECKED(fields.string("request_id", out.request_id));
  return {};
}

// ---- chat

// What would change the answer and is not done. Clients may send the value that changes nothing.
Checked check_unsupported_in_chat(const Fields& fields) {
  for (const std::string_view name : {"functions", "function_call", "chat_template"}) {
    if (const Json* value = fields.find(name)) {
      return fields.wrong(name, *value, "none: it is not supported");
    }
  }
  bool resume = false;
  ASAP_CHECKED(fields.boolean("continue_final_message", resume));
  if (resume) return bad("continue_final_message", "only false is supported");
  if (const Json* choice = fields.find("tool_choice")) {
    if (*choice != "auto" && *choice != "none") {
      return fields.wrong("tool_choice", *choice, "\"auto\" or \"none\": calls are not enforced");
    }
  }
  return {};
}

// Whether an assistant's message says something without content.
bool speaks_otherwise(const Fields& message) {
  const Json* calls = message.find("tool_calls");
  if (calls && !calls->empty()) return true;
  constexpr std::string_view kOthers[] = {"function_call", "refusal", "reasoning_content",
                                          "reasoning"};
  return std::any_of(std::begin(kOthers), std::end(kOthers),
                     [&](std::string_view name) { return message.find(name) != nullptr; });
}

// The rules of OpenAI's API. A template drops or misreads what it does not know, without a word.
// What is in parts, calls and the like is checked where they are prepared for the template.
Checked check_messages(const Json& messages) {
  static constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                                "assistant", "tool",      "function"};
  static const std::string kRoleNames = fmt::format("\"{}\"", fmt::join(kRoles, "\", \""));
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if (!messages[i].is_object()) {
      return bad(path, "{} is {}: expected an object with a role and content", path,
                 describe(messages[i]));
    }
    const Fields message(messages[i], path + ".");
    const Json* role = message.find("role");
    if (!role)
      return bad(path + ".role", "{}.role is missing: expected one of {}", path, kRoleNames);
    if (std::find(std::begin(kRoles), std::end(kRoles), *role) == std::end(kRoles)) {
      return message.wrong("role", *role, kRoleNames);
    }
    const Json* content = message.find("content");
    if (content && !content->is_string() && !content->is_array()) {
      return message.wrong("content", *content, "a string or an array of parts");
    }
    const bool assistant = *role == "assistant";
    if (!content && !(assistant && speaks_otherwise(message))) {
      return bad(path + ".content",
                 "{}.content is missing: expected a string or an array of parts{}", path,
                 assistant ? ", or tool_calls in its place" : "");
    }
  }
  return {};
}

// A field of the body as the template language sees it, or undefined. The types that `fields` has
// checked hold for it too.
const jinja::Value& value_of(const jinja::Value& body, std::string_view name) {
  static const jinja::Value kAbsent;
  const jinja::Value* found = body.dict().find(name);
  return found && !found->is_none() ? *found : kAbsent;
}

// chat_template_kwargs, and the fields that templates know by their own names.
tl::expected<jinja::Value, ApiError> chat_variables(const Fields& fields,
                                                    const jinja::Value& body) {
  jinja::DictBuilder variables;
  for (const std::string_view name : {"documents", "reasoning_effort"}) {
    if (const jinja::Value& value = value_of(body, name); !value.is_undefined()) {
      variables.set(std::string(name), value);
    }
  }
  if (const Json* more = fields.find("chat_template_kwargs")) {
    if (!more->is_object()) return fields.wrong("chat_template_kwargs", *more, "an object");
    for (const auto& [name, value] : value_of(body, "chat_template_kwargs").dict().entries) {
      if (name.as_string() == "messages" || name.as_string() == "tools") {
        return bad("chat_template_kwargs", "chat_template_kwargs.{} is a field of its own",
                   name.as_string());
      }
      variables.set(name, value);
    }
  }
  return variables.finish();
}

tl::expected<std::string, ApiError> render_chat(const Fields& fields, std::string_view body,
                                                const ChatTemplate& chat, int64_t now) {
  ChatInput input;
  const Json* messages = fields.find("messages");
  if (!messages) return bad("messages", "messages is missing: expected an array of messages");
  if (!messages->is_array()) return fields.wrong("messages", *messages, "an array of messages");
  if (messages->empty()) {
    return bad("messages", "messages is empty: expected an array of at least one message");
  }
  ASAP_CHECKED(check_messages(*messages));
  const Json* tools = fields.find("tools");
  if (tools) {
    const auto is_object = [](const Json& tool) { return tool.is_object(); };
    if (!tools->is_array() || !std::all_of(tools->begin(), tools->end(), is_object)) {
      return fields.wrong("tools", *tools, "an array of objects");
    }
  }
  ASAP_CHECKED(fields.boolean("add_generation_prompt", input.add_generation_prompt));
  // Read once more: templates show the order of keys and the exact numbers.
  const auto values = jinja::parse_json(body);
  if (!values) return bad("", "{}", values.error().message);
  auto variables = chat_variables(fields, *values);
  if (!variables) return tl::unexpected(std::move(variables).error());
  input.messages = value_of(*values, "messages");
  const Json* choice = fields.find("tool_choice");
  if (!choice || *choice != "none") input.tools = value_of(*values, "tools");
  input.variables = *std::move(variables);
  auto text = chat.render(input, now);
  if (!text) {
    return tl::unexpected(
        ApiError{http_status(text.error().code), text.error().message, "messages"});
  }
  if (text->empty()) return bad("messages", "the chat template makes an empty prompt of them");
  return *std::move(text);
}

}  // namespace

tl::expected<CompletionRequest, ApiError> parse_completion(std::string_view body,
                                                           const RequestLimits& limits) {
  auto object = parse_object(body);
  if (!object) return tl::unexpected(std::move(object).error());
  const Fields fields(*object);
  CompletionRequest request;
  ASAP_CHECKED(check_model(fields, limits.model));
  ASAP_CHECKED(check_unsupported(fields));
  ASAP_CHECKED(parse_prompts(fields, limits.vocab, request.prompts));
  ASAP_CHECKED(parse_length(fields, limits.max_model_len, request));
  ASAP_CHECKED(parse_logprobs(fields, request.sampling));
  ASAP_CHECKED(parse_common(fields, limits, request));
  if (request.prompts.size() * static_cast<size_t>(request.n) > kMaxChoices) {
    return bad("n", "n is {} and there are {} prompts: at most {} answers per request", request.n,
               request.prompts.size(), kMaxChoices);
  }
  return request;
}

tl::expected<CompletionRequest, ApiError> parse_chat(std::string_view body,
                                                     const RequestLimits& limits,
                                                     const ChatTemplate& chat, int64_t now) {
  auto object = parse_object(body);
  if (!object) return tl::unexpected(std::move(object).error());
  const Fields fields(*object);
  CompletionRequest request;
  ASAP_CHECKED(check_model(fields, limits.model));
  ASAP_CHECKED(check_unsupported(fields));
  ASAP_CHECKED(check_unsupported_in_chat(fields));
  request.fill_context = !fields.find("max_tokens") && !fields.find("max_completion_tokens");
  if (request.fill_context) request.sampling.max_tokens = limits.max_model_len;
  ASAP_CHECKED(parse_length(fields, limits.max_model_len, request));
  ASAP_CHECKED(parse_chat_logprobs(fields, request.sampling));
  request.add_special_tokens = false;  // the template writes them
  ASAP_CHECKED(parse_common(fields, limits, request));
  request.prompt_field = "messages";
  auto prompt = render_chat(fields, body, chat, now);
  if (!prompt) return tl::unexpected(std::move(prompt).error());
  request.prompts.emplace_back(*std::move(prompt));
  return request;
}

namespace {

// A prompt of `tokens`, or, if they were not counted, of at least so many.
Checked check_length(const CompletionRequest& request, bool counted, size_t tokens, int64_t limit) {
  if (tokens < static_cast<size_t>(limit)) return {};
  return bad(request.prompt_field,
             "the prompt has {}{} tokens: at most {} leave room for one more (max_model_len {})",
             counted ? "" : "at least ", tokens, limit - 1, limit);
}

// A text of megabytes takes seconds; where even the longest tokens would be too many of them, it
// is refused without.
tl::expected<std::vector<int32_t>, ApiError> encode(const CompletionRequest& request,
                                                    const std::string& text, int64_t limit,
                                                    const Tokenizer& tokenizer) {
  const size_t most = tokenizer.most_bytes_per_id();
  if (most > 0) ASAP_CHECKED(check_length(request, false, text.size() / most, limit));
  return tokenizer.encode(text, request.add_special_tokens);
}

}  // namespace

tl::expected<std::vector<std::vector<int32_t>>, ApiError> tokenize_prompts(
    CompletionRequest& request, const RequestLimits& limits, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> prompts;
  const int64_t limit = limits.max_model_len;
  for (Prompt& prompt : request.prompts) {
    if (auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      prompts.push_back(std::move(*ids));
    } else {
      auto encoded = encode(request, std::get<std::string>(prompt), limit, tokenizer);
      if (!encoded) return tl::unexpected(std::move(encoded).error());
      prompts.push_back(*std::move(encoded));
    }
    const auto tokens = static_cast<int64_t>(prompts.back().size());
    if (tokens == 0) {
      return bad(request.prompt_field, "the prompt is empty: at least one token is needed");
    }
    ASAP_CHECKED(check_length(request, true, prompts.back().size(), limit));
    if (request.fill_context) request.sampling.max_tokens = static_cast<int>(limit - tokens);
    if (request.sampling.min_tokens > request.sampling.max_tokens) {
      return bad("min_tokens", "min_tokens is {}: the prompt's {} tokens leave room for {}",
                 request.sampling.min_tokens, tokens, request.sampling.max_tokens);
    }
    if (tokens + request.sampling.max_tokens > limit) {
      return bad(request.length_field,
                 "the prompt's {} tokens and {} {} make {}: the limit is {} "
                 "(max_model_len)",
                 tokens, request.length_field, request.sampling.max_tokens,
                 tokens + request.sampling.max_tokens, limit);
    }
  }
  return prompts;
}

}  // namespace asap
