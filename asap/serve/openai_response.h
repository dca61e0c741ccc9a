// The JSON of /v1/completions and /v1/chat/completions: replies, stream events, usage. Pure
// formatting; the two differ in names and in where a choice keeps its text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asap/model/tokenizer.h"
#include "asap/runtime/engine.h"

namespace asap {

enum class Api : uint8_t { completions, chat };

// The fields that all events of an answer share.
struct CompletionHead {
  Api api = Api::completions;
  std::string id;
  int64_t created = 0;  // Unix time, seconds
  std::string model;
};

struct TokenChoice {
  std::string token;  // text, or "bytes:\xe2\x96" for a token that is no whole UTF-8
  std::string bytes;  // what it stands for
  float logprob = 0;
};

struct TokenLogprob {
  TokenChoice chosen;
  std::vector<TokenChoice> best;  // best first; may lack the chosen one
  int text_offset = 0;            // code points of this choice's text before the token
};

// Where the time to a first token went, as "asap_timing" says it.
struct RequestTiming {
  RequestTimes parts;
  Duration host;
};

// One choice, or what one token adds to it.
struct CompletionPiece {
  int index = 0;
  bool opens = false;  // the first event of its choice; in chat it says who speaks
  std::string text;
  std::string finish_reason;  // "": null
  std::string stop_reason;    // the stop string that matched; "": null
  int32_t stop_token = -1;    // the one of stop_token_ids that came
  bool with_logprobs = false;
  std::vector<TokenLogprob> logprobs;
  bool with_token_ids = false;
  std::vector<int32_t> token_ids;
  std::vector<int32_t> prompt_token_ids;  // empty: left out, as in all events but a choice's first
  std::optional<RequestTiming> timing;    // of a choice's first event, if asked for
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

TokenLogprob token_logprob(const TokenEvent& event, const Tokenizer& tokenizer, int text_offset);
int code_points(std::string_view utf8);

// With several choices the timing is the first one's.
std::string completion_reply(const CompletionHead& head, std::span<const CompletionPiece> choices,
                             const Usage& usage);
std::string completion_event(const CompletionHead& head, const CompletionPiece& piece);
std::string usage_event(const CompletionHead& head, const Usage& usage);

// Server-sent event of one line of JSON.
std::string sse(std::string_view json);

}  // namespace asap
