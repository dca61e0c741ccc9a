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

int32_t pick(std::span<const float> logits, const SampleParams& params) {
  if (params.temperature <= 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const uint64_t stream = mix(mix(params.seed) ^ static_cast<uint64_t>(params.position));
  const double inverse = 1.0 / static_cast<double>(params.temperature);
  int32_t best = 0;
  double best_value = -INFINITY;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double value = static_cast<double>(logits[id]) * inverse + gumbel(stream, id);
    if (value > best_value) {
      best_value = value;
      best = static_cast<int32_t>(id);
    }
  }
  return best;
}

}  // namespace

void sample(std::span<const float> logits, const SampleParams& params, ResultEntry* out) {
  out->token = pick(logits, params);
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
