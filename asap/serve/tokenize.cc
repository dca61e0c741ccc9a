#include "asap/serve/tokenize.h"

#include <chrono>

#include "asap/serve/json_fields.h"
#include "asap/serve/openai_request.h"

namespace asap {
namespace {

using Json = nlohmann::json;
using Answer = tl::expected<Json, ApiError>;

// More would make a reply of many megabytes.
constexpr size_t kMostTokens = size_t{1} << 20;

HttpReply to_reply(const Answer& answer) {
  if (!answer) return error_reply(answer.error());
  HttpReply reply;
  reply.body = answer->dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

// A text, or the messages of a chat.
tl::expected<std::string, ApiError> text_of(const OpenAi& openai, const RequestLimits& limits,
                                            const Fields& fields, std::string_view body,
                                            bool& special) {
  if (fields.find("messages") == nullptr) {
    std::string text;
    ASAP_CHECKED(fields.string("prompt", text));
    if (fields.find("prompt") == nullptr) {
      return bad("prompt", "prompt is missing: expected a string, or messages");
    }
    ASAP_CHECKED(fields.boolean("add_special_tokens", special));
    return text;
  }
  if (!openai.chat) return bad("messages", "{}", openai.chat.error().message);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  auto chat = parse_chat(body, limits, *openai.chat,
                         std::chrono::duration_cast<std::chrono::seconds>(now).count());
  if (!chat) return tl::unexpected(std::move(chat).error());
  special = chat->add_special_tokens;
  return std::get<std::string>(chat->prompts.front());
}

Answer tokenize(const OpenAi& openai, std::string_view body) {
  auto object = parse_object(body);
  if (!object) return tl::unexpected(std::move(object).error());
  const Fields fields(*object);
  const RequestLimits limits{openai.options.model, openai.engine.max_model_len(),
                             openai.engine.vocab()};
  ASAP_CHECKED(check_model(fields, limits.model));
  bool special = true;
  bool strings = false;
  ASAP_CHECKED(fields.boolean("return_token_strs", strings));
  auto text = text_of(openai, limits, fields, body, special);
  if (!text) return tl::unexpected(std::move(text).error());
  const std::vector<int32_t> ids = openai.tokenizer.encode(*text, special);
  Json names;  // null, unless asked for
  for (size_t i = 0; strings && i < ids.size(); ++i) {
    names.push_back(openai.tokenizer.token_bytes(ids[i], false));
  }
  return Json{{"count", ids.size()},
              {"max_model_len", limits.max_model_len},
              {"tokens", ids},
              {"token_strs", std::move(names)}};
}

Answer detokenize(const OpenAi& openai, std::string_view body) {
  auto object = parse_object(body);
  if (!object) return tl::unexpected(std::move(object).error());
  const Fields fields(*object);
  ASAP_CHECKED(check_model(fields, openai.options.model));
  if (fields.find("tokens") == nullptr) {
    return bad("tokens", "tokens is missing: expected an array of token ids");
  }
  std::vector<int32_t> ids;
  ASAP_CHECKED(fields.ids("tokens", openai.engine.vocab(), kMostTokens, ids));
  return Json{{"prompt", openai.tokenizer.decode(ids, /*skip_special=*/false)}};
}

// Beside the I/O threads: a text of megabytes takes its time.
HttpHandler offloaded(std::shared_ptr<OpenAi> openai,
                      Answer (*answer)(const OpenAi&, std::string_view)) {
  return [openai = std::move(openai), answer](const std::shared_ptr<HttpExchange>& exchange) {
    auto body = std::make_shared<std::string>(std::move(exchange->request().body));
    auto share = std::move(exchange->request().body_share);
    exchange->offload([openai, answer, exchange, body, share = std::move(share)] {
      auto reply = std::make_shared<HttpReply>(to_reply(answer(*openai, *body)));
      exchange->post([exchange, reply] { exchange->reply(std::move(*reply)); });
    });
  };
}

}  // namespace

HttpHandler tokenize_handler(std::shared_ptr<OpenAi> openai) {
  return offloaded(std::move(openai), &tokenize);
}

HttpHandler detokenize_handler(std::shared_ptr<OpenAi> openai) {
  return offloaded(std::move(openai), &detokenize);
}

}  // namespace asap
