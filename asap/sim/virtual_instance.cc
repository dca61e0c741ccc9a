#include "asap/sim/virtual_instance.h"

#include <algorithm>

#include "asap/base/check.h"
#include "asap/base/prng.h"
#include "asap/runtime/control.h"

namespace asap {

thread_local VirtualClock* VirtualClock::in_use = nullptr;

VirtualInstance::VirtualInstance(const EngineConfig& config, const EnginePlan& plan,
                                 const ModelSpec& spec, std::span<TraceRing* const> rings)
    : link_(plan.geometry, Duration::seconds(plan.profile.latency * 1e-3), clock_, events_),
      first_agent_(static_cast<size_t>(plan.geometry.devices())) {
  clock_.use();
  const Geometry& g = plan.geometry;
  const auto tracer = [&](int device, int agent) -> Tracer {
    if (rings.empty()) return {nullptr, &VirtualClock::current};
    return {rings[static_cast<size_t>(device * kAgentsPerDevice + agent)], &VirtualClock::current};
  };
  scheduler_ = std::make_unique<Scheduler>(config, plan, spec, link_.attach(kFrontDevice),
                                           tracer(kFrontDevice, 0));
  add(*scheduler_, kFrontDevice, 0);
  for (int group = 0; group < g.groups; ++group) {
    for (int t = 0; t < g.ranks; ++t) {
      const int device = attention_device(g, group, t);
      attention_.push_back(std::make_unique<AttentionAgent>(
          g, spec, group, t, std::make_unique<PricedAttention>(g, plan.profile, clock_),
          link_.attach(device), tracer(device, 0)));
      add(*attention_.back(), device, static_cast<int>(streams_.size()));
    }
  }
  for (int e = 0; e < g.expert_ranks; ++e) {
    const int device = expert_device(g, e);
    const Tracer tracers[] = {tracer(device, 0), tracer(device, 1), tracer(device, 2)};
    add_expert_rank(config, plan, e, tracers);
  }
}

void VirtualInstance::add(Agent& agent, int device, int stream) {
  if (agents_.empty() || agents_.back().device != device) {
    first_agent_[static_cast<size_t>(device)] = static_cast<int>(agents_.size());
  }
  if (stream == static_cast<int>(streams_.size())) streams_.emplace_back();
  agents_.push_back({&agent, device, stream, {}, Instant::never()});
}

void VirtualInstance::add_expert_rank(const EngineConfig& config, const EnginePlan& plan, int e,
                                      const Tracer tracers[3]) {
  const int device = expert_device(plan.geometry, e);
  experts_.push_back(std::make_unique<ExpertRank>(
      plan.geometry, e,
      std::make_unique<PricedExperts>(plan.geometry, e, plan.profile, config.super_kernel,
                                      config.seed, clock_, clock_, clock_),
      link_, plan.queue, tracers, &VirtualClock::current));
  ExpertRank& rank = *experts_.back();
  const int first = static_cast<int>(agents_.size());
  const int stream = static_cast<int>(streams_.size());
  int number = 0;
  for (Agent* agent : {&rank.receive(), &rank.compute(), &rank.send()}) {
    add(*agent, device, config.overlap ? stream + number : stream);
    ++number;
  }
  // Receive feeds compute, compute and send feed each other.
  const std::vector<int> mates[] = {{first + 1}, {first + 2}, {first + 1}};
  for (int i = 0; i < 3; ++i) {
    agents_[static_cast<size_t>(first + i)].mates = mates[static_cast<size_t>(i)];
  }
}

void VirtualInstance::wake(int agent, Instant when) {
  Stepped& stepped = agents_[static_cast<size_t>(agent)];
  const Instant at = std::max(when, streams_[static_cast<size_t>(stepped.stream)].busy_until);
  if (at == stepped.last_wake) return;  // it will look then anyway
  stepped.last_wake = at;
  events_.add_wake(at, agent);
}

void VirtualInstance::deliver(const Event& event) {
  store_flag(event.to, event.value);
  wake(first_agent_[static_cast<size_t>(event.who)], now_);
}

void VirtualInstance::step(int number) {
  Stepped& stepped = agents_[static_cast<size_t>(number)];
  Stream& stream = streams_[static_cast<size_t>(stepped.stream)];
  if (stepped.last_wake == now_) stepped.last_wake = Instant::never();
  if (stream.busy_until > now_)
    return wake(number, now_);  // another agent of the stream came first
  clock_.set(now_);
  ++steps_;
  const int done = stepped.agent->do_work(now_);
  const Instant end = clock_.now();
  stream.busy_until = end;
  stream.busy = stream.busy + (end - now_);
  if (done > 0) {
    hash_ = mix(hash_ ^ mix(static_cast<uint64_t>(end.ns) ^ static_cast<uint64_t>(number) << 48));
    wake(number, end);
    for (const int mate : stepped.mates) wake(mate, end);
  }
  const Instant later = stepped.agent->wake_at();
  if (later != Instant::never()) wake(number, later);
}

void VirtualInstance::run(Instant until, const std::function<bool()>& done) {
  clock_.use();
  while (events_.next_due() <= until) {
    now_ = events_.next_due();
    const Event event = events_.pop();
    if (event.to != nullptr) {
      deliver(event);
      continue;
    }
    step(event.who);
    if (event.who == 0 && done()) return;
  }
  now_ = std::max(now_, until);
}

std::vector<DeviceUse> VirtualInstance::use() const {
  std::vector<DeviceUse> out(first_agent_.size());
  for (size_t device = 1; device < out.size(); ++device) {
    const size_t first = static_cast<size_t>(first_agent_[device]);
    const auto busy = [&](size_t agent) {
      return streams_[static_cast<size_t>(agents_[agent].stream)].busy;
    };
    if (agents_[first].mates.empty()) {
      out[device].compute = busy(first);
    } else {
      out[device] = {busy(first), busy(first + 1), busy(first + 2)};
    }
  }
  return out;
}

std::string VirtualInstance::waiting_for() const {
  std::string out;
  for (const auto& agent : attention_) {
    out += fmt::format("{}: {}\n", agent->name(), agent->waiting_for());
  }
  return out;
}

}  // namespace asap
