#include "asap/sim/sim_point.h"

#include <filesystem>

#include "asap/load/report.h"
#include "asap/sim/simulate.h"

namespace asap {

namespace {

// Rows of a trace between two repetitions: longer than any run at the rates of interest.
constexpr int kRowsBetweenRepeats = 2000;
// More waiting requests than this are beyond what any instance here works off: the run is over.
constexpr int kMaxWaiting = 3000;

Status apply(const SimChanges& c, EngineConfig& config) {
  if (c.stages) config.stages = *c.stages;
  if (c.regions) config.regions = *c.regions;
  if (c.overlap) config.overlap = *c.overlap;
  if (c.super_kernel) config.super_kernel = *c.super_kernel;
  if (c.refill) config.pairing = *c.refill ? "refill" : "paper";
  if (c.exclusive_tokens) config.exclusive_tokens = *c.exclusive_tokens;
  if (c.split_tokens) {
    config.chain_prefill = *c.split_tokens > 0 ? 1 : 0;
    if (*c.split_tokens > 0) config.max_num_batched_tokens = *c.split_tokens;
  }
  if (c.self_pair_tokens) {
    config.split_lone_tokens = *c.self_pair_tokens;
    if (*c.self_pair_tokens > 0) config.chain_prefill = 1;
  }
  if (c.wait && !*c.wait) {
    config.batch_wait_ms = 0;
    config.partner_wait_ms = 0;
  }
  if (c.aged_order) config.queue_order = *c.aged_order ? "aged" : "fcfs";
  if (c.merge_items) config.expert_order = *c.merge_items ? "merge" : "round_robin";
  if (c.dp) config.data_parallel_size = *c.dp;
  if (c.tp) config.tensor_parallel_size = *c.tp;
  if (c.ep) config.num_moe_ranks = *c.ep;
  const bool paper = config.scheduler == "paper" && config.pairing != "refill";
  if (config.chain_prefill == 1 && paper) {
    return fail(Code::unsupported,
                "parts of a prompt ride on several stages only where freed stages are refilled");
  }
  return {};
}

}  // namespace

Result<EngineConfig> config_of(const SimPoint& point) {
  EngineConfig config;
  config.profile = point.settings.profile;
  config.max_num_seqs = 256;
  config.tensor_parallel_size = 4;
  config.expert_skew = point.settings.expert_skew;
  if (point.engine == kAsap || point.engine == kAsapPaper) {
    config.scheduler = point.engine == kAsap ? "asap" : "paper";
    config.data_parallel_size = 4;
    config.num_moe_ranks = 16;
  } else if (point.engine == kDefault || point.engine == kChunked) {
    config.scheduler = point.engine;
    config.data_parallel_size = 8;
  } else {
    return fail(Code::invalid, "no such engine: {}", point.engine);
  }
  ASAP_TRY(apply(point.settings.changes, config));
  return config;
}

Result<LoadReport> simulate_point(const SimPoint& point) {
  ASAP_ASSIGN(EngineConfig config, config_of(point));
  WorkloadSpec spec;
  spec.rate = point.rate;
  spec.seconds = point.settings.seconds;
  std::error_code error;
  if (std::filesystem::is_regular_file(point.settings.workload, error)) {
    spec.trace_file = point.settings.workload;
    spec.row_offset = point.repeat * kRowsBetweenRepeats;
  } else {
    ASAP_ASSIGN(spec.lengths, parse_length_law(point.settings.workload));
    spec.seed = static_cast<uint64_t>(point.repeat) + 1;
  }
  ASAP_ASSIGN(const std::vector<Arrival> workload, make_workload(spec));
  config.seed = static_cast<uint64_t>(point.repeat) + 1;
  SimulationLimits limits;
  limits.max_waiting = kMaxWaiting;
  ASAP_ASSIGN(const SimulationResult result,
              simulate(std::move(config), workload, limits, nullptr));
  return make_report(result.load);
}

}  // namespace asap
