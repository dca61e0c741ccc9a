// The oracle's attention: grouped-query attention, multi-head latent attention in both its forms,
// and the sparse-attention indexer of DeepSeek-V3.2.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "asap/base/check.h"
#include "asap/compute/ref_math.h"

namespace asap::ref {

namespace {

// A matrix of float32 rows of this file.
struct Rows {
  int width = 0;
  std::vector<float> data;  // [rows, width]
  const float* operator[](int64_t row) const { return data.data() + row * width; }
};

// The cached rows of a sequence's first `count` positions as float32.
Rows cached(const KvCache& cache, const Sequence& s, int count) {
  Rows out{cache.width, {}};
  out.data.reserve(sz(count) * sz(cache.width));
  for (int position = 0; position < count; ++position) {
    const int64_t slot = int64_t{s.blocks[position / kKvBlock]} * kKvBlock + position % kKvBlock;
    for (int i = 0; i < cache.width; ++i) {
      out.data.push_back(element(cache.data, cache.dtype, slot * cache.width + i));
    }
  }
  return out;
}

// Softmax of scores in place; `sink`, if not null, is one more logit that nothing is summed for.
void softmax(std::vector<double>& scores, const float* sink = nullptr) {
  CHECK(!scores.empty(), "a query without keys");
  double max = *std::max_element(scores.begin(), scores.end());
  if (sink != nullptr) max = std::max(max, static_cast<double>(*sink));
  double sum = sink != nullptr ? std::exp(static_cast<double>(*sink) - max) : 0;
  for (double& s : scores) sum += s = std::exp(s - max);
  for (double& s : scores) s /= sum;
}

// One query head of the row at batch row `row`: softmax(q·k·scale) over the positions in its window
// that end at its own.
void gqa_row(const GqaArgs& a, int row, int position, int h, const Rows& kv_rows) {
  const int64_t at = (int64_t{row} * a.heads + h) * a.d;
  const int kv = h / (a.heads / a.kv_heads);
  const int first = a.window > 0 ? std::max(0, position + 1 - a.window) : 0;
  std::vector<double> p(sz(position + 1 - first));
  for (size_t i = 0; i < p.size(); ++i) {
    const float* key = kv_rows[first + static_cast<int64_t>(i)];
    p[i] = dot(a.q + at, key + kv * a.d, a.d) * static_cast<double>(a.scale);
  }
  softmax(p, a.sinks == nullptr ? nullptr : a.sinks + h);
  for (int j = 0; j < a.d; ++j) {
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const float* values = kv_rows[first + static_cast<int64_t>(i)] + a.kv_heads * a.d;
      sum += p[i] * static_cast<double>(values[kv * a.d + j]);
    }
    a.out[at + j] = static_cast<float>(sum);
  }
}

// Key positions of the query at batch row `row`: its selection, or all up to itself.
std::vector<int> visible(const MlaArgs& a, int row, int position) {
  std::vector<int> keys;
  if (a.selected == nullptr) {
    for (int key = 0; key <= position; ++key) keys.push_back(key);
    return keys;
  }
  for (int i = 0; i < a.topk; ++i) {
    const int key = a.selected[int64_t{row} * a.topk + i];
    if (key < 0) break;
    CHECK(key <= position, "row {} at position {} selects key {}", row, position, key);
    keys.push_back(key);
  }
  return keys;
}

// One sequence and one head of MLA. `cache` rows are [latent c ; rotated rope key].
struct MlaContext {
  const MlaArgs& a;
  const Sequence& s;
  int h;
  const Rows& cache;  // [past + n, latent + rope]
  Rows k, v;          // expanded: k_up·c [past + n, nope] and v_up·c [past + n, v]

  const MlaHead& head() const { return a.heads[sz(h)]; }
  int64_t index(int i) const {
    return int64_t{s.row + i} * static_cast<int64_t>(a.heads.size()) + h;
  }
  const float* q(int i) const { return a.q + index(i) * (a.nope + a.rope); }
  float* out(int i) const { return a.out + index(i) * a.v; }
  double rope_score(int i, int key) const {
    return dot(q(i) + a.nope, cache[key] + a.latent, a.rope);
  }
};

// W·c for the latents of all rows.
Rows expand(const Matrix& w, const Rows& cache) {
  const auto count = cache.data.size() / sz(cache.width);
  Rows out{w.n, std::vector<float>(count * sz(w.n))};
  for (size_t row = 0; row < count; ++row) multiply(w, cache[row], out.data.data() + row * sz(w.n));
  return out;
}

// score = (q_nope·k + q_rope·k_rope)·scale, out = Σ p·v.
void mla_row_expanded(const MlaContext& m, int i, const std::vector<int>& keys) {
  std::vector<double> p;
  for (const int key : keys) {
    const double nope = dot(m.q(i), m.k[key], m.a.nope);
    p.push_back((nope + m.rope_score(i, key)) * static_cast<double>(m.a.scale));
  }
  softmax(p);
  for (int j = 0; j < m.a.v; ++j) {
    double sum = 0;
    for (size_t t = 0; t < keys.size(); ++t) sum += p[t] * static_cast<double>(m.v[keys[t]][j]);
    m.out(i)[j] = static_cast<float>(sum);
  }
}

// The same maths over the latents: q~ = k_upᵀ·q_nope, score = (q~·c + q_rope·k_rope)·scale,
// out = v_up·(Σ p·c).
void mla_row_absorbed(const MlaContext& m, int i, const std::vector<int>& keys) {
  std::vector<float> absorbed(sz(m.a.latent));
  multiply(m.head().q_absorb, m.q(i), absorbed.data());
  std::vector<double> p;
  for (const int key : keys) {
    const double nope = dot(absorbed.data(), m.cache[key], m.a.latent);
    p.push_back((nope + m.rope_score(i, key)) * static_cast<double>(m.a.scale));
  }
  softmax(p);
  std::vector<float> mean(sz(m.a.latent));
  for (int j = 0; j < m.a.latent; ++j) {
    double sum = 0;
    for (size_t t = 0; t < keys.size(); ++t) {
      sum += p[t] * static_cast<double>(m.cache[keys[t]][j]);
    }
    mean[sz(j)] = static_cast<float>(sum);
  }
  multiply(m.head().v_up, mean.data(), m.out(i));
}

// I[s] = Σ_h w[h]·relu(u[h]·key[s]) for s <= position; writes the topk largest, ties to the lower
// position, as ascending positions. `u` and `w` are those of the row.
void index_row(const IndexerArgs& a, int row, int position, const Rows& keys) {
  std::vector<std::pair<double, int32_t>> scores;
  for (int p = 0; p <= position; ++p) {
    double sum = 0;
    for (int h = 0; h < a.heads; ++h) {
      const int64_t head = int64_t{row} * a.heads + h;
      sum +=
          static_cast<double>(a.w[head]) * std::max(0.0, dot(a.u + head * a.dim, keys[p], a.dim));
    }
    scores.emplace_back(sum, p);
  }
  std::stable_sort(scores.begin(), scores.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::vector<int32_t> chosen;
  for (size_t i = 0; i < std::min(scores.size(), sz(a.topk)); ++i) {
    chosen.push_back(scores[i].second);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.resize(sz(a.topk), -1);
  std::copy(chosen.begin(), chosen.end(), a.selected + int64_t{row} * a.topk);
}

}  // namespace

void attention_gqa(const GqaArgs& a) {
  CHECK(a.kv.width == 2 * a.kv_heads * a.d && a.heads % a.kv_heads == 0, "{} heads, {} kv heads",
        a.heads, a.kv_heads);
  for (const Sequence& s : a.sequences) {
    const Rows rows = cached(a.kv, s, s.past + s.n);
    for (int i = 0; i < s.n; ++i) {
      for (int h = 0; h < a.heads; ++h) gqa_row(a, s.row + i, s.past + i, h, rows);
    }
  }
}

void attention_mla(const MlaArgs& a) {
  CHECK(a.kv.width == a.latent + a.rope, "cache rows of {}", a.kv.width);
  for (const Sequence& s : a.sequences) {
    const Rows rows = cached(a.kv, s, s.past + s.n);
    for (int h = 0; h < static_cast<int>(a.heads.size()); ++h) {
      MlaContext m{a, s, h, rows, {}, {}};
      if (s.past < s.prompt) {
        m.k = expand(m.head().k_up, rows);
        m.v = expand(m.head().v_up, rows);
      }
      for (int i = 0; i < s.n; ++i) {
        const int position = s.past + i;
        const std::vector<int> keys = visible(a, s.row + i, position);
        if (position < s.prompt) {
          mla_row_expanded(m, i, keys);
        } else {
          mla_row_absorbed(m, i, keys);
        }
      }
    }
  }
}

void indexer(const IndexerArgs& a) {
  CHECK(a.keys.width == a.dim, "index keys of {}", a.keys.width);
  for (const Sequence& s : a.sequences) {
    const int begin = std::max(s.row, a.begin);
    const int end = std::min(s.row + s.n, a.end);
    if (begin >= end) continue;
    const int past = s.past - s.row;  // position of batch row 0 of this sequence
    const Rows keys = cached(a.keys, s, past + end);
    for (int row = begin; row < end; ++row) index_row(a, row - a.begin, past + row, keys);
  }
}

}  // namespace asap::ref
