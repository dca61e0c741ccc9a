#include "asap/runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "asap/base/prng.h"

namespace asap {

namespace {

// Gumbel-max: argmax(logit/T + g_i) with g_i = -log(-log u_i) draws from softmax(logit/T). u_i is
// counter-based, so no generator state exists that a schedule could advance.
double gumbel(uint64_t stream, size_t id) {
  const double u = (static_cast<double>(mix(stream + id) >> 11) + 0.5) * 0x1.0p-53;
  return -std::log(-std::log(u));
}

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

// The lowest id wins a tie.
int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Logits with biases and penalties, or as they came if there are none.
std::span<const float> adjusted(std::span<const float> logits, const SampleParams& p,
                                std::vector<float>& scratch) {
  if (p.biases.empty() && !p.penalises()) return logits;
  scratch.assign(logits.begin(), logits.end());
  for (const LogitBias& b : p.biases) scratch[sz(b.token)] += b.bias;
  if (!p.penalises()) return scratch;
  std::vector<int32_t> times(logits.size(), -1);  // in the output; -1: nowhere
  for (size_t i = 0; i < p.history.size(); ++i) {
    int32_t& n = times[sz(p.history[i])];
    n = std::max(n, 0) + (i >= sz(p.prompt) ? 1 : 0);
  }
  for (size_t id = 0; id < times.size(); ++id) {
    if (times[id] < 0) continue;
    float& logit = scratch[id];
    logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
    logit -= p.frequency_penalty * static_cast<float>(times[id]);
    if (times[id] > 0) logit -= p.presence_penalty;
  }
  return scratch;
}

// The ids among which to draw by min_p, top_k and top_p.
std::vector<int32_t> allowed(std::span<const float> logits, const SampleParams& p) {
  const double inverse = 1.0 / static_cast<double>(p.temperature);
  const auto value = [&](int32_t id) { return static_cast<double>(logits[sz(id)]) * inverse; };
  const double best = value(argmax(logits));
  const double least = p.min_p > 0 ? best + std::log(static_cast<double>(p.min_p)) : -INFINITY;
  std::vector<int32_t> ids;
  for (size_t id = 0; id < logits.size(); ++id) {
    const auto candidate = static_cast<int32_t>(id);
    if (value(candidate) >= least) ids.push_back(candidate);
  }
  const auto before = [&](int32_t a, int32_t b) {
    return value(a) != value(b) ? value(a) > value(b) : a < b;
  };
  const auto sort_first = [&](size_t n) {
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(), before);
  };
  if (p.top_k > 0 && sz(p.top_k) < ids.size()) {
    sort_first(sz(p.top_k));
    ids.resize(sz(p.top_k));
  }
  if (p.top_p >= 1) return ids;
  double sum = 0;
  for (const int32_t id : ids) sum += std::exp(value(id) - best);
  const double wanted = static_cast<double>(p.top_p) * sum;
  // Most of the probability is in a few tokens: sort no more than are looked at.
  double mass = 0;
  size_t sorted = 0;
  for (size_t kept = 0; kept < ids.size(); ++kept) {
    if (kept == sorted) {
      sorted = std::min(ids.size(), std::max<size_t>(64, 8 * sorted));
      sort_first(sorted);
    }
    mass += std::exp(value(ids[kept]) - best);
    if (mass >= wanted) ids.resize(kept + 1);
  }
  return ids;
}

int32_t pick(std::span<const float> logits, const SampleParams& params) {
  if (params.temperature <= 0) return argmax(logits);
  const uint64_t stream = mix(mix(params.seed) ^ static_cast<uint64_t>(params.position));
  const double inverse = 1.0 / static_cast<double>(params.temperature);
  int32_t best = -1;
  double best_value = -INFINITY;
  const auto consider = [&](int32_t id) {
    const double value = static_cast<double>(logits[sz(id)]) * inverse + gumbel(stream, sz(id));
    if (best < 0 || value > best_value || (value == best_value && id < best)) {
      best_value = value;
      best = id;
    }
  };
  if (params.top_k <= 0 && params.top_p >= 1 && params.min_p <= 0) {
    for (size_t id = 0; id < logits.size(); ++id) consider(static_cast<int32_t>(id));
  } else {
    for (const int32_t id : allowed(logits, params)) consider(id);
  }
  return best;
}

}  // namespace

SampleParams sample_params(const SequenceCommand& c) {
  SampleParams p;
  p.temperature = c.temperature;
  p.seed = c.seed;
  p.position = c.past + c.tokens;
  p.logprobs = c.logprobs;
  p.top_k = c.top_k;
  p.top_p = c.top_p;
  p.min_p = c.min_p;
  p.presence_penalty = c.presence_penalty;
  p.frequency_penalty = c.frequency_penalty;
  p.repetition_penalty = c.repetition_penalty;
  p.prompt = c.prompt;
  return p;
}

void sample(std::span<const float> logits, const SampleParams& params, ResultEntry* out) {
  std::vector<float> scratch;
  out->token = pick(adjusted(logits, params, scratch), params);
  out->logprob = 0;
  out->tops = 0;
  if (params.logprobs < 0) return;

  const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const double log_sum = max + std::log(sum);
  const auto logprob = [&](int32_t id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum);
  };
  out->logprob = logprob(out->token);

  const size_t tops = std::min<size_t>(
      {static_cast<size_t>(params.logprobs), logits.size(), static_cast<size_t>(kMaxLogprobs)});
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(tops), ids.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = logits[static_cast<size_t>(a)];
                      const float y = logits[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  out->tops = static_cast<int32_t>(tops);
  for (size_t i = 0; i < tops; ++i) {
    out->top_ids[i] = ids[i];
    out->top_logprobs[i] = logprob(ids[i]);
  }
}

}  // namespace asap
