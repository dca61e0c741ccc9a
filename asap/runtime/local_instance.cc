#include "asap/runtime/local_instance.h"

#include <algorithm>
#include <utility>

#include "asap/runtime/clock.h"
#include "asap/runtime/control.h"

namespace asap {

Result<LocalWeights> load_local_weights(const EngineConfig& config, const ModelSpec& spec, Ops& ops,
                                        const std::function<void(int done, int all)>& progress) {
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(config), spec));
  LocalWeights out;
  const int all = spec.layers * (config.tensor_parallel_size + config.num_moe_ranks);
  const auto layer_done = [&, done = 0](int) mutable {
    weights.checkpoint.release();
    if (progress) progress(++done, all);
  };
  for (int t = 0; t < config.tensor_parallel_size; ++t) {
    out.attention.push_back(load_attention_weights(spec, weights.checkpoint, weights.views, t,
                                                   config.tensor_parallel_size, ops, layer_done));
  }
  for (int e = 0; e < config.num_moe_ranks; ++e) {
    out.experts.push_back(load_expert_weights(spec, weights.checkpoint, weights.views, e,
                                              config.num_moe_ranks, ops, layer_done));
  }
  return out;
}

LocalInstance::LocalInstance(const EngineConfig& config, const EnginePlan& plan,
                             const ModelSpec& spec, const LocalWeights& weights, Ops& ops,
                             Link& link, std::span<TraceRing* const> rings)
    : plan_(plan),
      spec_(spec),
      weights_(weights),
      ops_(ops),
      rings_(rings.begin(), rings.end()),
      attention_(static_cast<size_t>(plan.geometry.groups * plan.geometry.ranks)),
      rows_(attention_.size(), nullptr),
      experts_(static_cast<size_t>(plan.geometry.expert_ranks)),
      link_(link) {
  scheduler_ = std::make_unique<Scheduler>(config, plan, spec, link.attach(kFrontDevice),
                                           tracer(kFrontDevice, 0));
  scheduler_->on_rejoin([&link](int device) { link.fence(device); });
  add(*scheduler_);
  for (int group = 0; group < plan.geometry.groups; ++group) {
    for (int t = 0; t < plan.geometry.ranks; ++t) add_attention(group, t, 1);
  }
  for (int e = 0; e < plan.geometry.expert_ranks; ++e) add_expert(e);
}

Tracer LocalInstance::tracer(int device, int agent) const {
  if (rings_.empty()) return {nullptr, &monotonic_now};
  return {rings_[static_cast<size_t>(device * kAgentsPerDevice + agent)], &monotonic_now};
}

void LocalInstance::add(Agent& agent) {
  agents_.push_back(&agent);
  stalled_until_.push_back({});
}

void LocalInstance::remove(const Agent& agent) {
  const auto place = std::find(agents_.begin(), agents_.end(), &agent) - agents_.begin();
  agents_.erase(agents_.begin() + place);
  stalled_until_.erase(stalled_until_.begin() + place);
}

void LocalInstance::add_attention(int group, int t, uint64_t epoch) {
  const Geometry& g = plan_.geometry;
  const int device = attention_device(g, group, t);
  const auto index = static_cast<size_t>(group * g.ranks + t);
  auto rows = std::make_unique<AttentionRows>(g, t, weights_.attention[static_cast<size_t>(t)],
                                              plan_.kv_blocks, ops_);
  rows_[index] = rows.get();
  attention_[index] = std::make_unique<AttentionAgent>(
      g, spec_, group, t, std::move(rows), link_.attach(device), tracer(device, 0), epoch);
  add(*attention_[index]);
}

void LocalInstance::add_expert(int e) {
  const Geometry& g = plan_.geometry;
  const int device = expert_device(g, e);
  const Tracer tracers[] = {tracer(device, 0), tracer(device, 1), tracer(device, 2)};
  auto rows = std::make_unique<ExpertRows>(g, weights_.experts[static_cast<size_t>(e)], ops_);
  rows->count_rows(&expert_rows_);
  auto& rank = experts_[static_cast<size_t>(e)];
  rank = std::make_unique<ExpertRank>(g, e, std::move(rows), link_, plan_.queue, tracers);
  for (Agent* agent : {&rank->receive(), &rank->compute(), &rank->send()}) add(*agent);
}

int LocalInstance::kill_group(int group, Instant now) {
  const Geometry& g = plan_.geometry;
  for (int t = 0; t < g.ranks; ++t) {
    auto& agent = attention_[static_cast<size_t>(group * g.ranks + t)];
    if (agent == nullptr) continue;
    remove(*agent);
    agent.reset();
    rows_[static_cast<size_t>(group * g.ranks + t)] = nullptr;
    link_.fence(attention_device(g, group, t));
  }
  return scheduler_->lose_group(group, "killed by a test", now);
}

void LocalInstance::start_group(int group, uint64_t epoch, Instant now) {
  const Geometry& g = plan_.geometry;
  for (int t = 0; t < g.ranks; ++t) {
    add_attention(group, t, epoch);
  }
  scheduler_->restore_group(group, epoch, now);
}

void LocalInstance::kill_expert(int e, Instant now) {
  auto& rank = experts_[static_cast<size_t>(e)];
  for (Agent* agent : {&rank->receive(), &rank->compute(), &rank->send()}) remove(*agent);
  rank.reset();
  link_.fence(expert_device(plan_.geometry, e));
  scheduler_->on_expert_rank(false, now);
}

void LocalInstance::start_expert(int e, Instant now) {
  add_expert(e);
  scheduler_->on_expert_rank(true, now);
}

int LocalInstance::step(Instant now, Prng* order, Duration max_stall) {
  constexpr double kStallChance = 0.002;
  link_.deliver(now);
  if (order != nullptr) {
    for (size_t i = agents_.size(); i > 1; --i) {
      const size_t other = order->below(i);
      std::swap(agents_[i - 1], agents_[other]);
      std::swap(stalled_until_[i - 1], stalled_until_[other]);
    }
  }
  int done = 0;
  for (size_t i = 0; i < agents_.size(); ++i) {
    if (order != nullptr && max_stall.ns > 0 && order->chance(kStallChance)) {
      const auto longest = static_cast<uint64_t>(max_stall.ns);
      stalled_until_[i] = now + Duration{static_cast<int64_t>(order->below(longest))};
    }
    if (now < stalled_until_[i]) {
      ++done;  // it will move on: time has to pass
      continue;
    }
    done += agents_[i]->do_work(now);
  }
  return done;
}

std::string LocalInstance::waiting_for() const {
  std::string out;
  for (const auto& agent : attention_) {
    if (agent == nullptr) continue;
    out += fmt::format("{}: {}\n", agent->name(), agent->waiting_for());
  }
  return out;
}

}  // namespace asap
