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
  if (scheduler == "chunked") config.chunked_prefill_size = config.max_num_batched_tokens;
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

namespace {

// Kills groups and expert ranks of an instance and brings others in their place, as its supervisor
// does with processes.
class Reaper {
 public:
  // In a run: a request that loses more of them without a token in between is given up.
  static constexpr int kMostGroups = 5;

  Reaper(LocalInstance& instance, const Geometry& geometry, const Bench::Run& run,
         Bench::Casualties& casualties)
      : instance_(instance),
        groups_(geometry.groups),
        run_(run),
        casualties_(casualties),
        prng_(mix(run.seed)),
        units_(static_cast<size_t>(geometry.groups + geometry.expert_ranks)) {}

  void step(Instant now) {
    if (run_.kill_chance == 0) return;
    if (prng_.chance(run_.kill_chance)) kill(prng_.below(units_.size()), now);
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (units_[unit].away && units_[unit].back <= now) start(unit, now);
    }
  }
  // The earliest return.
  Instant next() const {
    Instant at = Instant::never();
    for (const Unit& unit : units_) at = unit.away ? std::min(at, unit.back) : at;
    return at;
  }

 private:
  struct Unit {
    bool away = false;
    Instant back;
    uint64_t epoch = 1;
  };

  void kill(size_t i, Instant now) {
    Unit& unit = units_[i];
    const bool group = i < static_cast<size_t>(groups_);
    if (!unit.away) {
      if (group && casualties_.groups == kMostGroups) return;
      if (group) {
        casualties_.rerun += instance_.kill_group(static_cast<int>(i), now);
        ++casualties_.groups;
      } else {
        instance_.kill_expert(static_cast<int>(i) - groups_, now);
        ++casualties_.expert_ranks;
      }
    }
    // One that is starting dies without having said anything: its successor has a later epoch.
    ++unit.epoch;
    unit.away = true;
    unit.back =
        now + Duration{static_cast<int64_t>(prng_.below(static_cast<uint64_t>(run_.max_away.ns)))};
  }

  void start(size_t i, Instant now) {
    units_[i].away = false;
    if (i < static_cast<size_t>(groups_)) {
      instance_.start_group(static_cast<int>(i), units_[i].epoch, now);
    } else {
      instance_.start_expert(static_cast<int>(i) - groups_, now);
    }
  }

  LocalInstance& instance_;
  const int groups_;
  const Bench::Run& run_;
  Bench::Casualties& casualties_;
  Prng prng_;
  std::vector<Unit> units_;
};

EngineRequest request_of(const Prompt& prompt) {
  EngineRequest request;
  request.prompt = prompt.tokens;
  request.sampling.max_tokens = prompt.max_tokens;
  request.sampling.temperature = prompt.temperature;
  request.sampling.seed = prompt.seed;
  request.sampling.ignore_eos = true;
  request.sampling.want_logits = true;
  return request;
}

}  // namespace

std::vector<Outcome> Bench::run(const std::vector<Prompt>& prompts, const Run& run) {
  EngineConfig config = config_of(setup_, spec_, run.d, run.r, run.max_batch_tokens, run.scheduler);
  config.regions = run.regions;
  const EnginePlan plan = value_or_die(make_plan(config, spec_, 1));
  reserve(plan.limits);
  const auto link = make_link_loop(plan.geometry, {run.seed, run.max_delay});
  LocalInstance instance(config, plan, spec_, weights_, *ops_, *link, {});
  if (run.observer) instance.observe(run.observer);
  Prng order(run.seed);
  casualties_ = {};
  Reaper reaper(instance, plan.geometry, run, casualties_);
  std::vector<Outcome> out(prompts.size());
  size_t finished = 0;
  size_t submitted = 0;
  std::vector<uint64_t> handles(prompts.size(), 0);
  std::vector<uint8_t> ended(prompts.size(), 0);
  Instant now{1};
  const auto submit = [&](size_t i) {
    const auto handle = instance.scheduler().submit(
        request_of(prompts[i]),
        [&out, &finished, &ended, i](TokenEvent event) {
          CHECK(event.finish != Finish::error, "{}", event.error.message);
          out[i].tokens.push_back(event.token);
          if (!event.logits.empty()) out[i].logits = std::move(event.logits);
          CHECK(ended[i] == 0);
          ended[i] = event.finish != Finish::none ? 1 : 0;
          finished += ended[i];
        },
        now);
    CHECK(handle.has_value(), "{}", handle.error().message);
    handles[i] = *handle;
  };
  const auto cancel_due = [&] {
    for (size_t i = 0; i < submitted; ++i) {
      if (ended[i] != 0 || prompts[i].cancel > now) continue;
      instance.scheduler().cancel(handles[i]);
      ended[i] = 1;
      ++finished;
      out[i] = {};
    }
  };
  for (int idle = 0; finished < prompts.size();) {
    for (; submitted < prompts.size() && prompts[submitted].at <= now; ++submitted) {
      submit(submitted);
    }
    cancel_due();
    reaper.step(now);
    const int done = instance.step(now, run.seed != 0 ? &order : nullptr, run.max_stall);
    Instant next = std::min(
        {link->deliver(now), reaper.next(), std::max(now, instance.scheduler().wake_at())});
    if (submitted < prompts.size()) next = std::min(next, prompts[submitted].at);
    idle = done > 0 || next != Instant::never() ? 0 : idle + 1;
    CHECK(idle < 10'000 && now < Instant{0} + Duration::seconds(600),
          "seed {}: nothing moves any more; {}", run.seed, instance.waiting_for());
    now = done > 0 || next == Instant::never() ? now + Duration::micros(1) : std::max(now, next);
  }
  casualties_.took = now - Instant{0};
  // What was cancelled last may still run.
  for (int i = 0; i < 200'000 && instance.scheduler().stats().running > 0; ++i) {
    reaper.step(now);
    instance.step(now);
    now = now + Duration::micros(1);
  }
  casualties_.held = now - Instant{0} - casualties_.took;
  const EngineStats stats = instance.scheduler().stats();
  CHECK(stats.running == 0 && stats.waiting == 0 && stats.kv_usage == 0,
        "seed {}: {} run, {} wait, {} of the KV cache is used; {}", run.seed, stats.running,
        stats.waiting, stats.kv_usage, instance.waiting_for());
  return out;
}

}  // namespace asap::test
