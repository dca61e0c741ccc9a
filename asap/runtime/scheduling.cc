#include "asap/runtime/scheduling.h"

#include <algorithm>

namespace asap {

namespace {

// Where costs are not in seconds, a full batch of short prompts is taken to cost this much.
constexpr Duration kFullBatch = Duration::millis(50);

template <typename T>
void choose(T& value, T unset, T chosen) {
  if (value == unset) value = chosen;
}

Status check_names(const EngineConfig& c) {
  const auto one_of = [](const char* flag, const std::string& value,
                         std::initializer_list<const char*> names) -> Status {
    if (std::find(names.begin(), names.end(), value) != names.end()) return {};
    std::string list;  // without the unset one
    for (const std::string name : names) list += (list.empty() ? "" : ", ") + name;
    return fail(Code::invalid, "{} is \"{}\"; it must be one of {}", flag, value, list);
  };
  ASAP_TRY(one_of("--scheduler", c.scheduler, {"asap", "paper", "default", "chunked"}));
  ASAP_TRY(one_of("--pairing", c.pairing, {"", "refill", "paper"}));
  ASAP_TRY(one_of("--link", c.link, {"onesided", "p2p"}));
  ASAP_TRY(one_of("--queue-order", c.queue_order, {"", "aged", "fcfs"}));
  return one_of("--expert-order", c.expert_order, {"", "round_robin", "oldest", "merge"});
}

// Of resolved choices.
Status check_lockstep(const EngineConfig& config) {
  if (!in_lockstep(config)) return {};
  if (config.stages != 1) {
    return fail(
        Code::invalid,
        "--stages is {}; with --scheduler {} a group has one batch at a time: leave --stages "
        "out or give 1",
        config.stages, config.scheduler);
  }
  const int devices = config.data_parallel_size * config.tensor_parallel_size;
  if (config.num_moe_ranks != devices) {
    return fail(Code::invalid,
                "--num-moe-ranks is {}, but --scheduler {} puts the experts on the {} attention "
                "devices (--data-parallel-size {} x --tensor-parallel-size {}): leave "
                "--num-moe-ranks out or give {}",
                config.num_moe_ranks, config.scheduler, devices, config.data_parallel_size,
                config.tensor_parallel_size, devices);
  }
  return {};
}

}  // namespace

Result<EngineConfig> resolve_scheduling(EngineConfig c) {
  ASAP_TRY(check_names(c));
  const bool paper = c.scheduler == "paper";
  const std::string none;
  const bool lockstep = in_lockstep(c);
  choose(c.num_moe_ranks, 0, lockstep ? c.data_parallel_size * c.tensor_parallel_size : 1);
  choose(c.stages, 0, lockstep ? 1 : paper ? 2 : 3);
  choose(c.regions, 0, c.stages);
  choose(c.max_num_batched_tokens, 0, lockstep ? 3072 : 2048);
  choose(c.pairing, none, std::string(paper ? "paper" : "refill"));
  choose(c.queue_order, none, std::string(paper || lockstep ? "fcfs" : "aged"));
  choose(c.expert_order, none, std::string("round_robin"));
  choose(c.queue_kappa, -1.0, 4.0);
  choose(c.batch_wait_ms, -1, c.scheduler == "default" ? 60 : lockstep ? 0 : 30);
  choose(c.partner_wait_ms, -1, paper ? 40 : 0);
  choose(c.exclusive_tokens, -1, paper ? 16384 : 0);
  if (c.scheduler == "chunked") choose(c.chunked_prefill_size, 0, 8192);
  if (c.chunked_prefill_size != 0 && c.scheduler != "chunked") {
    return fail(Code::invalid,
                "--chunked-prefill-size is of --scheduler chunked; with {} it is "
                "--max-num-batched-tokens that cuts prompts",
                c.scheduler);
  }
  choose(c.chain_prefill, -1, paper || lockstep ? 0 : 1);
  choose(c.max_shared_batch_tokens, -1, paper ? 12288 : 0);
  if (!c.length_aware_batching) {
    c.exclusive_tokens = 0;
    c.split_lone_tokens = 0;
    c.max_shared_batch_tokens = 0;
    c.queue_order = "fcfs";
  }
  if (c.regions > c.stages) {
    return fail(Code::invalid,
                "--regions is {}, but a group has {} stages (--stages), which have one item each: "
                "give at most {}, or 0",
                c.regions, c.stages, c.stages);
  }
  if (c.pairing == "paper" && c.chain_prefill == 1) {
    return fail(Code::invalid,
                "--chain-prefill needs --pairing refill: the paper's pairs start together");
  }
  ASAP_TRY(check_lockstep(c));
  if (lockstep && c.link == "p2p") {
    return fail(Code::invalid,
                "--link p2p with --scheduler {}: a worker there plays two roles on one thread, and "
                "would wait for itself; leave --link out",
                c.scheduler);
  }
  return c;
}

// The queue's default bound: prompts of so many of the longest sequences for each group.
constexpr int64_t kQueuedSequences = 64;

SchedulerLimits scheduler_limits(const EngineConfig& config, const EnginePlan& plan, int layers) {
  SchedulerLimits limits;
  limits.groups = plan.geometry.groups;
  limits.stages = plan.geometry.stages;
  limits.max_batch_tokens = plan.geometry.max_batch_tokens;
  limits.max_batch_seqs = plan.geometry.max_batch_seqs;
  limits.kv_blocks = plan.kv_blocks;
  limits.knee_tokens = config.length_aware_batching ? plan.knee_tokens : 0;
  // Priced kernels may be slowed down; then everything that waits is.
  const double scale = config.ops == "priced" ? config.time_scale : 1;
  limits.max_wait = Duration::seconds(config.batch_wait_ms * 1e-3 * scale);
  limits.partner_wait = Duration::seconds(config.partner_wait_ms * 1e-3 * scale);
  limits.max_queued = config.max_num_queued_reqs;
  if (config.max_num_queued_tokens >= 0) {
    limits.max_queued_tokens = config.max_num_queued_tokens > 0
                                   ? config.max_num_queued_tokens
                                   : kQueuedSequences * plan.max_model_len * limits.groups;
  }
  limits.cost = plan.cost;
  limits.pairing = config.pairing == "paper" ? Pairing::paper : Pairing::refill;
  limits.exclusive_tokens = config.exclusive_tokens;
  limits.lockstep = plan.geometry.lockstep;
  limits.cut_to_share = config.scheduler == "chunked";
  const int shared = config.scheduler == "default" ? config.max_num_batched_tokens
                                                   : config.max_shared_batch_tokens;
  limits.max_shared_tokens =
      shared > 0 ? std::min(shared, limits.max_batch_tokens) : limits.max_batch_tokens;
  limits.share_backlog = config.length_aware_batching;
  limits.chain = config.chain_prefill == 1;
  limits.split_lone_tokens = config.split_lone_tokens >= 0 ? config.split_lone_tokens
                             : !limits.chain               ? 0
                                                           : std::max(2, plan.knee_tokens / 2);
  if (config.queue_order == "aged") {
    limits.kappa_ns = config.profile.empty()
                          ? config.queue_kappa * static_cast<double>(kFullBatch.ns) /
                                (limits.cost.token * limits.max_shared_tokens)
                          : config.queue_kappa * 1e9 * layers * scale;
  }
  return limits;
}

CostModel cost_of(const ModelSpec& spec) {
  const double heads = spec.heads;
  const double pair = heads * (spec.qk_head() + spec.v_head_width()) / 2.0;
  const double projections =
      spec.attention == AttentionKind::gqa
          ? double(spec.hidden) * spec.head_dim * (2.0 * heads + 2.0 * spec.kv_heads)
          : double(spec.hidden) * (spec.q_lora + spec.kv_lora + spec.qk_rope) +
                heads * (spec.q_lora > 0 ? spec.q_lora : spec.hidden) * spec.qk_head() +
                heads * (spec.kv_lora * (spec.qk_nope + spec.v_head) +
                         double(spec.v_head) * spec.hidden);
  const double ffn =
      3.0 * spec.hidden * (double(spec.moe_intermediate) * spec.top_k + spec.shared_intermediate);
  return {pair, projections + ffn, 0};
}

}  // namespace asap
