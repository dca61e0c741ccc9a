#include "asap/serve/openai_response.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/model/utf8.h"

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

Json logprobs_json(const std::vector<TokenLogprob>& logprobs) {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const TokenLogprob& entry : logprobs) {
    tokens.push_back(entry.token);
    values.push_back(entry.logprob);
    Json top = Json::object();
    for (const auto& [token, logprob] : entry.top) {
      if (!top.contains(token)) top[token] = logprob;  // the better of two of the same text
    }
    tops.push_back(std::move(top));
    offsets.push_back(entry.text_offset);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json choice_json(const CompletionPiece& piece) {
  Json choice;
  choice["index"] = piece.index;
  choice["text"] = piece.text;
  choice["logprobs"] = piece.with_logprobs ? logprobs_json(piece.logprobs) : Json(nullptr);
  choice["finish_reason"] = piece.finish_reason.empty() ? Json(nullptr) : Json(piece.finish_reason);
  choice["stop_reason"] = piece.stop_reason.empty() ? Json(nullptr) : Json(piece.stop_reason);
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

Json head_json(const CompletionHead& head) {
  return {{"id", head.id},
          {"object", "text_completion"},
          {"created", head.created},
          {"model", head.model},
          {"choices", Json::array()}};
}

}  // namespace

TokenLogprob token_logprob(const TokenEvent& event, const Tokenizer& tokenizer, int text_offset) {
  TokenLogprob entry;
  entry.token = token_text(event.token, tokenizer);
  entry.logprob = finite(event.logprob);
  entry.text_offset = text_offset;
  bool own = false;
  for (const auto& [id, logprob] : event.top_logprobs) {
    own = own || id == event.token;
    entry.top.emplace_back(token_text(id, tokenizer), finite(logprob));
  }
  if (!own) entry.top.emplace_back(entry.token, entry.logprob);
  return entry;
}

int code_points(std::string_view utf8) {
  return static_cast<int>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string completion_reply(const CompletionHead& head, std::span<const CompletionPiece> choices,
                             const Usage& usage) {
  Json json = head_json(head);
  for (const CompletionPiece& choice : choices) json["choices"].push_back(choice_json(choice));
  json["usage"] = usage_json(usage);
  return dump(json);
}

std::string completion_event(const CompletionHead& head, const CompletionPiece& piece) {
  Json json = head_json(head);
  json["choices"].push_back(choice_json(piece));
  return dump(json);
}

std::string usage_event(const CompletionHead& head, const Usage& usage) {
  Json json = head_json(head);
  json["usage"] = usage_json(usage);
  return dump(json);
}

std::string sse(std::string_view json) {
  return fmt::format("data: {}\n\n", json);
}

}  // namespace asap
