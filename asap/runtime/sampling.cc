#include "asap/runtime/sampling.h"

#include <algorithm>
#include <cmath>

namespace asap {

namespace {

// The model's own ends take part in what min_tokens forbids.
constexpr size_t kMostEnds = 16;

Status in_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return fail(Code::invalid, "{} is {}; it must be between {} and {}", name, value, low, high);
}

Status check_ids(const SamplingParams& p, int vocab) {
  const auto known = [vocab](int32_t id) { return id >= 0 && id < vocab; };
  for (const auto& [token, bias] : p.logit_bias) {
    if (!known(token) || std::isnan(bias)) {
      return fail(Code::invalid, "logit_bias of token {} is {}; the vocabulary is [0, {})", token,
                  bias, vocab);
    }
  }
  for (const int32_t token : p.stop_token_ids) {
    if (!known(token)) {
      return fail(Code::invalid, "stop_token_ids has {}; the vocabulary is [0, {})", token, vocab);
    }
  }
  if (p.logit_bias.size() + p.stop_token_ids.size() + kMostEnds > kMaxLogitBiases) {
    return fail(Code::invalid, "logit_bias and stop_token_ids have {} entries together; at most {}",
                p.logit_bias.size() + p.stop_token_ids.size(), kMaxLogitBiases - kMostEnds);
  }
  return {};
}

}  // namespace

Status check_sampling(const SamplingParams& p, int vocab) {
  if (!std::isfinite(p.temperature) || p.temperature < 0) {
    return fail(Code::invalid, "temperature is {}; it must be a number of at least 0",
                p.temperature);
  }
  if (p.logprobs < -1 || p.logprobs > kMaxLogprobs) {
    return fail(Code::invalid, "logprobs is {}; it must be between 0 and {}", p.logprobs,
                kMaxLogprobs);
  }
  if (p.min_tokens < 0 || p.min_tokens > p.max_tokens) {
    return fail(Code::invalid, "min_tokens is {}; it must be between 0 and max_tokens ({})",
                p.min_tokens, p.max_tokens);
  }
  if (!(p.top_p > 0 && p.top_p <= 1)) {
    return fail(Code::invalid, "top_p is {}; it must be above 0 and at most 1", p.top_p);
  }
  if (p.top_k < 0) return fail(Code::invalid, "top_k is {}; it must be at least 0", p.top_k);
  ASAP_TRY(in_range("min_p", p.min_p, 0, 1));
  ASAP_TRY(in_range("presence_penalty", p.presence_penalty, -2, 2));
  ASAP_TRY(in_range("frequency_penalty", p.frequency_penalty, -2, 2));
  if (!(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty))) {
    return fail(Code::invalid, "repetition_penalty is {}; it must be above 0",
                p.repetition_penalty);
  }
  return check_ids(p, vocab);
}

bool ends_output(const SamplingParams& p, const std::vector<int>& eos_ids, int32_t token) {
  const auto holds = [token](const auto& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return holds(p.stop_token_ids) || (!p.ignore_eos && holds(eos_ids));
}

void put_sampling(const SamplingParams& p, const std::vector<int>& eos_ids, int generated,
                  SequenceCommand* command, std::vector<LogitBias>* biases) {
  command->seed = p.seed;
  command->logprobs = p.logprobs;
  command->temperature = static_cast<float>(p.temperature);
  command->top_k = p.top_k;
  command->top_p = static_cast<float>(p.top_p);
  command->min_p = static_cast<float>(p.min_p);
  command->presence_penalty = static_cast<float>(p.presence_penalty);
  command->frequency_penalty = static_cast<float>(p.frequency_penalty);
  command->repetition_penalty = static_cast<float>(p.repetition_penalty);
  const size_t before = biases->size();
  for (const auto& [token, bias] : p.logit_bias) biases->push_back({token, bias});
  if (generated < p.min_tokens) {
    for (const int32_t token : p.stop_token_ids) biases->push_back({token, -INFINITY});
    for (size_t i = 0; i < std::min(eos_ids.size(), kMostEnds) && !p.ignore_eos; ++i) {
      biases->push_back({eos_ids[i], -INFINITY});
    }
  }
  command->biases = static_cast<int32_t>(biases->size() - before);
}

}  // namespace asap
