#include "asap/runtime/local_instance.h"

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
    out.experts.push_back(
        load_expert_weights(spec, weights.views, e, config.num_moe_ranks, ops, layer_done));
  }
  return out;
}

LocalInstance::LocalInstance(const EngineConfig& config, const EnginePlan& plan,
                             const ModelSpec& spec, const LocalWeights& weights, Ops& ops,
                             Link& link, std::span<TraceRing* const> rings)
    : link_(link) {
  const Geometry& g = plan.geometry;
  const auto tracer = [&](int device, int agent) -> Tracer {
    if (rings.empty()) return {nullptr, &monotonic_now};
    return {rings[static_cast<size_t>(device * kAgentsPerDevice + agent)], &monotonic_now};
  };
  scheduler_ = std::make_unique<Scheduler>(config, plan, spec, link.attach(kFrontDevice),
                                           tracer(kFrontDevice, 0));
  agents_.push_back(scheduler_.get());
  for (int group = 0; group < g.groups; ++group) {
    for (int t = 0; t < g.ranks; ++t) {
      const int device = attention_device(g, group, t);
      auto rows = std::make_unique<AttentionRows>(g, t, weights.attention[static_cast<size_t>(t)],
                                                  plan.kv_blocks, ops);
      rows_.push_back(rows.get());
      attention_.push_back(std::make_unique<AttentionAgent>(
          g, spec, group, t, std::move(rows), link.attach(device), tracer(device, 0)));
      agents_.push_back(attention_.back().get());
    }
  }
  for (int e = 0; e < g.expert_ranks; ++e) {
    const int device = expert_device(g, e);
    const Tracer tracers[] = {tracer(device, 0), tracer(device, 1), tracer(device, 2)};
    auto rows = std::make_unique<ExpertRows>(g, weights.experts[static_cast<size_t>(e)], ops);
    rows->count_rows(&expert_rows_);
    experts_.push_back(
        std::make_unique<ExpertRank>(g, e, std::move(rows), link, plan.queue, tracers));
    for (Agent* agent :
         {&experts_.back()->receive(), &experts_.back()->compute(), &experts_.back()->send()}) {
      agents_.push_back(agent);
    }
  }
}

int LocalInstance::step(Instant now, Prng* order, Duration max_stall) {
  constexpr double kStallChance = 0.002;
  link_.deliver(now);
  stalled_until_.resize(agents_.size());
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
    out += fmt::format("{}: {}\n", agent->name(), agent->waiting_for());
  }
  return out;
}

}  // namespace asap
