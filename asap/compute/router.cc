#include "asap/compute/router.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "asap/base/check.h"

namespace asap {

namespace {

// Unbiased scores [experts]: sigmoid(z), softmax(z) over all experts, or z itself.
void score(RouterScore kind, int experts, const float* logits, float* out) {
  if (kind == RouterScore::softmax_selected) {
    std::copy_n(logits, experts, out);
    return;
  }
  if (kind == RouterScore::sigmoid) {
    for (int e = 0; e < experts; ++e) out[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    return;
  }
  const float max = *std::max_element(logits, logits + experts);
  float sum = 0;
  for (int e = 0; e < experts; ++e) {
    out[e] = std::exp(logits[e] - max);
    sum += out[e];
  }
  for (int e = 0; e < experts; ++e) out[e] /= sum;
}

// The best `count` of several candidates, offered in ascending index order: value descending, then
// lower index. The indices are distinct whatever the values are, NaN included.
class Best {
 public:
  Best(int count, int32_t* ids, const float* values) : count_(count), ids_(ids), values_(values) {}

  void offer(int32_t id) {
    if (size_ == count_ && !(values_[id] > values_[ids_[count_ - 1]])) return;
    int at = size_ < count_ ? size_++ : count_ - 1;
    for (; at > 0 && values_[id] > values_[ids_[at - 1]]; --at) ids_[at] = ids_[at - 1];
    ids_[at] = id;
  }

 private:
  int count_;
  int32_t* ids_;         // [count], best first
  const float* values_;  // by id
  int size_ = 0;
};

// The score of a group: the sum of its two best experts, or its best one.
float group_score(GroupScore kind, const float* biased, int size) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (int i = 0; i < size; ++i) {
    second = std::max(second, std::min(first, biased[i]));
    first = std::max(first, biased[i]);
  }
  return kind == GroupScore::top2_sum && size > 1 ? first + second : first;
}

// The groups that take part, marked: the best `top_groups` of them. Experts of the others are never
// selected (as if their scores were -inf).
void keep_groups(const RouterSpec& router, int size, const float* biased, bool* kept) {
  std::array<float, kMaxExperts> scores;
  std::array<int32_t, kMaxExperts> order;
  Best best(router.top_groups, order.data(), scores.data());
  for (int g = 0; g < router.groups; ++g) {
    scores[static_cast<size_t>(g)] = group_score(router.group_score, biased + g * size, size);
    kept[g] = false;
    best.offer(g);
  }
  for (int i = 0; i < router.top_groups; ++i) kept[order[static_cast<size_t>(i)]] = true;
}

// Final weights of the selected experts: from the unbiased scores, normalised if asked, scaled.
void weigh(const RouterSpec& router, int top_k, const int32_t* ids, const float* scores,
           float* weights) {
  if (router.score == RouterScore::softmax_selected) {
    // The first is the largest.
    float total = 0;
    for (int k = 0; k < top_k; ++k) total += weights[k] = std::exp(scores[ids[k]] - scores[ids[0]]);
    for (int k = 0; k < top_k; ++k)
      weights[k] = weights[k] / total * static_cast<float>(router.scale);
    return;
  }
  float sum = router.score == RouterScore::sigmoid ? 1e-20f : 0.0f;
  for (int k = 0; k < top_k; ++k) sum += scores[ids[k]];
  const float divisor = router.normalize ? sum : 1.0f;
  const auto scale = static_cast<float>(router.scale);
  for (int k = 0; k < top_k; ++k) weights[k] = scores[ids[k]] / divisor * scale;
}

}  // namespace

void route_tokens(const RouterSpec& router, int experts, int top_k, const float* logits,
                  const float* bias, int n, int32_t* ids, float* weights) {
  CHECK(experts <= kMaxExperts && top_k >= 1, "{} experts, top {}", experts, top_k);
  CHECK(router.groups >= 1 && experts % router.groups == 0, "{} experts in {} groups", experts,
        router.groups);
  const bool grouped = router.groups > 1;
  const int size = experts / router.groups;
  const int candidates = grouped ? router.top_groups * size : experts;
  CHECK(top_k <= candidates && candidates <= experts, "top {} of {} experts", top_k, candidates);
  std::array<float, kMaxExperts> scores;
  std::array<float, kMaxExperts> biased;
  std::array<bool, kMaxExperts> kept;
  for (int token = 0; token < n; ++token, logits += experts, ids += top_k, weights += top_k) {
    score(router.score, experts, logits, scores.data());
    for (int e = 0; e < experts; ++e) {
      const auto i = static_cast<size_t>(e);
      biased[i] = scores[i] + (bias != nullptr ? bias[e] : 0.0f);
    }
    if (grouped) keep_groups(router, size, biased.data(), kept.data());
    Best best(top_k, ids, biased.data());
    for (int e = 0; e < experts; ++e) {
      if (!grouped || kept[static_cast<size_t>(e / size)]) best.offer(e);
    }
    weigh(router, top_k, ids, scores.data(), weights);
  }
}

}  // namespace asap
