// Fuzz target: any bytes as the body of a completion request and of a chat. Refusals must be
// well-formed, acceptance in the limits.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "asap/base/check.h"
#include "asap/serve/openai_request.h"

namespace {

const asap::RequestLimits limits{"m", 4096, 1000};

void check(const tl::expected<asap::CompletionRequest, asap::ApiError>& request) {
  if (!request) {
    const auto& error = request.error();
    CHECK(error.status == 400 || error.status == 404, "status {}", error.status);
    CHECK(nlohmann::json::accept(asap::error_body(error)), "{}", error.message);
    return;
  }
  CHECK(!request->prompts.empty());
  const asap::SamplingParams& sampling = request->sampling;
  CHECK(sampling.max_tokens >= 1 && sampling.max_tokens <= limits.max_model_len);
  CHECK(sampling.min_tokens >= 0 && sampling.min_tokens <= sampling.max_tokens);
  CHECK(sampling.temperature >= 0 && sampling.top_p > 0 && sampling.top_p <= 1);
  CHECK(sampling.top_k >= 0 && sampling.min_p >= 0 && sampling.min_p <= 1);
  CHECK(sampling.repetition_penalty > 0 && sampling.logit_bias.size() <= asap::kMaxBiases);
  for (const auto& [id, bias] : sampling.logit_bias) CHECK(id >= 0 && id < limits.vocab);
  for (const int32_t id : sampling.stop_token_ids) CHECK(id >= 0 && id < limits.vocab);
  CHECK(request->n >= 1 && request->prompts.size() * static_cast<size_t>(request->n) <= 256);
  CHECK(sampling.logprobs >= -1 && sampling.logprobs <= asap::kMaxLogprobs);
  for (const asap::Prompt& prompt : request->prompts) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      CHECK(!ids->empty());
      for (const int32_t id : *ids) CHECK(id >= 0 && id < limits.vocab, "id {}", id);
    } else {
      CHECK(!std::get<std::string>(prompt).empty());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto chat = asap::ChatTemplate::parse(
      "{{ tools|tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "");
  CHECK(chat.has_value());
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  check(asap::parse_completion(body, limits));
  check(asap::parse_chat(body, limits, *chat, 0));
  return 0;
}
