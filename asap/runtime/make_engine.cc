#include "asap/runtime/make_engine.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <thread>

#include "asap/compute/isa.h"
#include "asap/model/weight_values.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/local_instance.h"
#include "asap/runtime/memory_plan.h"
#include "asap/runtime/placement.h"
#include "asap/runtime/runner.h"
#include "asap/runtime/scheduler.h"
#include "asap/runtime/scheduling.h"
#include "asap/runtime/supervisor.h"
#include "asap/runtime/tracks.h"

namespace asap {

namespace {

// What both engines share: the scheduler behind the thread-safe interface.
class SchedulerEngine : public Engine {
 public:
  SchedulerEngine(const EngineConfig& config, const EnginePlan& plan, const EngineOptions& options)
      : plan_(plan),
        kernels_(config.ops == "cpu" ? config.isa : config.ops),
        trace_file_(options.trace_file) {}

  Result<uint64_t> submit(EngineRequest request, OnToken on_token) override {
    auto handle = scheduler().submit(std::move(request), std::move(on_token), monotonic_now());
    if (handle) bell().ring();
    return handle;
  }
  Status check_room() const override { return scheduler().check_room(monotonic_now()); }
  void cancel(uint64_t handle) override {
    scheduler().cancel(handle);
    bell().ring();
  }
  EngineStats stats() const override {
    EngineStats out = scheduler().stats();
    out.kernels = kernels_;
    count_rows(out.expert_rows);
    out.recoveries = fault_status().recoveries;
    count_experts(out.experts);
    return out;
  }
  void drain() override { scheduler().drain(true); }
  void resume() override { scheduler().drain(false); }
  bool drained() const override { return scheduler().drained(); }
  void end_all(const Error& error) override {
    scheduler().end_all(error, monotonic_now());
    bell().ring();
  }
  int max_model_len() const override { return plan_.max_model_len; }
  int vocab() const override { return plan_.geometry.vocab; }

 protected:
  virtual Scheduler& scheduler() const = 0;
  virtual Doorbell& bell() const = 0;
  virtual void count_rows(RowCounts& counts) const = 0;
  virtual void count_experts(std::vector<ExpertLoad>&) const {}

  using RingOf = std::function<const TraceRing*(int device, int agent)>;

  Status save_trace(const RingOf& ring) const {
    if (trace_file_.empty()) return {};
    ASAP_TRY(write_trace(trace_file_, trace_tracks(plan_.geometry, ring)));
    spdlog::info("trace written to {}", trace_file_);
    return {};
  }

  static void log_failure(const Status& status) {
    if (!status) spdlog::error("{}", status.error().message);
  }

  const EnginePlan plan_;
  const std::string kernels_;
  const std::string trace_file_;
};

// ---------------------------------------------------------------- worker processes

class ProcessEngine final : public SchedulerEngine {
 public:
  ProcessEngine(const EngineConfig& config, const EnginePlan& plan, const ModelSpec& spec,
                const EngineOptions& options, std::unique_ptr<Supervisor> supervisor)
      : SchedulerEngine(config, plan, options), supervisor_(std::move(supervisor)) {
    scheduler_ = std::make_unique<Scheduler>(
        config, plan, spec, supervisor_->link().attach(kFrontDevice),
        Tracer{supervisor_->control().ring(kFrontDevice, 0), &monotonic_now});
    Supervisor* const supervisor_ptr = supervisor_.get();
    scheduler_->on_stuck([supervisor_ptr] { return supervisor_ptr->waiting_for(); });
    if (config.link != "p2p") {
      scheduler_->on_group_stuck([supervisor_ptr](int group, const std::string& why) {
        supervisor_ptr->give_up(group, why);
      });
    }
    scheduler_->on_rejoin([supervisor_ptr](int device) { supervisor_ptr->link().fence(device); });
    for (int group = 0; group < plan.geometry.groups; ++group) {
      const uint64_t epoch = supervisor_->group_epoch(group);
      if (epoch == 1) continue;  // else it died while the instance started
      scheduler_->lose_group(group, "", monotonic_now());
      scheduler_->restore_group(group, epoch, monotonic_now());
    }
    thread_ = std::thread([this] { run(); });
    supervisor_->watch(events());
  }

  ~ProcessEngine() override { log_failure(close()); }

  Status close() override {
    if (!thread_.joinable()) return {};
    stop_ = 1;
    bell().ring();
    thread_.join();
    supervisor_->stop();
    Supervisor* supervisor = supervisor_.get();
    return save_trace(
        [&](int device, int agent) { return supervisor->control().ring(device, agent); });
  }

  Status start_profile() override {
    if (trace_file_.empty()) return SchedulerEngine::start_profile();
    profile_since_ = monotonic_now().ns;
    return {};
  }
  // Beside the trace of the whole run, numbered: profiles do not overwrite each other.
  Result<std::string> stop_profile() override {
    if (trace_file_.empty()) return SchedulerEngine::stop_profile();
    const Instant since{profile_since_.exchange(0)};
    if (since.ns == 0) return fail(Code::invalid, "no profile was started (POST /start_profile)");
    const std::string file = fmt::format("{}.profile-{}", trace_file_, ++profiles_);
    const auto tracks = trace_tracks(plan_.geometry, [this](int device, int agent) {
      return supervisor_->control().ring(device, agent);
    });
    ASAP_TRY(write_trace(file, tracks, since));
    return file;
  }
  bool ready() const override { return not_ready_reason().empty(); }
  std::string not_ready_reason() const override {
    if (scheduler_->draining()) return "draining: no new requests are taken";
    const FaultStatus status = supervisor_->status();
    if (status.groups_up > 0 && status.expert_ranks_up == status.expert_ranks &&
        status.can_serve()) {
      return "";
    }
    return status.reason + (status.can_serve() ? "" : "; the instance cannot serve: restart it");
  }
  FaultStatus fault_status() const override {
    FaultStatus status = supervisor_->status();
    status.draining = scheduler_->draining();
    return status;
  }
  std::vector<PeerStatus> peers() const override { return supervisor_->peers(); }

 protected:
  Scheduler& scheduler() const override { return *scheduler_; }
  Doorbell& bell() const override { return supervisor_->link().doorbell(kFrontDevice); }
  void count_rows(RowCounts& counts) const override {
    for (int e = 0; e < plan_.geometry.expert_ranks; ++e) {
      supervisor_->control().worker(expert_device(plan_.geometry, e)).expert_rows.add_to(counts);
    }
  }
  void count_experts(std::vector<ExpertLoad>& experts) const override {
    for (int e = 0; e < plan_.geometry.expert_ranks; ++e) {
      const ExpertLoadCounters& load =
          supervisor_->control().worker(expert_device(plan_.geometry, e)).expert_load;
      experts.push_back(
          {Duration{load.idle_ns.load()}.to_seconds(), load.items.load(), load.ready.load()});
    }
  }

 private:
  void run() {
    Agent* const agents[] = {scheduler_.get()};
    RunOptions options;
    options.spin = !plan_.cores_short;
    run_agents(agents, bell(), stop_, options);
  }

  // What the supervisor tells the scheduler.
  SupervisorEvents events() {
    SupervisorEvents out;
    out.group_lost = [this](int group, const std::string& cause) {
      const int again = scheduler_->lose_group(group, cause, monotonic_now());
      bell().ring();
      return again;
    };
    out.group_back = [this](int group, uint64_t epoch) {
      scheduler_->restore_group(group, epoch, monotonic_now());
      bell().ring();
    };
    out.group_retired = [this](int group, const Error& error) {
      scheduler_->retire_group(group, error, monotonic_now());
      bell().ring();
    };
    out.expert_rank = [this](bool up) { scheduler_->on_expert_rank(up, monotonic_now()); };
    out.instance_retired = [this](const Error& error) {
      scheduler_->retire_instance(error, monotonic_now());
      bell().ring();
    };
    out.in_flight = [this] { return scheduler_->in_flight(); };
    return out;
  }

  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::atomic<uint32_t> stop_{0};
  std::atomic<int64_t> profile_since_{0};  // 0: none is being taken
  std::atomic<int> profiles_{0};
  std::thread thread_;
};

// ---------------------------------------------------------------- one process

class LocalEngine final : public SchedulerEngine {
 public:
  LocalEngine(const EngineConfig& config, const EnginePlan& plan, const ModelSpec& spec,
              const Platform& platform, const EngineOptions& options)
      : SchedulerEngine(config, plan, options), team_(plan.threads) {
    ops_ = platform.make_ops(config.ops, config.isa, team_);
    ops_->reserve(spec, plan.limits);
    link_ = platform.make_local_link(plan.geometry);
    const size_t rings = config.trace ? static_cast<size_t>(plan.geometry.devices()) *
                                            static_cast<size_t>(kAgentsPerDevice)
                                      : 0;
    const uint64_t bytes = TraceRing::bytes(static_cast<uint32_t>(config.trace_events));
    for (size_t i = 0; i < rings; ++i) {
      rings_.push_back(TraceRing::create(trace_memory_.allocate(bytes),
                                         static_cast<uint32_t>(config.trace_events)));
    }
  }

  Status load(const EngineConfig& config, const ModelSpec& spec, bool progress) {
    Instant last_report = monotonic_now();
    const auto report = [&](int done, int all) {
      if (!progress || monotonic_now() - last_report < Duration::seconds(1)) return;
      last_report = monotonic_now();
      spdlog::info("loading layers: {}/{}", done, all);
    };
    ASAP_ASSIGN(const LocalWeights weights, load_local_weights(config, spec, *ops_, report));
    instance_ =
        std::make_unique<LocalInstance>(config, plan_, spec, weights, *ops_, *link_, rings_);
    thread_ = std::thread([this] { run(); });
    return {};
  }

  ~LocalEngine() override { log_failure(close()); }

  Status close() override {
    if (!thread_.joinable()) return {};
    stop_ = 1;
    bell().ring();
    thread_.join();
    return save_trace([&](int device, int agent) {
      return rings_[static_cast<size_t>(device * kAgentsPerDevice + agent)];
    });
  }

  bool ready() const override { return not_ready_reason().empty(); }
  std::string not_ready_reason() const override {
    return scheduler().draining() ? "draining: no new requests are taken" : "";
  }
  FaultStatus fault_status() const override {
    const Geometry& g = plan_.geometry;
    FaultStatus status;
    status.draining = scheduler().draining();
    status.groups = status.groups_up = g.groups;
    status.expert_ranks = status.expert_ranks_up = g.expert_ranks;
    return status;
  }
  std::vector<PeerStatus> peers() const override { return {}; }

 protected:
  Scheduler& scheduler() const override { return instance_->scheduler(); }
  Doorbell& bell() const override { return link_->doorbell(kFrontDevice); }
  void count_rows(RowCounts& counts) const override { instance_->expert_rows().add_to(counts); }

 private:
  struct Stepper final : Agent {
    explicit Stepper(LocalInstance& all) : instance(all) {}
    int do_work(Instant now) override { return instance.step(now); }
    Instant wake_at() const override { return instance.scheduler().wake_at(); }
    std::string name() const override { return "all devices"; }
    LocalInstance& instance;
  };

  void run() {
    Stepper stepper(*instance_);
    Agent* const agents[] = {&stepper};
    run_agents(agents, bell(), stop_, {});
  }

  Team team_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Link> link_;
  Arena trace_memory_;
  std::vector<TraceRing*> rings_;
  std::unique_ptr<LocalInstance> instance_;
  std::atomic<uint32_t> stop_{0};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(const EngineConfig& config, const Platform& platform,
                                            const EngineOptions& options) {
  ASAP_ASSIGN(const ModelSpec spec, load_engine_spec(config));
  ASAP_TRY(check_config(config));
  ASAP_ASSIGN(EngineConfig resolved, resolve_scheduling(config));
  const Topology topology = Topology::system();
  const int cores = topology.cores();
  if (options.in_process && resolved.threads_per_device == 0) resolved.threads_per_device = cores;
  ASAP_ASSIGN(const EnginePlan plan, make_plan(resolved, spec, cores));
  // Once for all processes: their results are to be equal bit for bit.
  ASAP_TRY(resolve_isa(spec, &resolved));
  const bool priced = resolved.ops == "priced";
  if (priced && options.in_process) {
    return fail(Code::invalid,
                "--ops priced with --in-process: priced kernels sleep, and one thread would sleep "
                "for all devices; leave --in-process out, or use asap simulate");
  }
  // Checked here, before a worker exists or memory is taken.
  if (!priced) {
    ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(resolved), spec));
    ASAP_TRY(check_values(weights.checkpoint, weights.views));
    const DType kept = kept_type(resolved, spec, &weights.views);
    ASAP_TRY(check_memory(memory_plan(resolved, spec, plan, kept), machine_memory()));
  }
  if (resolved.ops == "cpu") {
    spdlog::info("kernels: {} (this machine can run {})", resolved.isa,
                 fmt::join(machine_isas(), ", "));
  }
  if (options.in_process) {
    auto engine = std::make_unique<LocalEngine>(resolved, plan, spec, platform, options);
    ASAP_TRY(engine->load(resolved, spec, options.progress));
    return engine;
  }
  ASAP_ASSIGN(const Placement placement, place_devices(config.cpu_bind, topology, plan.geometry));
  spdlog::info("{} cores, {} memory node(s); {}", cores, topology.nodes().size(),
               placement.describe(plan.geometry));
  ASAP_ASSIGN(auto supervisor,
              Supervisor::start(resolved, plan, platform, options.progress, options.interrupted));
  return std::make_unique<ProcessEngine>(resolved, plan, spec, options, std::move(supervisor));
}

}  // namespace asap
