#include "asap/runtime/worker.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <new>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "asap/runtime/attention.h"
#include "asap/runtime/attention_rows.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/control.h"
#include "asap/runtime/expert.h"
#include "asap/runtime/expert_rows.h"
#include "asap/runtime/memory_plan.h"
#include "asap/runtime/placement.h"
#include "asap/runtime/priced.h"
#include "asap/runtime/runner.h"

namespace asap {

namespace {

// A heart that beats while there is no agent yet: a process that is stopped shows, one that reads a
// large checkpoint does not.
class LoadingHeart {
 public:
  explicit LoadingHeart(std::atomic<uint64_t>& beats)
      : thread_([&beats](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            beats.fetch_add(1, std::memory_order_relaxed);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}

 private:
  std::jthread thread_;
};

// What every role needs before it loads its shard.
struct Device {
  std::unique_ptr<Control> control;
  EngineConfig config;
  EnginePlan plan;
  ModelSpec spec;
  int index = 0;
  Placement::Device place;
  std::unique_ptr<Link> link;
  std::unique_ptr<Team> team;
  std::unique_ptr<Ops> ops;                    // null where kernels are priced
  std::vector<std::unique_ptr<Meter>> meters;  // one per thread
  std::optional<LoadingHeart> heart;           // until it is ready

  bool priced() const { return config.ops == "priced"; }
  // Of stream `number`: one for all that share a thread.
  Meter& meter(size_t number) {
    const bool one = plan.geometry.lockstep || !config.overlap;
    return *meters[one ? 0 : number];
  }
  // In lockstep: the expert rank in the same process as the attention rank `index`; else `index`.
  int guest() const {
    const Geometry& g = plan.geometry;
    return g.lockstep ? index + g.groups * g.ranks : index;
  }
  WorkerSlot& slot() { return control->worker(index); }
  void set_state(WorkerState state) {
    if (state != WorkerState::loading) heart.reset();
    for (const int device : {index, guest()}) {
      control->worker(device).state.store(static_cast<uint32_t>(state));
    }
  }
  Tracer tracer(int agent, int device) { return {control->ring(device, agent), &monotonic_now}; }
  Tracer tracer(int agent) { return tracer(agent, index); }
  // Threads of the team: as placed, unless told.
  int threads() const {
    return config.threads_per_device == 0 && place.threads > 0 ? place.threads : plan.threads;
  }
  // Cores from the `first` one on: where they were named for this device, those for its team and
  // its leader; where every agent has one, of the machine's; else none, the binding is enough.
  std::vector<int> cpus(int first, int count) const {
    if (place.own) {
      const bool computes = first == 0 || first == first_cpu();
      if (!computes) return {};
      return {place.cpus.begin(), count == 1 ? place.cpus.begin() + 1 : place.cpus.end()};
    }
    if (plan.cores_short || !place.cpus.empty()) return {};
    const std::vector<int> all = available_cpus();
    std::vector<int> out;
    for (int i = 0; i < count; ++i) {
      out.push_back(all[static_cast<size_t>(first + i) % all.size()]);
    }
    return out;
  }
  int first_cpu() const { return 1 + (index - 1) * plan.threads; }
};

// What out_of_memory() says, and where: written while there is memory.
struct LastWords {
  Device* device = nullptr;
  std::string text;
};
LastWords& last_words() {
  static LastWords words;
  return words;
}

// An address space that is used up (ulimit -v, vm.overcommit_memory) ends the worker with a message
// that its front passes on, not as a crash that another attempt might mend.
void out_of_memory() {
  const LastWords& words = last_words();
  words.device->slot().error.write(words.text);
  for (const int device : {words.device->index, words.device->guest()}) {
    words.device->control->worker(device).state.store(static_cast<uint32_t>(WorkerState::failed));
  }
  _exit(1);
}

void prepare_for_want_of_memory(Device& device) {
  const MemoryPlan memory = memory_plan(device.config, device.spec, device.plan,
                                        kept_type(device.config, device.spec, nullptr));
  const DeviceMemory& own =
      device.index < expert_device(device.plan.geometry, 0) ? memory.attention : memory.expert;
  last_words() = {
      &device,
      fmt::format("the system gives it no more memory; it needs at least {} (weights "
                  "{}, KV cache {}): raise the limit (ulimit -v, "
                  "vm.overcommit_memory), or lower --kv-cache-tokens or "
                  "--max-model-len, or use --quantization int8",
                  bytes_text(own.total()), bytes_text(own.weights), bytes_text(own.cache))};
  std::set_new_handler(&out_of_memory);
}

Status open_device(const WorkerRole& role, const Platform& platform, Device* device) {
  ASAP_ASSIGN(device->config, config_from_json(device->control->config_json()));
  ASAP_ASSIGN(device->spec, load_engine_spec(device->config));
  const Topology topology = Topology::system();
  ASAP_ASSIGN(device->plan, make_plan(device->config, device->spec, topology.cores()));
  const Geometry& g = device->control->geometry();
  device->index = role.attention ? attention_device(g, role.group, role.tp_rank)
                                 : expert_device(g, role.moe_rank);
  if (device->index <= 0 || device->index >= g.devices()) {
    return fail(Code::invalid,
                "no such worker in this instance: check --group and --tp-rank, or "
                "--moe-rank");
  }
  if (host_device(g, device->index) != device->index) {
    return fail(Code::invalid, "in lockstep {} is part of the worker of {}",
                device_name(g, device->index), device_name(g, host_device(g, device->index)));
  }
  ASAP_TRY(compare(g, device->plan.geometry, device_name(g, device->index)));
  // Before it has threads or memory.
  ASAP_ASSIGN(const Placement placement, place_devices(device->config.cpu_bind, topology, g));
  device->place = placement.devices[static_cast<size_t>(device->index)];
  if (!bind_to(device->place)) {
    return fail(Code::unavailable, "{} cannot be bound to its cores; use --cpu-bind nobind",
                device_name(g, device->index));
  }
  std::vector<int> fds;
  for (int i = 0; i < g.devices(); ++i) fds.push_back(kFirstWindowFd + i);
  ASAP_ASSIGN(device->link, platform.make_process_link(device->config.link, g, fds));
  device->link->doorbell(device->index).reset();
  prepare_for_want_of_memory(*device);
  if (device->priced()) {
    for (int i = 0; i < kAgentsPerDevice; ++i) {
      device->meters.push_back(make_sleep_meter(device->config.time_scale));
    }
    return {};
  }
  device->team = std::make_unique<Team>(device->threads(),
                                        device->cpus(device->first_cpu(), device->threads()),
                                        !device->plan.cores_short);
  device->ops = platform.make_ops(device->config.ops, device->config.isa, *device->team);
  device->ops->reserve(device->spec, device->plan.limits);
  return {};
}

// `thread`: its number in the worker.
RunOptions run_options(Device& device, Agent& agent, int cpu, int thread = 0) {
  RunOptions options;
  options.spin = !device.plan.cores_short;
  options.beats = &device.slot().hearts[thread].beats;
  options.cpus = device.cpus(cpu, 1);
  options.on_tick = [&device, &agent] { device.slot().waiting.write(agent.waiting_for()); };
  return options;
}

// The shards of the roles that a worker plays; priced kernels have none.
struct Shards {
  std::shared_ptr<const AttentionWeights> attention;
  std::shared_ptr<const ExpertWeights> experts;
};

std::unique_ptr<AttentionAgent> make_attention(Device& device, const WorkerRole& role,
                                               const Shards& shards) {
  const Geometry& g = device.plan.geometry;
  std::unique_ptr<AttentionCompute> compute;
  if (device.priced()) {
    compute = std::make_unique<PricedAttention>(g, device.plan.profile, device.meter(0));
  } else {
    compute = std::make_unique<AttentionRows>(g, role.tp_rank, shards.attention,
                                              device.plan.kv_blocks, *device.ops);
  }
  return std::make_unique<AttentionAgent>(g, device.spec, role.group, role.tp_rank,
                                          std::move(compute), device.link->attach(device.index),
                                          device.tracer(0), device.slot().epoch.load());
}

std::unique_ptr<ExpertRank> make_expert(Device& device, int rank, const Shards& shards) {
  const Geometry& g = device.plan.geometry;
  const int index = expert_device(g, rank);
  const Tracer tracers[] = {device.tracer(0, index), device.tracer(1, index),
                            device.tracer(2, index)};
  std::unique_ptr<ExpertCompute> compute;
  if (device.priced()) {
    compute = std::make_unique<PricedExperts>(g, rank, device.plan.profile,
                                              device.config.super_kernel, device.config.seed,
                                              device.meter(0), device.meter(1), device.meter(2));
  } else {
    auto rows =
        std::make_unique<ExpertRows>(g, shards.experts, *device.ops, device.config.super_kernel);
    rows->count_rows(&device.control->worker(index).expert_rows);
    compute = std::move(rows);
  }
  auto expert = std::make_unique<ExpertRank>(g, rank, std::move(compute), *device.link,
                                             device.plan.queue, tracers);
  expert->count_load(&device.control->worker(index).expert_load);
  return expert;
}

void run_attention(Device& device, const WorkerRole& role, const Shards& shards) {
  const auto attention = make_attention(device, role, shards);
  AttentionAgent& agent = *attention;
  device.set_state(WorkerState::ready);
  Agent* const agents[] = {&agent};
  run_agents(agents, device.link->doorbell(device.index), device.control->stop(),
             run_options(device, agent, device.first_cpu()));
}

// Three agents on three threads, or on one without overlap or where cores are short: priced kernels
// need none.
void run_expert(Device& device, const WorkerRole& role, const Shards& shards) {
  const auto expert = make_expert(device, role.moe_rank, shards);
  ExpertRank& rank = *expert;
  device.set_state(WorkerState::ready);
  const std::atomic<uint32_t>& stop = device.control->stop();
  Doorbell& bell = device.link->doorbell(device.index);
  if (!device.config.overlap || (device.plan.cores_short && !device.priced())) {
    Agent* const agents[] = {&rank.receive(), &rank.compute(), &rank.send()};
    return run_agents(agents, bell, stop, run_options(device, rank.receive(), 0));
  }
  const int streams = 1 + (device.plan.geometry.devices() - 1) * device.plan.threads +
                      2 * role.moe_rank;  // cores of the receive and send agents
  std::thread receive([&] {
    Agent* const agents[] = {&rank.receive()};
    run_agents(agents, bell, stop, run_options(device, rank.receive(), streams, 1));
  });
  std::thread send([&] {
    Agent* const agents[] = {&rank.send()};
    RunOptions options = run_options(device, rank.send(), streams + 1, 2);
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

// Both on one thread with one team: in lockstep they never have work at the same time.
void run_lockstep(Device& device, const WorkerRole& role, const Shards& shards) {
  const auto attention = make_attention(device, role, shards);
  const auto expert = make_expert(device, device.index - 1, shards);
  device.set_state(WorkerState::ready);
  Agent* const agents[] = {attention.get(), &expert->receive(), &expert->compute(),
                           &expert->send()};
  run_agents(agents, device.link->doorbell(device.index), device.control->stop(),
             run_options(device, *attention, device.first_cpu()));
}

Result<Shards> load_shards(Device& device, const WorkerRole& role) {
  Shards shards;
  if (device.priced()) return shards;
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(device.config), device.spec));
  const Geometry& g = device.plan.geometry;
  const auto progress_of = [&](int index) {
    return [&, index](int layers) {
      device.control->worker(index).layers_done.store(layers);
      weights.checkpoint.release();
    };
  };
  if (role.attention) {
    shards.attention =
        load_attention_weights(device.spec, weights.checkpoint, weights.views, role.tp_rank,
                               g.ranks, *device.ops, progress_of(device.index));
  }
  if (!role.attention || g.lockstep) {
    const int rank = role.attention ? device.index - 1 : role.moe_rank;
    shards.experts = load_expert_weights(device.spec, weights.checkpoint, weights.views, rank,
                                         g.expert_ranks, *device.ops, progress_of(device.guest()));
  }
  return shards;
}

Status load_and_run(Device& device, const WorkerRole& role) {
  device.set_state(WorkerState::loading);
  device.heart.emplace(device.slot().hearts[0].beats);
  ASAP_ASSIGN(const Shards shards, load_shards(device, role));
  if (!role.attention) {
    run_expert(device, role, shards);
  } else if (device.plan.geometry.lockstep) {
    run_lockstep(device, role, shards);
  } else {
    run_attention(device, role, shards);
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
  if (getppid() != device.control->front_pid()) {
    return fail(Code::unavailable, "the front (pid {}) died while this worker started",
                device.control->front_pid());
  }
  Status status = open_device(role, platform, &device);
  if (status) {
    try {
      status = load_and_run(device, role);
    } catch (const std::exception& error) {  // threads and buffers that the system refuses
      status = fail(Code::internal, "{}", error.what());
    }
  }
  if (!status && device.index > 0) {
    device.slot().error.write(status.error().message);
    device.set_state(WorkerState::failed);
  }
  return status;
}

}  // namespace asap
