#include "tests/golden_support.h"

#include <algorithm>
#include <filesystem>

#include "asap/base/check.h"

namespace asap::test {

namespace {

namespace fs = std::filesystem;

template <typename T>
T value_or_die(Result<T> result) {
  CHECK(result.has_value(), "{}", result.error().message);
  return std::move(*result);
}

}  // namespace

std::string golden_directory(const std::string& name) {
  return std::string(ASAP_SOURCE_DIR) + "/tests/golden/" + name;
}

std::vector<std::string> golden_names() {
  std::vector<std::string> out;
  for (const std::string& directory : value_or_die(find_goldens(golden_directory("")))) {
    out.push_back(fs::path(directory).filename().string());
  }
  return out;
}

Golden golden_named(const std::string& name) {
  return value_or_die(load_golden(golden_directory(name)));
}

namespace {

EngineConfig config_of(const Setup& setup, const ModelSpec& spec, int d, int r,
                       int max_batch_tokens, const std::string& scheduler) {
  EngineConfig config;
  config.model = setup.model;
  config.data_parallel_size = d;
  config.tensor_parallel_size = setup.t;
  config.num_moe_ranks = setup.e;
  config.stages = r;
  config.scheduler = scheduler;
  config.ops = setup.ops;
  config.dtype = setup.dtype;
  config.quantization = setup.quantization;
  config.max_num_batched_tokens = max_batch_tokens > 0 ? max_batch_tokens : setup.max_batch_tokens;
  config.chunked_prefill_size = config.max_num_batched_tokens;
  config.max_num_seqs = setup.max_batch_seqs;
  // Some goldens claim the context of the real model.
  config.max_model_len =
      setup.max_model_len > 0 ? setup.max_model_len : std::min(spec.max_positions, 16 * 1024);
  config.kv_cache_tokens = 64 * 1024;
  config.batch_wait_ms = 0;
  config.threads_per_device = setup.threads;
  config.return_logits = true;
  return config;
}

}  // namespace

Bench::Bench(Setup setup) : setup_(std::move(setup)), team_(setup_.threads) {
  spec_ = value_or_die(load_spec(setup_.model));
  ops_ = setup_.ops == "ref" ? make_ops_ref() : make_ops_cpu(team_);
  const EngineConfig config = config_of(setup_, spec_, setup_.d, setup_.r, 0, "asap");
  const EnginePlan plan = value_or_die(make_plan(config, spec_, 1));
  reserve(plan.limits);
  weights_ = value_or_die(load_local_weights(config, spec_, *ops_));
}

Bench::~Bench() = default;

// What the largest of all runs needs.
void Bench::reserve(const OpLimits& limits) {
  OpLimits& most = reserved_;
  if (limits.max_rows <= most.max_rows && limits.max_context <= most.max_context &&
      limits.max_expert_rows <= most.max_expert_rows) {
    return;
  }
  most = {std::max(most.max_rows, limits.max_rows), std::max(most.max_context, limits.max_context),
          std::max(most.max_expert_rows, limits.max_expert_rows)};
  ops_->reserve(spec_, most);
}

std::vector<Outcome> Bench::run(const std::vector<Prompt>& prompts, const Run& run) {
  const EngineConfig config =
      config_of(setup_, spec_, run.d, run.r, run.max_batch_tokens, run.scheduler);
  const EnginePlan plan = value_or_die(make_plan(config, spec_, 1));
  reserve(plan.limits);
  const auto link = make_link_loop(plan.geometry, {run.seed, run.max_delay});
  LocalInstance instance(config, plan, spec_, weights_, *ops_, *link, {});
  if (run.observer) instance.observe(run.observer);
  Prng order(run.seed);
  std::vector<Outcome> out(prompts.size());
  size_t finished = 0;
  size_t submitted = 0;
  Instant now{1};
  const auto submit = [&](size_t i) {
    EngineRequest request;
    request.prompt = prompts[i].tokens;
    request.sampling.max_tokens = prompts[i].max_tokens;
    request.sampling.temperature = prompts[i].temperature;
    request.sampling.seed = prompts[i].seed;
    request.sampling.ignore_eos = true;
    request.sampling.want_logits = true;
    const auto handle = instance.scheduler().submit(
        std::move(request),
        [&out, &finished, i](TokenEvent event) {
          CHECK(event.finish != Finish::error, "{}", event.error.message);
          out[i].tokens.push_back(event.token);
          if (!event.logits.empty()) out[i].logits = std::move(event.logits);
          finished += event.finish != Finish::none ? 1 : 0;
        },
        now);
    CHECK(handle.has_value(), "{}", handle.error().message);
  };
  for (int idle = 0; finished < prompts.size();) {
    for (; submitted < prompts.size() && prompts[submitted].at <= now; ++submitted) {
      submit(submitted);
    }
    const int done = instance.step(now, run.seed != 0 ? &order : nullptr, run.max_stall);
    Instant next = link->deliver(now);
    if (submitted < prompts.size()) next = std::min(next, prompts[submitted].at);
    idle = done > 0 || next != Instant::never() ? 0 : idle + 1;
    CHECK(idle < 10'000, "seed {}: nothing moves any more; {}", run.seed, instance.waiting_for());
    now = done > 0 || next == Instant::never() ? now + Duration::micros(1) : std::max(now, next);
  }
  return out;
}

}  // namespace asap::test
