// Batch invariance, bit for bit: a row's result depends on that row's inputs alone, whatever shares
// the call, wherever the row lies, however a prompt is cut into calls, whichever cache blocks it
// has, and however many threads work.
#include <functional>
#include <initializer_list>

#include "asap/compute/attention_test_util.h"

namespace asap::optest {
namespace {

// Two tables of one ISA, led by teams of one and of three threads.
class InvarianceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    one_ = make_table(GetParam(), team_of_one_);
    three_ = make_table(GetParam(), team_of_three_);
    if (one_ == nullptr) GTEST_SKIP() << "this machine has no " << GetParam();
  }
  void reserve(const ModelSpec& spec) {
    for (Ops* ops : {one_.get(), three_.get()}) ops->reserve(spec, {1024, 256, 2048});
  }
  Team team_of_one_{1}, team_of_three_{3};
  std::unique_ptr<Ops> one_, three_;
  Arena arena_;
  Prng prng_{1};
};
ASAP_FOR_ALL_TABLES(InvarianceTest);

// f(x, n) maps n rows of `width` to n rows of `out_width`. Compares all rows at once with each row
// alone, with odd cuts, and with the rows behind others.
using RowOp = std::function<std::vector<float>(const float* x, int n)>;
void check_rows(const std::vector<float>& x, int width, int out_width, const RowOp& op,
                const std::string& what) {
  const int n = static_cast<int>(x.size()) / width;
  const std::vector<float> want = op(x.data(), n);
  ASSERT_EQ(want.size(), sz(n) * sz(out_width));
  for (const int step : {1, 2, 3, 5, 13}) {
    std::vector<float> got;
    for (int begin = 0; begin < n; begin += step) {
      append(got, op(x.data() + int64_t{begin} * width, std::min(step, n - begin)));
    }
    expect_same_bits(got, want, fmt::format("{} in calls of {} rows", what, step));
  }
  for (const int ahead : {1, 4, 31}) {
    std::vector<float> shifted(x.end() - int64_t{ahead} * width, x.end());
    append(shifted, x);
    const std::vector<float> all = op(shifted.data(), n + ahead);
    expect_same_bits({all.begin() + int64_t{ahead} * out_width, all.end()}, want,
                     fmt::format("{} behind {} other rows", what, ahead));
  }
}

TEST_P(InvarianceTest, Linear) {
  reserve(ffn_spec(512, 512));
  for (const auto& [rows, cols] : {std::pair(33, 67), std::pair(128, 300), std::pair(1, 9)}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3, DType::i8}) {
      const bool int8 = dtype == DType::i8;
      Stored stored = random_matrix(prng_, rows, cols, int8 ? DType::bf16 : dtype);
      stored.view.as_int8 = int8;
      const std::vector<float> x = random_floats(prng_, int64_t{37} * cols);
      std::vector<std::vector<float>> whole;
      for (Ops* ops : {one_.get(), three_.get()}) {
        const Matrix w = ops->pack(stored.view, arena_);
        const RowOp op = [&](const float* in, int n) {
          std::vector<float> y(sz(n * w.n), kPoison);
          ops->linear(w, in, n, w.k, y.data(), w.n);
          return y;
        };
        check_rows(x, cols, rows, op,
                   fmt::format("linear [{}, {}] {}", rows, cols, dtype_name(dtype)));
        whole.push_back(op(x.data(), 37));
      }
      expect_same_bits(whole[0], whole[1], "linear on one and on three threads");
    }
  }
}

TEST_P(InvarianceTest, Ffn) {
  for (const auto& [hidden, width, int8] :
       {std::tuple(96, 80, false), {70, 33, false}, {70, 33, true}}) {
    reserve(ffn_spec(hidden, width));
    const Ffn ffn(prng_, hidden, width, DType::bf16, {.clamped = width == 33});
    const std::vector<float> x = random_floats(prng_, int64_t{37} * hidden);
    std::vector<std::vector<float>> whole;
    for (Ops* ops : {one_.get(), three_.get()}) {
      const ExpertMatrix w = ops->pack_expert(ffn.views(int8), ffn.glu, arena_);
      const RowOp op = [&](const float* in, int n) {
        std::vector<float> y(sz(n) * sz(w.hidden), kPoison);
        ops->ffn(w, in, n, y.data());
        return y;
      };
      check_rows(x, hidden, hidden, op, "ffn");
      whole.push_back(op(x.data(), 37));
    }
    expect_same_bits(whole[0], whole[1], "ffn on one and on three threads");
  }
}

TEST_P(InvarianceTest, Experts) {
  constexpr int kExperts = 6, kTokens = 90;
  for (const auto& [hidden, width, int8] :
       {std::tuple(96, 64, false), {70, 33, false}, {70, 33, true}}) {
    reserve(ffn_spec(hidden, width, kExperts, 3));
    const optest::Experts experts(prng_, kExperts, hidden, width, DType::bf16);
    const std::vector<float> x = random_floats(prng_, int64_t{kTokens + 31} * hidden, DType::bf16);
    // The routing of a token is a function of its first value, so that it follows the token.
    const auto routing_of = [&](const float* rows, int n) {
      Routing routing;
      for (int t = 0; t < n; ++t) {
        const uint64_t draw = mix(std::bit_cast<uint32_t>(rows[int64_t{t} * hidden]));
        routing.emplace_back();
        for (int e = 0; e < kExperts; ++e) {
          const bool takes = (draw >> e & 1) != 0 || e == static_cast<int>(draw % kExperts);
          if (takes) routing.back().push_back({e, 0.1f + static_cast<float>(draw >> 40) * 1e-8f});
        }
      }
      return routing;
    };
    std::vector<std::vector<float>> whole;
    for (Ops* ops : {one_.get(), three_.get()}) {
      const std::vector<ExpertMatrix> entries = experts.pack(*ops, arena_, int8);
      const ExpertTable table{2, kExperts, entries};
      const RowOp op = [&](const float* in, int n) {
        const std::vector<float> rows(in, in + int64_t{n} * hidden);
        Work work(optest::Experts::kLayer, kExperts, hidden, DType::bf16, routing_of(in, n), rows);
        return work.run(*ops, table);
      };
      check_rows(x, hidden, hidden, op, "experts");
      whole.push_back(op(x.data(), kTokens));
    }
    expect_same_bits(whole[0], whole[1], "experts on one and on three threads");
  }
}

TEST_P(InvarianceTest, NormsAndRope) {
  reserve(ffn_spec(128, 64));
  for (const int width : {33, 128}) {
    const std::vector<float> x = random_floats(prng_, int64_t{40} * width);
    const std::vector<float> w = random_floats(prng_, width);
    std::vector<std::vector<float>> whole;
    for (Ops* ops : {one_.get(), three_.get()}) {
      const RowOp rms = [&](const float* in, int n) {
        std::vector<float> y(sz(n * width), kPoison);
        ops->rms_norm(in, n, width, width, w.data(), 1e-6, y.data(), width);
        return y;
      };
      const RowOp layer = [&](const float* in, int n) {
        std::vector<float> y(sz(n * width), kPoison);
        ops->layer_norm(in, n, width, width, w.data(), w.data(), y.data(), width);
        return y;
      };
      // The row doubles as its angles.
      const RowOp rope = [&](const float* in, int n) {
        std::vector<float> y(in, in + n * width), angles;
        for (int i = 0; i < n; ++i)
          angles.insert(angles.end(), in + i * width, in + i * width + 32);
        ops->rope(y.data(), n, width, 1, width, 32, true, angles.data());
        return y;
      };
      for (const auto& [op, what] :
           {std::pair(rms, "rms_norm"), {layer, "layer_norm"}, {rope, "rope"}}) {
        check_rows(x, width, width, op, what);
        whole.push_back(op(x.data(), 40));
      }
    }
    for (size_t i = 0; i < 3; ++i) expect_same_bits(whole[i], whole[i + 3], "threads");
  }
}

TEST_P(InvarianceTest, Route) {
  constexpr int kCount = 32, kTop = 4;
  reserve(ffn_spec(64, 64, kCount, kTop));
  const RouterSpec router{.score = RouterScore::sigmoid,
                          .has_bias = true,
                          .groups = 4,
                          .top_groups = 2,
                          .normalize = true,
                          .scale = 2.5};
  const std::vector<float> logits = random_floats(prng_, 40 * kCount);
  const std::vector<float> bias = random_floats(prng_, kCount);
  const RowOp op = [&](const float* in, int n) {
    std::vector<int32_t> ids(sz(n * kTop));
    std::vector<float> weights(ids.size(), kPoison), out;
    three_->route(router, kCount, kTop, in, bias.data(), n, ids.data(), weights.data());
    for (size_t i = 0; i < ids.size(); ++i) {
      out.push_back(static_cast<float>(ids[i]));
      out.push_back(weights[i]);
    }
    return out;
  };
  check_rows(logits, kCount, 2 * kTop, op, "route");
}

// Every schedule of the same prompts gives the bits of `want`. run(ops, schedule, seed).
template <typename T>
void check_schedules(const std::vector<Prompt>& prompts, std::initializer_list<Ops*> tables,
                     const std::function<std::vector<T>(Ops&, const Schedule&, uint64_t)>& run) {
  const std::vector<T> want = run(**tables.begin(), one_call_each(prompts), 1);
  int threads = 1;
  for (Ops* ops : tables) {
    const auto check = [&](const Schedule& schedule, const std::string& what, uint64_t seed) {
      expect_same_bits(run(*ops, schedule, seed), want,
                       fmt::format("{} on {} threads", what, threads));
    };
    check(one_call_each(prompts), "other cache blocks", 5);
    check(together(prompts), "one batch", 2);
    check(together(prompts, true), "one batch, reversed", 3);
    check(token_by_token(prompts), "one token at a time", 4);
    for (const int longest : {3, 17, 64, 100}) {
      check(random_cuts(prompts, longest, sz(longest)), fmt::format("cuts up to {}", longest), 6);
    }
    threads += 2;
  }
}

TEST_P(InvarianceTest, Gqa) {
  for (const GqaShape& shape : {GqaShape{4, 2, 16},
                                {3, 1, 20},
                                {2, 2, 128},
                                {4, 2, 16, 6, {0.5f, -1.0f, 2.0f, 9.0f}},
                                {3, 1, 20, 100}}) {
    reserve(shape.spec());
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("heads {} d {} {}", shape.heads, shape.d, dtype_name(dtype)));
      const auto prompts = random_prompts(prng_, {65, 1, 130, 64, 17}, shape.widths(), dtype);
      check_schedules<float>(prompts, {one_.get(), three_.get()},
                             [&](Ops& ops, const Schedule& schedule, uint64_t seed) {
                               return shape.run(ops, prompts, dtype, schedule, seed);
                             });
    }
  }
}

TEST_P(InvarianceTest, Mla) {
  for (const MlaShape& shape : {MlaShape{2, 24, 16, 20, 32},
                                {1, 16, 8, 16, 33},
                                {2, 24, 16, 20, 32, 8},
                                {1, 16, 8, 24, 64, 70}}) {
    reserve(shape.spec());
    const std::vector<Stored> kv_b = shape.random_heads(prng_, DType::bf16);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("nope {} topk {} {}", shape.nope, shape.topk, dtype_name(dtype)));
      auto prompts = random_prompts(prng_, {65, 1, 130, 64, 17}, shape.widths(), dtype);
      prompts[2].prompt = 90;  // generated from here on
      prompts[3].prompt = 63;
      if (shape.topk > 0) select_randomly(prng_, shape.topk, &prompts);
      const std::vector<MlaHead> of_one = shape.pack(*one_, kv_b, arena_);
      const std::vector<MlaHead> of_three = shape.pack(*three_, kv_b, arena_);
      check_schedules<float>(prompts, {one_.get(), three_.get()},
                             [&](Ops& ops, const Schedule& schedule, uint64_t seed) {
                               const auto& packed = &ops == one_.get() ? of_one : of_three;
                               return shape.run(ops, packed, prompts, dtype, schedule, seed);
                             });
    }
  }
}

TEST_P(InvarianceTest, Indexer) {
  for (const IndexShape& shape : {IndexShape{4, 16, 8}, {2, 128, 66}}) {
    reserve(shape.spec());
    for (const DType dtype : {DType::f32, DType::bf16}) {
      // Equal keys give exactly equal scores: the tie must fall alike in every cut.
      auto prompts = random_prompts(prng_, {65, 1, 130, 64, 17}, shape.widths(), dtype);
      for (Prompt& p : prompts) {
        for (int i = 3; i < p.length; ++i) {
          if (i % 3 != 0) continue;
          std::copy_n(p.kv.begin(), shape.dim, p.kv.begin() + i * shape.dim);
        }
      }
      for (const int parts : {1, 3}) {
        check_schedules<int32_t>(prompts, {one_.get(), three_.get()},
                                 [&](Ops& ops, const Schedule& schedule, uint64_t seed) {
                                   return shape.run(ops, prompts, dtype, schedule, parts, seed);
                                 });
      }
    }
  }
}

}  // namespace
}  // namespace asap::optest
