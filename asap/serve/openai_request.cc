#include "asap/serve/openai_request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "asap/base/check.h"
#include "asap/chat/json.h"

namespace asap {
namespace {

using Json = nlohmann::json;
using Checked = tl::expected<void, ApiError>;

template <typename... Args>
tl::unexpected<ApiError> bad(std::string_view param, fmt::format_string<Args...> format,
                             Args&&... args) {
  return tl::unexpected<ApiError>(
      ApiError{400, fmt::format(format, std::forward<Args>(args)...), std::string(param)});
}

// Returns the refusal of a Checked to the caller, or goes on.
#define TRY(expression)                                            \
  do {                                                             \
    if (auto checked = (expression); !checked) {                   \
      return tl::unexpected<ApiError>(std::move(checked).error()); \
    }                                                              \
  } while (false)

// What came, for a message: kind and, if short, value ("string \"abc\"", "array").
std::string describe(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_array() || value.is_object()) return value.type_name();
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 40) + "...";
  return fmt::format("{} {}", value.type_name(), text);
}

// Byte position of the first bracket nested deeper than the limit. The parser itself does not
// recurse, but what is built from its output and later destroyed or walked might.
std::optional<size_t> too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

tl::expected<Json, ApiError> parse_object(std::string_view body) {
  if (body.empty()) return bad("", "the request's body is empty: a JSON object is expected");
  if (const auto at = too_deep(body)) {
    return bad("", "invalid JSON at byte {}: nested deeper than {} levels", *at, kMaxJsonDepth);
  }
  Json object;
  try {
    object = Json::parse(body);
  } catch (const Json::parse_error& error) {
    // The library's message carries line, column and what it met; its own tag in front is of no use
    // to a client.
    const std::string_view what = error.what();
    const size_t tag = what.find("] ");
    return bad("", "invalid JSON at byte {}: {}", error.byte,
               tag == what.npos ? what : what.substr(tag + 2));
  } catch (const Json::exception& error) {
    return bad("", "invalid JSON: {}", error.what());  // a number beyond the range of doubles
  }
  if (!object.is_object()) {
    return bad("", "the request's body is {}: a JSON object is expected", describe(object));
  }
  return object;
}

// The fields of a request object. `null` counts as absent, as clients send it for "default".
class Fields {
 public:
  explicit Fields(const Json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(std::string_view name) const {
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  Checked boolean(std::string_view name, bool& out) const {
    const Json* value = find(name);
    if (!value) return {};
    if (!value->is_boolean()) return wrong(name, *value, "true or false");
    out = value->get<bool>();
    return {};
  }

  // Integers may also come as 16.0, as some languages have no other numbers.
  Checked integer(std::string_view name, int64_t low, int64_t high, int64_t& out) const {
    const Json* value = find(name);
    if (!value) return {};
    const auto number = integral(*value);
    if (!number || *number < low || *number > high) {
      return wrong(name, *value, fmt::format("an integer from {} to {}", low, high));
    }
    out = *number;
    return {};
  }

  Checked number(std::string_view name, double low, double high, double& out) const {
    const Json* value = find(name);
    if (!value) return {};
    const double got = value->is_number() ? value->get<double>() : low - 1;
    if (!(got >= low && got <= high)) {
      return wrong(name, *value,
                   high == std::numeric_limits<double>::max()
                       ? fmt::format("a number of at least {}", low)
                       : fmt::format("a number from {} to {}", low, high));
    }
    out = got;
    return {};
  }

  tl::unexpected<ApiError> wrong(std::string_view name, const Json& value,
                                 std::string_view expected) const {
    const std::string param = prefix_ + std::string(name);
    return bad(param, "{} is {}: expected {}", param, describe(value), expected);
  }

 private:
  static std::optional<int64_t> integral(const Json& value) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    if (value.is_number_integer()) return value.get<int64_t>();
    if (!value.is_number_float()) return std::nullopt;
    const double number = value.get<double>();
    // Above 2^53 a double no longer says which integer was meant.
    if (std::floor(number) != number || std::abs(number) > 0x1p53) return std::nullopt;
    return static_cast<int64_t>(number);
  }

  const Json& object_;
  std::string prefix_;
};

// ---- prompt

tl::expected<std::vector<int32_t>, ApiError> parse_ids(const Json& array, std::string_view name,
                                                       int vocab) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& value : array) {
    if (!value.is_number_integer() || value < 0 || value >= vocab) {
      return bad("prompt", "{}[{}] is {}: expected a token id from 0 to {}", name, ids.size(),
                 describe(value), vocab - 1);
    }
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

tl::expected<Prompt, ApiError> parse_one_prompt(const Json& value, std::string_view name,
                                                int vocab) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty()) return bad("prompt", "{} is empty: at least one token is needed", name);
    return Prompt(text);
  }
  if (value.is_array()) {
    if (value.empty()) return bad("prompt", "{} is empty: at least one token is needed", name);
    auto ids = parse_ids(value, name, vocab);
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
  if (value->size() > kMaxPrompts) {
    return bad("prompt", "prompt holds {} prompts: at most {} per request", value->size(),
               kMaxPrompts);
  }
  for (const Json& item : *value) {
    auto prompt = parse_one_prompt(item, fmt::format("prompt[{}]", out.size()), vocab);
    if (!prompt) return tl::unexpected(std::move(prompt).error());
    out.push_back(*std::move(prompt));
  }
  return {};
}

// ---- the other fields

Checked check_model(const Fields& fields, const std::string& served) {
  const Json* value = fields.find("model");
  if (!value) return {};
  if (!value->is_string()) return fields.wrong("model", *value, "a string");
  if (*value == served) return {};
  return tl::unexpected(ApiError{
      404,
      fmt::format("the model {} does not exist: this server has \"{}\"", value->dump(), served),
      "model"});
}

// Fields that would change the answer's meaning and are served with one value only.
Checked check_unsupported(const Fields& fields) {
  for (const std::string_view name : {"n", "best_of"}) {
    int64_t count = 1;
    TRY(fields.integer(name, 1, 1, count));
  }
  bool echo = false;
  TRY(fields.boolean("echo", echo));
  if (echo) return bad("echo", "echo is true: only false is supported");
  if (const Json* suffix = fields.find("suffix"); suffix && *suffix != "") {
    return fields.wrong("suffix", *suffix, "none: it is not supported");
  }
  return {};
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

// max_completion_tokens is the newer name of the same thing.
Checked parse_length(const Fields& fields, int max_model_len, SamplingParams& out) {
  int64_t max_tokens = out.max_tokens;
  TRY(fields.integer("max_completion_tokens", 1, max_model_len, max_tokens));
  TRY(fields.integer("max_tokens", 1, max_model_len, max_tokens));
  out.max_tokens = static_cast<int>(max_tokens);
  TRY(fields.boolean("ignore_eos", out.ignore_eos));
  int64_t min_tokens = 0;
  TRY(fields.integer("min_tokens", 0, max_tokens, min_tokens));
  // Load generators ask for exactly n tokens this way, with or without ignore_eos.
  if (min_tokens == max_tokens) out.ignore_eos = true;
  if (min_tokens > 0 && !out.ignore_eos) {
    return bad("min_tokens", "min_tokens is {}: expected 0 or max_tokens ({}), or ignore_eos",
               min_tokens, max_tokens);
  }
  return {};
}

Checked parse_sampling(const Fields& fields, CompletionRequest& out) {
  TRY(fields.number("temperature", 0, std::numeric_limits<double>::max(),
                    out.sampling.temperature));
  int64_t seed = 0;
  TRY(fields.integer("seed", INT64_MIN, INT64_MAX, seed));
  out.has_seed = fields.find("seed") != nullptr;
  out.sampling.seed = static_cast<uint64_t>(seed);
  return {};
}

Checked parse_logprobs(const Fields& fields, SamplingParams& out) {
  int64_t logprobs = -1;
  TRY(fields.integer("logprobs", 0, kMaxLogprobs, logprobs));
  out.logprobs = static_cast<int>(logprobs);
  return {};
}

// In chat a switch, and the number of alternatives beside it.
Checked parse_chat_logprobs(const Fields& fields, SamplingParams& out) {
  bool wanted = false;
  TRY(fields.boolean("logprobs", wanted));
  int64_t alternatives = 0;
  TRY(fields.integer("top_logprobs", 0, kMaxLogprobs, alternatives));
  if (alternatives > 0 && !wanted) {
    return bad("top_logprobs", "top_logprobs is {}: expected with \"logprobs\": true only",
               alternatives);
  }
  out.logprobs = wanted ? static_cast<int>(alternatives) : -1;
  return {};
}

Checked parse_stream(const Fields& fields, CompletionRequest& out) {
  TRY(fields.boolean("stream", out.stream));
  const Json* options = fields.find("stream_options");
  if (!options) return {};
  if (!options->is_object()) return fields.wrong("stream_options", *options, "an object");
  TRY(Fields(*options, "stream_options.").boolean("include_usage", out.include_usage));
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
  TRY(fields.boolean("continue_final_message", resume));
  if (resume) return bad("continue_final_message", "only false is supported");
  if (const Json* choice = fields.find("tool_choice")) {
    if (*choice != "auto" && *choice != "none") {
      return fields.wrong("tool_choice", *choice, "\"auto\" or \"none\": calls are not enforced");
    }
  }
  const Json* format = fields.find("response_format");
  if (format && !(format->is_object() && format->value("type", Json()) == "text")) {
    return fields.wrong("response_format", *format,
                        "{\"type\": \"text\"}: other formats are not enforced");
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
  if (!messages->is_array() || messages->empty()) {
    return fields.wrong("messages", *messages, "an array of at least one message");
  }
  const Json* tools = fields.find("tools");
  if (tools) {
    const auto is_object = [](const Json& tool) { return tool.is_object(); };
    if (!tools->is_array() || !std::all_of(tools->begin(), tools->end(), is_object)) {
      return fields.wrong("tools", *tools, "an array of objects");
    }
  }
  TRY(fields.boolean("add_generation_prompt", input.add_generation_prompt));
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
  TRY(check_model(fields, limits.model));
  TRY(check_unsupported(fields));
  TRY(parse_prompts(fields, limits.vocab, request.prompts));
  TRY(parse_length(fields, limits.max_model_len, request.sampling));
  TRY(parse_sampling(fields, request));
  TRY(parse_logprobs(fields, request.sampling));
  TRY(parse_stop(fields, request.stop));
  TRY(parse_stream(fields, request));
  TRY(fields.boolean("return_token_ids", request.return_token_ids));
  TRY(fields.boolean("return_timing", request.return_timing));
  TRY(fields.boolean("add_special_tokens", request.add_special_tokens));
  return request;
}

tl::expected<CompletionRequest, ApiError> parse_chat(std::string_view body,
                                                     const RequestLimits& limits,
                                                     const ChatTemplate& chat, int64_t now) {
  auto object = parse_object(body);
  if (!object) return tl::unexpected(std::move(object).error());
  const Fields fields(*object);
  CompletionRequest request;
  TRY(check_model(fields, limits.model));
  TRY(check_unsupported(fields));
  TRY(check_unsupported_in_chat(fields));
  request.fill_context = !fields.find("max_tokens") && !fields.find("max_completion_tokens");
  if (request.fill_context) request.sampling.max_tokens = limits.max_model_len;
  TRY(parse_length(fields, limits.max_model_len, request.sampling));
  TRY(parse_sampling(fields, request));
  TRY(parse_chat_logprobs(fields, request.sampling));
  TRY(parse_stop(fields, request.stop));
  TRY(parse_stream(fields, request));
  TRY(fields.boolean("return_token_ids", request.return_token_ids));
  TRY(fields.boolean("return_timing", request.return_timing));
  // The template writes the special tokens.
  request.add_special_tokens = false;
  TRY(fields.boolean("add_special_tokens", request.add_special_tokens));
  request.prompt_field = "messages";
  auto prompt = render_chat(fields, body, chat, now);
  if (!prompt) return tl::unexpected(std::move(prompt).error());
  request.prompts.emplace_back(*std::move(prompt));
  return request;
}

tl::expected<std::vector<std::vector<int32_t>>, ApiError> tokenize_prompts(
    CompletionRequest& request, const RequestLimits& limits, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> prompts;
  const int64_t limit = limits.max_model_len;
  for (Prompt& prompt : request.prompts) {
    if (auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      prompts.push_back(std::move(*ids));
    } else {
      prompts.push_back(
          tokenizer.encode(std::get<std::string>(prompt), request.add_special_tokens));
    }
    const auto tokens = static_cast<int64_t>(prompts.back().size());
    if (tokens == 0) {
      return bad(request.prompt_field, "the prompt is empty: at least one token is needed");
    }
    if (tokens >= limit) {
      return bad(request.prompt_field,
                 "the prompt has {} tokens: at most {} leave room for one more "
                 "(max_model_len {})",
                 tokens, limit - 1, limit);
    }
    if (request.fill_context) request.sampling.max_tokens = static_cast<int>(limit - tokens);
    if (tokens + request.sampling.max_tokens > limit) {
      return bad("max_tokens",
                 "the prompt's {} tokens and max_tokens {} make {}: the limit is {} "
                 "(max_model_len)",
                 tokens, request.sampling.max_tokens, tokens + request.sampling.max_tokens, limit);
    }
  }
  return prompts;
}

}  // namespace asap
