#include "asap/serve/openai_response.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/model/utf8.h"
#include "asap/runtime/request_parts.h"

namespace asap {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON has no infinity; this is the value that other servers send for an impossible token.
float finite(float logprob) {
  return logprob > -9999.0f ? logprob : -9999.0f;
}

std::string token_text(int32_t id, const Tokenizer& tokenizer) {
  std::string bytes = tokenizer.token_bytes(id, false);
  if (is_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

// The form of /v1/completions: lists side by side; the alternatives always hold the token itself.
Json legacy_logprobs(const std::vector<TokenLogprob>& logprobs) {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const TokenLogprob& entry : logprobs) {
    tokens.push_back(entry.chosen.token);
    values.push_back(entry.chosen.logprob);
    Json top = Json::object();
    for (const TokenChoice& choice : entry.best) {
      if (!top.contains(choice.token)) top[choice.token] = choice.logprob;  // the better of two
    }
    if (!top.contains(entry.chosen.token)) top[entry.chosen.token] = entry.chosen.logprob;
    tops.push_back(std::move(top));
    offsets.push_back(entry.text_offset);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json chosen_json(const TokenChoice& choice) {
  Json bytes = Json::array();
  for (const char c : choice.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", choice.token}, {"logprob", choice.logprob}, {"bytes", std::move(bytes)}};
}

// The form of chat: an object per token.
Json chat_logprobs(const std::vector<TokenLogprob>& logprobs) {
  Json content = Json::array();
  for (const TokenLogprob& entry : logprobs) {
    Json token = chosen_json(entry.chosen);
    token["top_logprobs"] = Json::array();
    for (const TokenChoice& choice : entry.best)
      token["top_logprobs"].push_back(chosen_json(choice));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}};
}

// `whole`: a reply's choice, not an event's.
Json choice_json(Api api, const CompletionPiece& piece, bool whole) {
  Json choice;
  choice["index"] = piece.index;
  if (api == Api::completions) {
    choice["text"] = piece.text;
  } else {
    Json& said = choice[whole ? "message" : "delta"];
    if (whole || piece.opens) said["role"] = "assistant";
    said["content"] = piece.text;
  }
  choice["logprobs"] = nullptr;
  if (piece.with_logprobs) {
    choice["logprobs"] =
        api == Api::chat ? chat_logprobs(piece.logprobs) : legacy_logprobs(piece.logprobs);
  }
  choice["finish_reason"] = piece.finish_reason.empty() ? Json(nullptr) : Json(piece.finish_reason);
  choice["stop_reason"] = !piece.stop_reason.empty() ? Json(piece.stop_reason)
                          : piece.stop_token >= 0    ? Json(piece.stop_token)
                                                     : Json(nullptr);
  if (piece.with_token_ids) {
    choice["token_ids"] = piece.token_ids;
    if (!piece.prompt_token_ids.empty()) choice["prompt_token_ids"] = piece.prompt_token_ids;
  }
  return choice;
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", 0}}}};
}

Json timing_json(const RequestTiming& timing) {
  Json out;
  for (const RequestPart& part : kRequestParts) {
    const Duration time{std::max<int64_t>(0, timing.parts.*part.ns)};
    out[fmt::format("{}_ms", part.name)] = 1e3 * time.to_seconds();
  }
  out["host_ms"] = 1e3 * timing.host.to_seconds();
  return out;
}

Json head_json(const CompletionHead& head, bool whole) {
  const char* const object = head.api == Api::completions ? "text_completion"
                             : whole                      ? "chat.completion"
                                                          : "chat.completion.chunk";
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"choices", Json::array()}};
}

TokenChoice token_choice(int32_t id, float logprob, const Tokenizer& tokenizer) {
  return {token_text(id, tokenizer), tokenizer.token_bytes(id, false), finite(logprob)};
}

}  // namespace

TokenLogprob token_logprob(const TokenEvent& event, const Tokenizer& tokenizer, int text_offset) {
  TokenLogprob entry;
  entry.chosen = token_choice(event.token, event.logprob, tokenizer);
  entry.text_offset = text_offset;
  for (const auto& [id, logprob] : event.top_logprobs) {
    entry.best.push_back(token_choice(id, logprob, tokenizer));
  }
  return entry;
}

int code_points(std::string_view utf8) {
  return static_cast<int>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string completion_reply(const CompletionHead& head, std::span<const CompletionPiece> choices,
                             const Usage& usage) {
  Json json = head_json(head, true);
  for (const CompletionPiece& choice : choices) {
    json["choices"].push_back(choice_json(head.api, choice, true));
  }
  json["usage"] = usage_json(usage);
  if (choices.front().timing) json["asap_timing"] = timing_json(*choices.front().timing);
  return dump(json);
}

std::string completion_event(const CompletionHead& head, const CompletionPiece& piece) {
  Json json = head_json(head, false);
  json["choices"].push_back(choice_json(head.api, piece, false));
  if (piece.timing) json["asap_timing"] = timing_json(*piece.timing);
  return dump(json);
}

std::string usage_event(const CompletionHead& head, const Usage& usage) {
  Json json = head_json(head, false);
  json["usage"] = usage_json(usage);
  return dump(json);
}

std::string sse(std::string_view json) {
  return fmt::format("data: {}\n\n", json);
}

}  // namespace asap
