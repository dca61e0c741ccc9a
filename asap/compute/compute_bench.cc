// compute_bench [threads [filter [isa]]]: speed of the CPU ops, each as GFLOP/s and as a share of a
// loop of fused multiply-adds that runs between its repetitions, on the same threads. Absolute
// numbers move with the clock and the neighbours; the ratios stay. Weights rotate over more memory
// than the caches hold. Int8 takes turns with bfloat16, and is shown as a multiple of it too.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "asap/base/prng.h"
#include "asap/compute/convert.h"
#include "asap/compute/isa.h"
#include "asap/compute/measure.h"
#include "asap/compute/ops.h"

namespace asap {

namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 0.05;
constexpr uint64_t kColdBytes = uint64_t{128} << 20;

// CPU time of the process: on a shared machine wall time measures the neighbours. It does not see
// threads that wait.
Instant cpu_now() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return {int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

// Stored random matrices; the bytes live as long as the object.
struct Stored {
  std::vector<std::vector<std::byte>> buffers;
  TensorView matrix(Prng& prng, int rows, int cols, DType dtype) {
    const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
    buffers.emplace_back(count * dtype_bytes(dtype));
    std::byte* data = buffers.back().data();
    const float scale = 1.0f / std::sqrt(static_cast<float>(cols));
    for (size_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(prng.uniform() - 0.5) * scale;
      const uint16_t narrow = f32_to_bf16(value);
      if (dtype == DType::bf16) std::memcpy(data + 2 * i, &narrow, 2);
      if (dtype == DType::f32) std::memcpy(data + 4 * i, &value, 4);
    }
    TensorView view;
    view.dtype = dtype;
    view.rows = rows;
    view.cols = cols;
    view.stride = cols;
    view.data = data;
    return view;
  }
};

std::vector<float> random_floats(Prng& prng, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) value = static_cast<float>(prng.uniform() * 2 - 1);
  return out;
}

class Bench {
 public:
  Bench(int threads, std::string filter, const std::string& isa)
      : team(threads),
        ops(make_ops_cpu(team, isa)),
        filter_(std::move(filter)),
        ceiling_(team, ops->isa(), cpu_now) {
    fmt::print("isa {}, {} thread(s); median of {} rounds\n", ops->isa(), threads, kRounds);
    fmt::print("{:<44}{:>10}{:>10}{:>8}{:>10}\n", "", "GFLOP/s", "FMA loop", "ratio", "to bf16");
  }

  bool wants(const std::string& name) const { return name.find(filter_) != std::string::npos; }

  using Op = std::function<void()>;
  // `fn` runs the op once; `flops` of one run.
  void measure(const std::string& name, double flops, const Op& fn) {
    compare(name, flops, fn, nullptr);
  }
  // The same, in turns with `other`, of as many operations.
  void compare(const std::string& name, double flops, const Op& fn, const Op& other) {
    const int runs = runs_of(fn);
    const int other_runs = other ? runs_of(other) : 0;
    std::vector<double> rates, ceilings, ratios, factors;
    for (int round = 0; round < kRounds; ++round) {
      const double ceiling = 1e-9 * ceiling_.flops_per_second();
      rates.push_back(rate(fn, runs, flops));
      ceilings.push_back((ceiling + 1e-9 * ceiling_.flops_per_second()) / 2);
      ratios.push_back(rates.back() / ceilings.back());
      if (other) factors.push_back(rates.back() / rate(other, other_runs, flops));
    }
    fmt::print("{:<44}{:>10.1f}{:>10.1f}{:>8.2f}{}\n", name, median(rates), median(ceilings),
               median(ratios), other ? fmt::format("{:>10.2f}", median(factors)) : "");
    std::fflush(stdout);
  }

  Team team;
  std::unique_ptr<Ops> ops;
  Prng prng{1};

 private:
  static int runs_of(const Op& fn) {
    fn();
    const Instant begin = cpu_now();
    fn();
    return std::max(1, static_cast<int>(kRoundSeconds / (cpu_now() - begin).to_seconds()));
  }
  static double rate(const Op& fn, int runs, double flops) {
    const Instant begin = cpu_now();
    for (int i = 0; i < runs; ++i) fn();
    return flops * runs / (cpu_now() - begin).to_seconds() * 1e-9;
  }

  std::string filter_;
  FmaCeiling ceiling_;
};

// A matrix packed again and again, so that it comes from memory.
std::vector<Matrix> cold_copies(Bench& bench, const TensorView& view, Arena& arena) {
  std::vector<Matrix> copies;
  for (uint64_t bytes = 0; bytes < kColdBytes; bytes += copies.back().bytes) {
    copies.push_back(bench.ops->pack(view, arena));
  }
  return copies;
}

void bench_linear(Bench& bench, int n, int k, DType dtype, std::initializer_list<int> rows) {
  const std::string shape = fmt::format("linear {} N {} K {}", dtype_name(dtype), n, k);
  if (!bench.wants(shape)) return;
  Stored stored;
  Arena arena;
  const TensorView view = stored.matrix(bench.prng, n, k, dtype);
  const std::vector<Matrix> copies = cold_copies(bench, view, arena);
  for (const int m : rows) {
    const std::vector<float> x = random_floats(bench.prng, int64_t{m} * k);
    std::vector<float> y(static_cast<size_t>(m) * static_cast<size_t>(n));
    size_t next = 0;
    bench.measure(fmt::format("{} M {}", shape, m), 2.0 * n * k * m, [&] {
      bench.ops->linear(copies[next++ % copies.size()], x.data(), m, k, y.data(), n);
    });
  }
}

// The quantisation of the rows is part of it.
void bench_int8_linear(Bench& bench, int n, int k, std::initializer_list<int> rows) {
  const std::string shape = fmt::format("linear int8 N {} K {}", n, k);
  if (!bench.wants(shape)) return;
  ModelSpec spec;
  spec.hidden = k;
  bench.ops->reserve(spec, {std::max(rows), 0, 0});
  Stored stored;
  Arena arena;
  TensorView view = stored.matrix(bench.prng, n, k, DType::bf16);
  const std::vector<Matrix> bf16 = cold_copies(bench, view, arena);
  view.as_int8 = true;
  const std::vector<Matrix> int8 = cold_copies(bench, view, arena);
  for (const int m : rows) {
    const std::vector<float> x = random_floats(bench.prng, int64_t{m} * k);
    std::vector<float> y(static_cast<size_t>(m) * static_cast<size_t>(n));
    size_t next = 0;
    const auto run = [&](const std::vector<Matrix>& copies) {
      bench.ops->linear(copies[next++ % copies.size()], x.data(), m, k, y.data(), n);
    };
    bench.compare(
        fmt::format("{} M {}", shape, m), 2.0 * n * k * m, [&] { run(int8); }, [&] { run(bf16); });
  }
}

// Work in which token i takes `top_k` consecutive experts from a random one.
struct RandomWork {
  std::vector<int32_t> offsets, tokens, token_offsets, token_rows;
  std::vector<float> weights;
  std::vector<std::byte> hidden;
  std::vector<const std::byte*> payload;
  std::vector<float> out;

  ExpertWork make(Prng& prng, int count, int experts, int top_k, int width, DType dtype) {
    std::vector<std::vector<int32_t>> chosen(static_cast<size_t>(experts));
    for (int t = 0; t < count; ++t) {
      const auto first = static_cast<int>(prng.below(static_cast<uint64_t>(experts)));
      for (int i = 0; i < top_k; ++i) {
        chosen[static_cast<size_t>((first + i * 17) % experts)].push_back(t);
      }
    }
    std::vector<std::vector<int32_t>> rows(static_cast<size_t>(count));
    offsets.push_back(0);
    for (const auto& list : chosen) {
      for (const int32_t t : list) {
        rows[static_cast<size_t>(t)].push_back(static_cast<int32_t>(tokens.size()));
        tokens.push_back(t);
      }
      offsets.push_back(static_cast<int32_t>(tokens.size()));
    }
    token_offsets.push_back(0);
    for (const auto& list : rows) {
      token_rows.insert(token_rows.end(), list.begin(), list.end());
      token_offsets.push_back(static_cast<int32_t>(token_rows.size()));
    }
    weights.assign(tokens.size(), 1.0f / static_cast<float>(top_k));
    const size_t row_bytes = static_cast<size_t>(width) * dtype_bytes(dtype);
    hidden.resize(row_bytes * static_cast<size_t>(count));
    for (int t = 0; t < count; ++t) {
      payload.push_back(hidden.data() + static_cast<size_t>(t) * row_bytes);
    }
    out.resize(static_cast<size_t>(count) * static_cast<size_t>(width));
    return {0,
            count,
            offsets,
            tokens.data(),
            weights.data(),
            token_offsets.data(),
            token_rows.data(),
            payload.data(),
            dtype,
            out.data()};
  }
};

// Qwen3-30B-A3B: hidden 2048, 128 experts, 8 per token, width 768. Int8 takes turns with bf16.
void bench_experts(Bench& bench, DType dtype, std::initializer_list<int> token_counts) {
  constexpr int kHidden = 2048, kExperts = 128, kTopK = 8, kWidth = 768;
  const std::string name = fmt::format("experts q3 {}", dtype_name(dtype));
  if (!bench.wants(name)) return;
  ModelSpec spec;
  spec.hidden = kHidden;
  spec.experts = kExperts;
  spec.moe_intermediate = kWidth;
  const int most = std::max(token_counts);
  bench.ops->reserve(spec, {most, 0, most * kTopK});
  const bool int8 = dtype == DType::i8;
  const DType float_type = int8 ? DType::bf16 : dtype;
  Stored stored;
  Arena arena;
  FfnViews ffn;
  ffn.gate = stored.matrix(bench.prng, kWidth, kHidden, float_type);
  ffn.up = stored.matrix(bench.prng, kWidth, kHidden, float_type);
  ffn.down = stored.matrix(bench.prng, kHidden, kWidth, float_type);
  const auto pack = [&] {
    std::vector<ExpertMatrix> out;
    for (int e = 0; e < kExperts; ++e) out.push_back(bench.ops->pack_expert(ffn, arena));
    return out;
  };
  const std::vector<ExpertMatrix> floats = pack();
  for (TensorView* view : {&ffn.gate, &ffn.up, &ffn.down}) view->as_int8 = int8;
  const std::vector<ExpertMatrix> chosen = int8 ? pack() : floats;
  for (const int tokens : token_counts) {
    RandomWork random;
    const ExpertWork work = random.make(bench.prng, tokens, kExperts, kTopK, kHidden, float_type);
    const double flops = 6.0 * kHidden * kWidth * kTopK * tokens;
    const auto run = [&](const std::vector<ExpertMatrix>& experts) {
      bench.ops->experts({1, kExperts, experts}, work);
    };
    const Bench::Op other = [&] { run(floats); };
    bench.compare(
        fmt::format("{} T {}", name, tokens), flops, [&] { run(chosen); }, int8 ? other : nullptr);
  }
}

struct Context {
  std::vector<std::byte> bytes;
  std::vector<int32_t> blocks;
  KvCache cache;
  Context(int tokens, int width, DType dtype) {
    blocks.resize(static_cast<size_t>((tokens + kKvBlock - 1) / kKvBlock));
    std::iota(blocks.begin(), blocks.end(), 0);
    bytes.resize(blocks.size() * kKvBlock * static_cast<size_t>(width) * dtype_bytes(dtype));
    cache = {bytes.data(), dtype, width};
  }
};

// Causal pairs count once: work above the diagonal is a loss.
double causal_flops(int tokens, int heads, int widths) {
  return 2.0 * heads * widths * (0.5 * tokens * (tokens + 1.0));
}

void bench_gqa(Bench& bench, int tokens, int heads, int kv_heads, int d) {
  const std::string name = fmt::format("gqa {}/{}x{} S {}", heads, kv_heads, d, tokens);
  if (!bench.wants(name)) return;
  ModelSpec spec;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = d;
  bench.ops->reserve(spec, {tokens, tokens, 0});
  Context context(tokens, 2 * kv_heads * d, DType::bf16);
  const std::vector<float> q = random_floats(bench.prng, int64_t{tokens} * heads * d);
  std::vector<float> out(q.size());
  const Sequence sequence{0, tokens, 0, tokens, context.blocks.data()};
  const GqaArgs args{{&sequence, 1}, q.data(), context.cache, heads,     kv_heads, d,
                     0.1f,           0,        nullptr,       out.data()};
  bench.measure(name, causal_flops(tokens, heads, 2 * d), [&] { bench.ops->attention_gqa(args); });
}

// DeepSeek shapes: nope 128, rope 64, v 128, latent 512. The flops are those of the expanded form,
// expansion included; `decode`: one generated row per sequence, absorbed.
void bench_mla(Bench& bench, int tokens, int heads, bool decode) {
  constexpr int kNope = 128, kRope = 64, kV = 128, kLatent = 512;
  const std::string name =
      fmt::format("mla {} {} heads S {}", decode ? "absorbed 1 row" : "expanded", heads, tokens);
  if (!bench.wants(name)) return;
  ModelSpec spec;
  spec.attention = AttentionKind::mla;
  spec.heads = heads;
  spec.kv_lora = kLatent;
  spec.qk_nope = kNope;
  spec.qk_rope = kRope;
  spec.v_head = kV;
  bench.ops->reserve(spec, {tokens, tokens, 0});
  Stored stored;
  Arena arena;
  std::vector<MlaHead> packed;
  const TensorView kv_b = stored.matrix(bench.prng, kNope + kV, kLatent, DType::bf16);
  for (int h = 0; h < heads; ++h) {
    packed.push_back(bench.ops->pack_mla_head(kv_b, kNope, kV, arena));
  }
  Context context(tokens, kLatent + kRope, DType::bf16);
  const int rows = decode ? 1 : tokens;
  const std::vector<float> q = random_floats(bench.prng, int64_t{rows} * heads * (kNope + kRope));
  std::vector<float> out(static_cast<size_t>(rows) * static_cast<size_t>(heads) * kV);
  const Sequence sequence{0, rows, tokens - rows, decode ? tokens - 1 : tokens,
                          context.blocks.data()};
  MlaArgs args{{&sequence, 1}, q.data(), context.cache, packed, kNope, kRope, kV, kLatent, 0.1f};
  args.out = out.data();
  const double expand = 2.0 * heads * tokens * kLatent * (kNope + kV);
  const double expanded = expand + causal_flops(tokens, heads, kNope + kRope + kV);
  const double absorbed = 2.0 * heads * tokens * (2 * kLatent + kRope);
  bench.measure(name, decode ? absorbed : expanded, [&] { bench.ops->attention_mla(args); });
}

int run(int threads, const std::string& filter, const std::string& isa) {
  if (find_kernels(isa) == nullptr) {
    fmt::print(stderr, "this machine has no kernels for {}\n", isa);
    return 2;
  }
  Bench bench(threads, filter, isa);
  for (const auto& [n, k] : {std::pair(768, 2048), {2048, 768}, {7168, 2048}, {2048, 7168}}) {
    bench_linear(bench, n, k, DType::bf16, {1, 8, 32, 128, 512});
  }
  bench_linear(bench, 2048, 2048, DType::f32, {8, 32, 128, 512});
  bench_experts(bench, DType::bf16, {64, 512, 2048});
  bench_experts(bench, DType::f32, {512});
  for (const auto& [n, k] : {std::pair(768, 2048), {2048, 768}, {7168, 2048}, {2048, 7168}}) {
    bench_int8_linear(bench, n, k, {1, 8, 32, 128, 512});
  }
  bench_experts(bench, DType::i8, {64, 512, 2048});
  for (const int tokens : {512, 2048, 4096}) bench_gqa(bench, tokens, 32, 4, 128);
  bench_mla(bench, 2048, 16, false);
  for (const int heads : {16, 128}) bench_mla(bench, 4096, heads, true);
  return 0;
}

}  // namespace

}  // namespace asap

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  return asap::run(threads, argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
}
