// Attention and the indexer of every table of this machine against naive double arithmetic: paged
// caches with shuffled blocks, several sequences, cached pasts, decode rows, sparse selections.
#include <numeric>

#include "asap/compute/attention_test_util.h"

namespace asap::optest {
namespace {

using AttentionTest = OpsTest;
ASAP_FOR_ALL_TABLES(AttentionTest);

constexpr DType kCacheTypes[] = {DType::f32, DType::bf16};

std::vector<double> softmax(std::vector<double> scores) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) sum += s = std::exp(s - max);
  for (double& s : scores) s /= sum;
  return scores;
}

std::vector<double> naive_gqa(const GqaShape& g, const std::vector<Prompt>& prompts) {
  std::vector<double> out;
  for (const Prompt& p : prompts) {
    for (int i = 0; i < p.length; ++i) {
      for (int h = 0; h < g.heads; ++h) {
        const int group = h / (g.heads / g.kv_heads);
        const float* q = p.q.data() + (int64_t{i} * g.heads + h) * g.d;
        const auto key = [&](int t) { return p.kv.data() + int64_t{t} * 2 * g.kv_heads * g.d; };
        const int first = g.window > 0 ? std::max(0, i + 1 - g.window) : 0;
        std::vector<double> scores;
        for (int t = first; t <= i; ++t) {
          scores.push_back(dot(q, key(t) + group * g.d, g.d) * static_cast<double>(g.scale()));
        }
        if (!g.sinks.empty()) scores.push_back(static_cast<double>(g.sinks[sz(h)]));
        scores = softmax(scores);
        for (int j = 0; j < g.d; ++j) {
          double sum = 0;
          for (int t = first; t <= i; ++t) {
            sum +=
                scores[sz(t - first)] * static_cast<double>(key(t)[(g.kv_heads + group) * g.d + j]);
          }
          out.push_back(sum);
        }
      }
    }
  }
  return out;
}

void check_gqa(Ops& ops, Prng& prng, const GqaShape& shape, const std::vector<int>& lengths) {
  ops.reserve(shape.spec(), {1024, 256, 64});
  for (const DType dtype : kCacheTypes) {
    const std::vector<Prompt> prompts = random_prompts(prng, lengths, shape.widths(), dtype);
    const std::vector<double> want = naive_gqa(shape, prompts);
    const std::string what =
        fmt::format("heads {}/{} d {} window {} sinks {} {}", shape.heads, shape.kv_heads, shape.d,
                    shape.window, shape.sinks.size(), dtype_name(dtype));
    expect_close(shape.run(ops, prompts, dtype, together(prompts)), want, what);
    expect_close(shape.run(ops, prompts, dtype, random_cuts(prompts, 50, 7)), want, what + " cut");
    expect_close(shape.run(ops, prompts, dtype, token_by_token(prompts)), want, what + " decode");
  }
}

TEST_P(AttentionTest, GqaOfLengthsAroundTheBlock) {
  const std::vector<int> lengths = {1, 2, 63, 64, 65, 127, 128, 129, 200};
  check_gqa(*ops_, prng_, {4, 2, 16}, lengths);
}

TEST_P(AttentionTest, GqaOfEveryShape) {
  const std::vector<int> lengths = {70, 3, 129};
  for (const GqaShape& shape :
       {GqaShape{1, 1, 64}, {6, 1, 20}, {8, 8, 24}, {2, 1, 128}, {5, 5, 7}}) {
    check_gqa(*ops_, prng_, shape, lengths);
  }
}

// Windows that end within a block, at its border, and beyond the sequence; sinks below, among and
// far above the scores.
TEST_P(AttentionTest, GqaOfWindowsAndSinks) {
  const std::vector<int> lengths = {1, 64, 65, 200};
  for (const int window : {1, 6, 63, 64, 65, 128, 1000}) {
    check_gqa(*ops_, prng_, {4, 2, 16, window}, lengths);
    check_gqa(*ops_, prng_, {3, 1, 20, window, {-5.0f, 1.5f, 40.0f}}, lengths);
  }
  check_gqa(*ops_, prng_, {2, 2, 16, 0, {0.0f, 3.0f}}, lengths);
}

// Scores far apart: a softmax that does not subtract the maximum overflows, and one that rescales
// late loses the small ones.
TEST_P(AttentionTest, GqaOfLargeScores) {
  const GqaShape shape{1, 1, 16};
  ops_->reserve(shape.spec(), {1024, 256, 64});
  std::vector<Prompt> prompts = random_prompts(prng_, {150}, shape.widths(), DType::f32);
  for (float& q : prompts[0].q) q *= 60;
  expect_close(shape.run(*ops_, prompts, DType::f32, together(prompts)), naive_gqa(shape, prompts),
               "large scores", 1e-4);
}

// The expanded form throughout: keys and values of every head from the latents.
std::vector<double> naive_mla(const MlaShape& m, const std::vector<Stored>& kv_b,
                              const std::vector<Prompt>& prompts) {
  std::vector<double> out;
  for (const Prompt& p : prompts) {
    std::vector<double> rows;  // [head, token, nope + v]
    const auto at = [&](int h, int t) {
      return rows.data() + (int64_t{h} * p.length + t) * (m.nope + m.v);
    };
    const auto cached = [&](int t) { return p.kv.data() + int64_t{t} * (m.latent + m.rope); };
    for (int h = 0; h < m.heads; ++h) {
      for (int t = 0; t < p.length; ++t) {
        for (int j = 0; j < m.nope + m.v; ++j) {
          rows.push_back(dot(kv_b[sz(h)].row(j), cached(t), m.latent));
        }
      }
    }
    for (int i = 0; i < p.length; ++i) {
      std::vector<int> keys(sz(i + 1));
      std::iota(keys.begin(), keys.end(), 0);
      if (!p.selected.empty()) {
        const auto begin = p.selected.begin() + int64_t{i} * m.topk;
        keys.assign(begin, begin + std::min(m.topk, i + 1));
      }
      for (int h = 0; h < m.heads; ++h) {
        const float* q = p.q.data() + (int64_t{i} * m.heads + h) * (m.nope + m.rope);
        std::vector<double> scores;
        for (const int t : keys) {
          scores.push_back(
              (dot(q, at(h, t), m.nope) + dot(q + m.nope, cached(t) + m.latent, m.rope)) *
              static_cast<double>(m.scale()));
        }
        scores = softmax(scores);
        for (int j = 0; j < m.v; ++j) {
          double sum = 0;
          for (size_t k = 0; k < keys.size(); ++k) sum += scores[k] * at(h, keys[k])[m.nope + j];
          out.push_back(sum);
        }
      }
    }
  }
  return out;
}

// Prompts whose last rows were generated, so that both forms of MLA are at work; one is all prompt
// and one all generated.
void generate_tails(std::vector<Prompt>* prompts) {
  for (size_t i = 0; i < prompts->size(); ++i) {
    Prompt& p = (*prompts)[i];
    if (i % 3 == 1) p.prompt = p.length * 2 / 3;
    if (i % 3 == 2) p.prompt = 0;
  }
}

void check_mla(Ops& ops, Arena& arena, Prng& prng, const MlaShape& shape, DType weights,
               const std::vector<int>& lengths) {
  ops.reserve(shape.spec(), {1024, 256, 64});
  const std::vector<Stored> kv_b = shape.random_heads(prng, weights);
  const std::vector<MlaHead> packed = shape.pack(ops, kv_b, arena);
  for (const DType dtype : kCacheTypes) {
    std::vector<Prompt> prompts = random_prompts(prng, lengths, shape.widths(), dtype);
    generate_tails(&prompts);
    if (shape.topk > 0) select_randomly(prng, shape.topk, &prompts);
    const std::vector<double> want = naive_mla(shape, kv_b, prompts);
    const std::string what =
        fmt::format("nope {} rope {} v {} latent {} topk {} {}", shape.nope, shape.rope, shape.v,
                    shape.latent, shape.topk, dtype_name(dtype));
    const auto run = [&](const Schedule& schedule) {
      return shape.run(ops, packed, prompts, dtype, schedule);
    };
    expect_close(run(together(prompts)), want, what);
    expect_close(run(random_cuts(prompts, 50, 7)), want, what + " cut");
    expect_close(run(token_by_token(prompts)), want, what + " decode");
  }
}

TEST_P(AttentionTest, MlaOfLengthsAroundTheBlock) {
  check_mla(*ops_, arena_, prng_, {2, 24, 16, 20, 32}, DType::f32,
            {1, 63, 64, 65, 127, 2, 128, 129, 140});
}

TEST_P(AttentionTest, MlaOfEveryShape) {
  check_mla(*ops_, arena_, prng_, {1, 16, 8, 16, 33}, DType::bf16, {70, 66, 5});
  check_mla(*ops_, arena_, prng_, {3, 7, 6, 9, 40}, DType::f8_e4m3, {70, 66, 5});
  check_mla(*ops_, arena_, prng_, {1, 128, 64, 128, 512}, DType::bf16, {40, 66, 2});
}

TEST_P(AttentionTest, MlaOfSelectedKeys) {
  check_mla(*ops_, arena_, prng_, {2, 24, 16, 20, 32, 8}, DType::f32, {100, 140, 70, 7, 8, 9});
  check_mla(*ops_, arena_, prng_, {2, 24, 16, 20, 32, 65}, DType::bf16, {100, 140, 70});
  check_mla(*ops_, arena_, prng_, {1, 16, 8, 16, 32, 1}, DType::bf16, {10, 70, 3});
}

// The largest topk of I[s] = Σ_h w[h]·relu(u[h]·key[s]), ties to the lower position, ascending.
std::vector<int32_t> naive_indexer(const IndexShape& x, const std::vector<Prompt>& prompts) {
  std::vector<int32_t> out;
  for (const Prompt& p : prompts) {
    for (int i = 0; i < p.length; ++i) {
      const float* u = p.q.data() + int64_t{i} * x.widths().q;
      const float* w = u + x.heads * x.dim;
      std::vector<double> scores(sz(i + 1));
      for (int s = 0; s <= i; ++s) {
        for (int h = 0; h < x.heads; ++h) {
          const double score = dot(u + h * x.dim, p.kv.data() + int64_t{s} * x.dim, x.dim);
          scores[sz(s)] += static_cast<double>(w[h]) * std::max(0.0, score);
        }
      }
      std::vector<int32_t> order(scores.size());
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int a, int b) {
        return scores[sz(a)] != scores[sz(b)] ? scores[sz(a)] > scores[sz(b)] : a < b;
      });
      order.resize(std::min(order.size(), sz(x.topk)));
      std::sort(order.begin(), order.end());
      order.resize(sz(x.topk), -1);
      append(out, order);
    }
  }
  return out;
}

// Small integers: every sum is exact in float32, so equal scores are equal everywhere, and there
// are many of them.
std::vector<Prompt> integer_prompts(Prng& prng, const std::vector<int>& lengths,
                                    const IndexShape& shape) {
  std::vector<Prompt> prompts = random_prompts(prng, lengths, shape.widths(), DType::f32);
  const auto draw = [&] { return static_cast<float>(prng.below(5)) - 2; };
  for (Prompt& p : prompts) {
    for (float& q : p.q) q = draw();
    for (float& k : p.kv) k = draw();
  }
  return prompts;
}

TEST_P(AttentionTest, IndexerSelectsTheBestAndTheEarliestOfEquals) {
  for (const IndexShape& shape : {IndexShape{4, 16, 8}, {1, 3, 1}, {3, 20, 64}, {2, 128, 70}}) {
    ops_->reserve(shape.spec(), {1024, 256, 64});
    for (const DType dtype : kCacheTypes) {
      SCOPED_TRACE(fmt::format("heads {} dim {} topk {} {}", shape.heads, shape.dim, shape.topk,
                               dtype_name(dtype)));
      const auto prompts = integer_prompts(prng_, {1, 7, 8, 9, 63, 64, 65, 130, 200}, shape);
      const std::vector<int32_t> want = naive_indexer(shape, prompts);
      EXPECT_EQ(shape.run(*ops_, prompts, dtype, together(prompts)), want);
      EXPECT_EQ(shape.run(*ops_, prompts, dtype, random_cuts(prompts, 50, 3), 3), want);
      EXPECT_EQ(shape.run(*ops_, prompts, dtype, token_by_token(prompts)), want);
    }
  }
}

TEST_P(AttentionTest, IndexerOfEqualAndOfNegativeScores) {
  const IndexShape shape{2, 16, 5};
  ops_->reserve(shape.spec(), {1024, 256, 64});
  std::vector<Prompt> prompts = integer_prompts(prng_, {150, 80}, shape);
  std::fill(prompts[0].q.begin(), prompts[0].q.end(), 0.0f);  // every score is 0
  for (int i = 0; i < prompts[1].length; ++i) {               // no score is above 0
    for (int h = 0; h < shape.heads; ++h) {
      prompts[1].q[sz(i * shape.widths().q + shape.heads * shape.dim + h)] = -1;
    }
  }
  EXPECT_EQ(shape.run(*ops_, prompts, DType::bf16, together(prompts), 2),
            naive_indexer(shape, prompts));
}

// Real numbers: the selection may differ from the exact one only among nearly equal scores; with
// this seed it does not.
TEST_P(AttentionTest, IndexerOfRealScores) {
  const IndexShape shape{4, 32, 16};
  ops_->reserve(shape.spec(), {1024, 256, 64});
  const auto prompts = random_prompts(prng_, {100, 150}, shape.widths(), DType::f32);
  EXPECT_EQ(shape.run(*ops_, prompts, DType::f32, together(prompts), 3),
            naive_indexer(shape, prompts));
}

}  // namespace
}  // namespace asap::optest
