#include "asap/sim/candidates.h"

#include <algorithm>

#include "asap/compute/attention_side.h"
#include "asap/model/inspect.h"
#include "asap/runtime/profile.h"
#include "asap/runtime/profile_transfer.h"
#include "asap/sim/simulate.h"

namespace asap {

namespace {

constexpr int kPaperRanks = 4;

bool is_lockstep(const std::string& engine) {
  return engine == "default" || engine == "chunked";
}

// Mean work of one request on each kind of device, seconds, without what a batch costs at any size.
AnalyticLoad load_of(const EngineConfig& c, const CostProfile& p, const ModelSpec& spec,
                     const std::vector<Arrival>& workload) {
  const int t = c.tensor_parallel_size;
  const int e = c.num_moe_ranks;
  const bool lockstep = in_lockstep(c);
  AnalyticLoad sum;
  for (const Arrival& a : workload) {
    const int n = a.prompt_tokens;
    const double pairs = double(n) * n;
    const Duration own = p.attention(n, pairs, t) - p.attention(0, 0, t) + p.collectives(n, t);
    const Duration exchange = lockstep
                                  ? p.all_to_all(n, t) - p.all_to_all(0, t)
                                  : p.dispatch(n, t) - p.dispatch(0, t) + p.add(n, t) - p.add(0, t);
    sum.attention += spec.layers * own.to_seconds() + spec.moe_layers() * exchange.to_seconds();
    // Items share a kernel's plateau, so the slope is what a token costs at least.
    sum.experts += spec.moe_layers() * 1e-3 * p.m * (n / kKiloTokens) * p.ref_ep / e;
    sum.send += spec.moe_layers() * (p.combine(n, t) - p.combine(0, t)).to_seconds();
  }
  const double span = workload.empty() ? 1 : std::max(1e-3, workload.back().at);
  AnalyticLoad out{sum.attention / span / c.data_parallel_size, sum.experts / span,
                   lockstep ? 0 : sum.send / span, 0};
  out.busiest =
      lockstep ? out.attention + out.experts : std::max({out.attention, out.experts, out.send});
  return out;
}

Result<Candidate> make_candidate(EngineConfig config, const CostProfile& profile,
                                 const std::vector<Arrival>& workload) {
  Candidate out;
  const int kv_cache_tokens = config.kv_cache_tokens;
  ASAP_ASSIGN(out.config, simulated_config(std::move(config), workload));
  out.config.kv_cache_tokens = kv_cache_tokens;
  EngineConfig real = out.config;  // priced windows have no rows
  real.ops = "cpu";
  ASAP_ASSIGN(const ModelSpec spec, load_engine_spec(real));
  ASAP_ASSIGN(const EnginePlan plan, make_plan(real, spec, 1));
  out.config.kv_cache_tokens = plan.kv_blocks * kKvBlock;
  const MemoryPlan memory = memory_plan(real, spec, plan, kept_type(real, spec, nullptr));
  out.attention = memory.attention;
  out.attention.weights +=
      attention_rank_bytes(spec, plan.geometry.ranks, memory.weights).embedding;
  out.expert = memory.expert;
  ASAP_ASSIGN(const CostProfile prices, profile_for(profile, spec));
  out.load = load_of(out.config, prices, spec, workload);
  return out;
}

// D, T, E and R of `engine` on `shared`.
EngineConfig shaped(const EngineConfig& shared, const std::string& engine, int d, int t, int e,
                    int r) {
  EngineConfig config = shared;
  config.scheduler = engine;
  config.data_parallel_size = d;
  config.tensor_parallel_size = t;
  config.num_moe_ranks = is_lockstep(engine) ? 0 : e;
  config.stages = engine == "asap" ? r : 0;
  return config;
}

struct Shape {
  int d, t, e;
};

// E of the asynchronous engines is what D·T leaves.
std::vector<Shape> shapes_of(const std::string& engine, int devices, const ModelSpec& spec) {
  std::vector<Shape> out;
  for (int t = 1; t <= devices; ++t) {
    if (spec.heads % t != 0 || !check_tensor_parallel(spec, t)) continue;
    if (is_lockstep(engine)) {
      const int d = std::min(64, devices / t);
      if (d * t <= spec.experts) out.push_back({d, t, d * t});
      continue;
    }
    for (int d = 1; d <= 64 && d * t < devices; ++d) {
      out.push_back({d, t, std::min({devices - d * t, spec.experts, 256})});
    }
  }
  return out;
}

}  // namespace

uint64_t Candidate::memory() const {
  if (in_lockstep(config)) return attention.total() + expert.total();
  return std::max(attention.total(), expert.total());
}

std::string Candidate::name() const {
  if (in_lockstep(config)) {
    return fmt::format("{} {}x{}", config.scheduler, config.data_parallel_size,
                       config.tensor_parallel_size);
  }
  return fmt::format("{} {}x{}+{} R={}", config.scheduler, config.data_parallel_size,
                     config.tensor_parallel_size, config.num_moe_ranks, config.stages);
}

Result<std::vector<Candidate>> make_candidates(const EngineConfig& shared,
                                               const CandidateSpace& space,
                                               const std::vector<Arrival>& workload) {
  ASAP_ASSIGN(const CostProfile profile, load_profile(shared.profile));
  ASAP_ASSIGN(const EngineConfig named, simulated_config(shared, workload));
  ASAP_ASSIGN(const ModelSpec spec, load_engine_spec(named));
  std::vector<Candidate> out;
  for (const std::string& engine : space.engines) {
    const std::vector<int> stages = engine == "asap" ? space.stages : std::vector<int>{0};
    for (const Shape& s : shapes_of(engine, space.devices, spec)) {
      for (const int r : stages) {
        ASAP_ASSIGN(Candidate candidate,
                    make_candidate(shaped(shared, engine, s.d, s.t, s.e, r), profile, workload));
        out.push_back(std::move(candidate));
      }
    }
  }
  if (!out.empty()) return out;
  return fail(Code::invalid,
              "--num-devices {} is too few for {}: attention and experts need a device each; give "
              "2 or more",
              space.devices, fmt::join(space.engines, ", "));
}

Result<std::vector<Candidate>> paper_geometry(const EngineConfig& shared,
                                              const CandidateSpace& space,
                                              const std::vector<Arrival>& workload) {
  std::vector<Candidate> out;
  const int half = space.devices / 2;
  if (half == 0) return out;
  ASAP_ASSIGN(const CostProfile profile, load_profile(shared.profile));
  ASAP_ASSIGN(const EngineConfig named, simulated_config(shared, workload));
  ASAP_ASSIGN(const ModelSpec spec, load_engine_spec(named));
  int t = std::min(kPaperRanks, half);
  while (spec.heads % t != 0 || !check_tensor_parallel(spec, t)) --t;
  const int experts = std::min({space.devices - half, spec.experts, 256});
  for (const std::string& engine : space.engines) {
    if (is_lockstep(engine)) continue;
    const EngineConfig config = shaped(shared, engine, std::min(64, half / t), t, experts, 3);
    ASAP_ASSIGN(Candidate candidate, make_candidate(config, profile, workload));
    out.push_back(std::move(candidate));
  }
  return out;
}

}  // namespace asap
