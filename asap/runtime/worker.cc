#include "asap/runtime/worker.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <vector>

#include "asap/runtime/attention.h"
#include "asap/runtime/attention_rows.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/control.h"
#include "asap/runtime/expert.h"
#include "asap/runtime/expert_rows.h"
#include "asap/runtime/runner.h"

namespace asap {

namespace {

// What every role needs before it loads its shard.
struct Device {
  std::unique_ptr<Control> control;
  EngineConfig config;
  EnginePlan plan;
  ModelSpec spec;
  int index = 0;
  std::unique_ptr<Link> link;
  std::unique_ptr<Team> team;
  std::unique_ptr<Ops> ops;

  WorkerSlot& slot() { return control->worker(index); }
  void set_state(WorkerState state) { slot().state.store(static_cast<uint32_t>(state)); }
  Tracer tracer(int agent) { return {control->ring(index, agent), &monotonic_now}; }
  // First core of this device, when every agent has one.
  std::vector<int> cpus(int first, int count) const {
    if (plan.cores_short) return {};
    const std::vector<int> all = available_cpus();
    std::vector<int> out;
    for (int i = 0; i < count; ++i) {
      out.push_back(all[static_cast<size_t>(first + i) % all.size()]);
    }
    return out;
  }
  int first_cpu() const { return 1 + (index - 1) * plan.threads; }
};

Status open_device(const WorkerRole& role, const Platform& platform, Device* device) {
  ASAP_ASSIGN(device->config, config_from_json(device->control->config_json()));
  ASAP_ASSIGN(device->spec, load_engine_spec(device->config));
  const int cores = static_cast<int>(available_cpus().size());
  ASAP_ASSIGN(device->plan, make_plan(device->config, device->spec, cores));
  const Geometry& g = device->control->geometry();
  device->index = role.attention ? attention_device(g, role.group, role.tp_rank)
                                 : expert_device(g, role.moe_rank);
  if (device->index <= 0 || device->index >= g.devices()) {
    return fail(Code::invalid,
                "no such worker in this instance: check --group and --tp-rank, or "
                "--moe-rank");
  }
  ASAP_TRY(compare(g, device->plan.geometry, device_name(g, device->index)));
  std::vector<int> fds;
  for (int i = 0; i < g.devices(); ++i) fds.push_back(kFirstWindowFd + i);
  ASAP_ASSIGN(device->link, platform.make_process_link(g, fds));
  device->team = std::make_unique<Team>(device->plan.threads,
                                        device->cpus(device->first_cpu(), device->plan.threads),
                                        !device->plan.cores_short);
  device->ops = platform.make_ops(device->config.ops, *device->team);
  device->ops->reserve(device->spec, device->plan.limits);
  return {};
}

RunOptions run_options(Device& device, Agent& agent, int cpu) {
  RunOptions options;
  options.spin = !device.plan.cores_short;
  options.cpus = device.cpus(cpu, 1);
  options.on_tick = [&device, &agent] { device.slot().waiting.write(agent.waiting_for()); };
  return options;
}

void run_attention(Device& device, const WorkerRole& role,
                   std::shared_ptr<const AttentionWeights> weights) {
  const Geometry& g = device.plan.geometry;
  AttentionAgent agent(g, device.spec, role.group, role.tp_rank,
                       std::make_unique<AttentionRows>(g, role.tp_rank, std::move(weights),
                                                       device.plan.kv_blocks, *device.ops),
                       device.link->attach(device.index), device.tracer(0));
  device.set_state(WorkerState::ready);
  Agent* const agents[] = {&agent};
  run_agents(agents, device.link->doorbell(device.index), device.control->stop(),
             run_options(device, agent, device.first_cpu()));
}

// Three agents on three threads, or on one where cores are short.
void run_expert(Device& device, const WorkerRole& role,
                std::shared_ptr<const ExpertWeights> weights) {
  const Tracer tracers[] = {device.tracer(0), device.tracer(1), device.tracer(2)};
  const Geometry& g = device.plan.geometry;
  ExpertRank rank(g, role.moe_rank,
                  std::make_unique<ExpertRows>(g, std::move(weights), *device.ops), *device.link,
                  device.plan.queue, tracers);
  device.set_state(WorkerState::ready);
  const std::atomic<uint32_t>& stop = device.control->stop();
  Doorbell& bell = device.link->doorbell(device.index);
  if (device.plan.cores_short) {
    Agent* const agents[] = {&rank.receive(), &rank.compute(), &rank.send()};
    return run_agents(agents, bell, stop, run_options(device, rank.receive(), 0));
  }
  const int streams = 1 + (device.plan.geometry.devices() - 1) * device.plan.threads +
                      2 * role.moe_rank;  // cores of the receive and send agents
  std::thread receive([&] {
    Agent* const agents[] = {&rank.receive()};
    run_agents(agents, bell, stop, run_options(device, rank.receive(), streams));
  });
  std::thread send([&] {
    Agent* const agents[] = {&rank.send()};
    RunOptions options = run_options(device, rank.send(), streams + 1);
    options.on_tick = nullptr;
    run_agents(agents, rank.send_bell(), stop, options);
  });
  Agent* const agents[] = {&rank.compute()};
  RunOptions options = run_options(device, rank.compute(), device.first_cpu());
  options.on_tick = nullptr;
  run_agents(agents, rank.compute_bell(), stop, options);
  receive.join();
  send.join();
}

Status load_and_run(Device& device, const WorkerRole& role) {
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(device.config), device.spec));
  device.set_state(WorkerState::loading);
  const auto progress = [&](int layers) {
    device.slot().layers_done.store(layers);
    weights.checkpoint.release();
  };
  if (role.attention) {
    run_attention(
        device, role,
        load_attention_weights(device.spec, weights.checkpoint, weights.views, role.tp_rank,
                               device.plan.geometry.ranks, *device.ops, progress));
  } else {
    run_expert(device, role,
               load_expert_weights(device.spec, weights.views, role.moe_rank,
                                   device.plan.geometry.expert_ranks, *device.ops, progress));
  }
  return {};
}

}  // namespace

Status run_worker(const WorkerRole& role, const Platform& platform) {
  // The front decides when to stop: a Ctrl-C at the terminal reaches it, not us; and we do not
  // outlive it.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Device device;
  ASAP_ASSIGN(device.control, Control::attach(kControlFd));
  Status status = open_device(role, platform, &device);
  if (status) status = load_and_run(device, role);
  if (!status && device.index > 0) {
    device.slot().error.write(status.error().message);
    device.set_state(WorkerState::failed);
  }
  return status;
}

}  // namespace asap
