#include "asap/runtime/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "asap/policy/restart.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/crash_report.h"
#include "asap/runtime/memory_plan.h"
#include "asap/runtime/worker_process.h"
#include "asap/transport/shared_memory.h"

namespace asap {

namespace {

constexpr Duration kStopGrace = Duration::seconds(2);
// Between two looks at the workers: while one of them comes or goes, and while all are up, when a
// death wakes the supervisor. One that is longer by far was ours: then nobody else is late.
constexpr Duration kLook = Duration::millis(2);
constexpr Duration kCalmLook = Duration::millis(100);
constexpr Duration kLongLook = Duration::millis(500);
constexpr int kSlowestRestart = 10;  // times the first start of all
constexpr size_t kRecent = 32;       // events kept for status()

void nap(Duration duration) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(duration.ns));
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct Supervisor::Unit {
  enum class State : uint8_t { starting, up, fencing, waiting, retired };
  struct Member {
    int device = 0;
    WorkerProcess process;
    // Of each thread: its beats and when they last grew.
    uint64_t beats[kAgentsPerDevice] = {};
    Instant grew[kAgentsPerDevice];
  };

  explicit Unit(const RestartLimits& limits) : policy(limits) {}

  bool group = true;
  int index = 0;  // of the group or expert rank
  std::vector<Member> members;
  State state = State::starting;
  uint64_t epoch = 1;
  RestartPolicy policy;
  bool lost = false;  // the scheduler knows that it is away
  Instant spawned;
  Instant noticed;  // the loss
  Instant retry;    // waiting: when to start
  int restarts = 0;
  std::string who, cause;  // of the last death
  bool killed = false;     // a process was, not by us, since the unit was started
  std::string in_flight;   // batches at that time
  RecoveryEvent event;
};

Supervisor::Supervisor() : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<std::unique_ptr<Supervisor>> Supervisor::start(const EngineConfig& config,
                                                      const EnginePlan& plan,
                                                      const Platform& platform, bool progress,
                                                      const std::function<bool()>& interrupted) {
  std::unique_ptr<Supervisor> out(new Supervisor);
  ASAP_TRY(out->open(config, plan, platform));
  ASAP_TRY(out->wait_ready(progress, interrupted));
  return out;
}

Status Supervisor::open(const EngineConfig& config, const EnginePlan& plan,
                        const Platform& platform) {
  const Geometry& g = plan.geometry;
  plan_ = plan;
  watchdog_ = Duration::seconds(config.watchdog_timeout_s);
  recovers_ = config.link != "p2p";  // there peers wait for whoever died in a handshake
  max_restarts_ = recovers_ ? config.max_restarts : 0;
  restart_window_s_ = config.restart_window_s;
  keep_log_tail();
  ASAP_ASSIGN(crash_dir_, crash_folder(config.crash_dir));
  ASAP_ASSIGN(const ModelSpec spec, load_engine_spec(config));
  needed_ = memory_plan(config, spec, plan, kept_type(config, spec, nullptr)).total();
  kills_ = out_of_memory_kills();
  ASAP_ASSIGN(control_, Control::create(config, g));
  for (int device = 0; device < g.devices(); ++device) {
    ASAP_ASSIGN(const int fd,
                create_shared_memory("asap-" + device_name(g, device), window_bytes(g, device)));
    window_fds_.push_back(fd);
  }
  ASAP_ASSIGN(link_, platform.make_process_link(config.link, g, window_fds_));
  const RestartLimits limits{.max_restarts = max_restarts_,
                             .window = Duration::seconds(restart_window_s_)};
  for (int i = 0; i < (g.lockstep ? 1 : g.groups + g.expert_ranks); ++i) {
    auto unit = std::make_unique<Unit>(limits);
    unit->group = i < g.groups;
    unit->index = unit->group ? i : i - g.groups;
    const int members = g.lockstep ? g.groups * g.ranks : unit->group ? g.ranks : 1;
    unit->members = std::vector<Unit::Member>(static_cast<size_t>(members));
    for (int m = 0; m < members; ++m) {
      unit->members[static_cast<size_t>(m)].device =
          unit->group ? attention_device(g, i + m / g.ranks, m % g.ranks)
                      : expert_device(g, unit->index);
    }
    ASAP_TRY(spawn(*unit, monotonic_now()));
    units_.push_back(std::move(unit));
  }
  return {};
}

Supervisor::~Supervisor() {
  stop();
  link_.reset();
  for (const int fd : window_fds_) close(fd);
  if (wake_fd_ >= 0) close(wake_fd_);
}

Supervisor::Unit& Supervisor::unit_of(int device) const {
  const Geometry& g = plan_.geometry;
  if (g.lockstep) return *units_[0];
  const int host = host_device(g, device);
  const bool group = host < expert_device(g, 0);
  return *units_[static_cast<size_t>(group ? (host - 1) / g.ranks
                                           : g.groups + host - expert_device(g, 0))];
}

uint64_t Supervisor::group_epoch(int group) const {
  const std::lock_guard lock(mutex_);
  return unit_of(attention_device(plan_.geometry, group, 0)).epoch;
}

// Of a unit that is no expert rank.
std::vector<int> Supervisor::groups_of(const Unit& unit) const {
  std::vector<int> out = {unit.index};
  for (int g = 1; plan_.geometry.lockstep && g < plan_.geometry.groups; ++g) out.push_back(g);
  return out;
}

// What ends with the unit, for messages.
std::string Supervisor::scope_of(const Unit& unit) const {
  if (plan_.geometry.lockstep) return "the instance";
  return unit.group ? fmt::format("group {}", unit.index) : "it";
}

// In lockstep all workers start anew, so what an item left half done in a window is nobody's.
Status Supervisor::clear_windows() {
  for (int device = 1; device < plan_.geometry.devices(); ++device) {
    const auto bytes = static_cast<off_t>(window_bytes(plan_.geometry, device));
    const int fd = window_fds_[static_cast<size_t>(device)];
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) != 0) {
      return fail(Code::internal, "cannot clear the window of {}: {}",
                  device_name(plan_.geometry, device), std::strerror(errno));
    }
  }
  return {};
}

Status Supervisor::spawn(Unit& unit, Instant now) {
  unit.state = Unit::State::starting;
  unit.spawned = now;
  unit.killed = false;
  if (plan_.geometry.lockstep && unit.epoch > 1) ASAP_TRY(clear_windows());
  for (Unit::Member& member : unit.members) {
    WorkerSlot& slot = control_->worker(member.device);
    slot.state.store(static_cast<uint32_t>(WorkerState::starting));
    slot.epoch.store(unit.epoch);
    slot.layers_done.store(0);
    slot.error.write("");
    slot.waiting.write("");
    for (Heartbeat& heart : slot.hearts) heart.beats.store(0);
    std::fill(std::begin(member.beats), std::end(member.beats), 0);
    std::fill(std::begin(member.grew), std::end(member.grew), now);
    ASAP_TRY(member.process.spawn(plan_.geometry, member.device, control_->fd(), window_fds_));
  }
  return {};
}

Status Supervisor::wait_ready(bool progress, const std::function<bool()>& interrupted) {
  const Geometry& g = plan_.geometry;
  const Instant begin = monotonic_now();
  Instant last_report = begin;
  while (true) {
    for (int device = 1; device < g.devices(); ++device) {
      const WorkerSlot& slot = control_->worker(device);
      if (static_cast<WorkerState>(slot.state.load()) == WorkerState::failed) {
        return fail(Code::invalid, "{}: {}", device_name(g, device), slot.error.read());
      }
    }
    const Instant now = monotonic_now();
    step(now);
    ASAP_TRY(check_kills());
    bool all = true;
    for (const auto& unit : units_) {
      if (unit->state == Unit::State::retired) {
        return fail(Code::unavailable, "{} {} while starting", unit->who, unit->cause);
      }
      all = all && unit->state == Unit::State::up;
    }
    if (all) {
      start_limit_ = watchdog_ + Duration{(now - begin).ns * kSlowestRestart};
      if (progress) {
        spdlog::info("all {} devices ready after {:.2f} s", g.devices() - 1,
                     (now - begin).to_seconds());
      }
      return {};
    }
    if (interrupted()) return fail(Code::unavailable, "interrupted while starting");
    if (progress && now - last_report > Duration::seconds(1)) {
      last_report = now;
      report_progress();
    }
    nap(kLook);
  }
}

// A worker that the kernel ended for want of memory while it loaded would only be ended again.
Status Supervisor::check_kills() const {
  for (const auto& unit : units_) {
    if (!unit->killed || kills_ < 0 || out_of_memory_kills() <= kills_) continue;
    return fail(Code::invalid,
                "{} {}, and the kernel ran out of memory meanwhile (dmesg): the instance needs at "
                "least {}; take a larger machine, --quantization int8, or fewer "
                "--data-parallel-size, each of which has a copy of the attention weights",
                unit->who, unit->cause, bytes_text(needed_));
  }
  return {};
}

void Supervisor::report_progress() const {
  const Geometry& g = plan_.geometry;
  std::string line;
  for (int device = 1; device < g.devices(); ++device) {
    const WorkerSlot& slot = control_->worker(device);
    line += fmt::format("{}{} {}/{}", line.empty() ? "" : ", ", device_name(g, device),
                        slot.layers_done.load(), g.layers);
  }
  spdlog::info("loading layers: {}", line);
}

void Supervisor::watch(SupervisorEvents events) {
  events_ = std::move(events);
  thread_ = std::thread([this] { run(); });
}

// Workers are children of this thread and go with it, so it stops them before it ends.
void Supervisor::run() {
  while (!stopping_) {
    step(monotonic_now());
    rest();
  }
  halt();
}

// Until the next look, or until a worker ends or somebody rings.
void Supervisor::rest() {
  std::vector<pollfd> ends = {{wake_fd_, POLLIN, 0}};
  bool calm = wake_fd_ >= 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& unit : units_) {
      if (unit->state == Unit::State::retired) continue;
      calm = calm && unit->state == Unit::State::up;
      for (const Unit::Member& member : unit->members) {
        calm = calm && member.process.end_fd() >= 0;
        ends.push_back({member.process.end_fd(), POLLIN, 0});
      }
    }
  }
  poll(ends.data(), ends.size(), static_cast<int>((calm ? kCalmLook : kLook).to_millis()));
  uint64_t rings = 0;
  if (ends[0].revents != 0) [[maybe_unused]]
    const ssize_t n = read(wake_fd_, &rings, sizeof(rings));
}

void Supervisor::ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof(one));
}

void Supervisor::stop() {
  if (!thread_.joinable()) return halt();
  stopping_ = true;
  ring();
  thread_.join();
}

void Supervisor::give_up(int group, const std::string& why) {
  const std::lock_guard lock(requests_mutex_);
  requests_.emplace_back(group, why);
  ring();
}

void Supervisor::step(Instant now) {
  std::vector<std::pair<int, std::string>> requests;
  {
    const std::lock_guard lock(requests_mutex_);
    requests.swap(requests_);
  }
  const std::lock_guard lock(mutex_);
  if (last_step_ != Instant::never() && now - last_step_ > kLongLook) {
    for (const auto& unit : units_) {
      for (Unit::Member& member : unit->members) {
        std::fill(std::begin(member.grew), std::end(member.grew), now);
      }
    }
  }
  last_step_ = now;
  for (const auto& [group, why] : requests) {
    const int first = attention_device(plan_.geometry, group, 0);
    Unit& unit = unit_of(first);
    if (unit.state != Unit::State::up) continue;
    fence(unit, device_name(plan_.geometry, first), "got nowhere: " + why, now);
  }
  for (const auto& unit : units_) step(*unit, now);
}

void Supervisor::step(Unit& unit, Instant now) {
  switch (unit.state) {
    case Unit::State::starting:
    case Unit::State::up: return look_after(unit, now);
    case Unit::State::fencing: {
      bool reaped = true;
      for (Unit::Member& member : unit.members) reaped = member.process.ended() && reaped;
      if (reaped) on_fenced(unit, now);
      return;
    }
    case Unit::State::waiting: {
      if (now < unit.retry) return;
      ++unit.epoch;
      ++unit.restarts;
      const Status status = spawn(unit, now);
      if (!status) fence(unit, unit.who, status.error().message, now);
      return;
    }
    case Unit::State::retired: return;
  }
}

// Of processes that run: whether all of them still do, and whether they have become ready.
void Supervisor::look_after(Unit& unit, Instant now) {
  bool ready = true;
  for (Unit::Member& member : unit.members) {
    const std::string name = device_name(plan_.geometry, member.device);
    const WorkerSlot& slot = control_->worker(member.device);
    const auto state = static_cast<WorkerState>(slot.state.load());
    if (member.process.ended()) {
      const std::string error = state == WorkerState::failed ? ": " + slot.error.read() : "";
      unit.killed = member.process.killed();
      return fence(unit, name,
                   fmt::format("(pid {}) {}{}", member.process.pid(), member.process.how(), error),
                   now);
    }
    const std::string still = stands_still(unit, member.device, now);
    if (!still.empty()) {
      return fence(unit, name, fmt::format("(pid {}) {}", member.process.pid(), still), now);
    }
    ready = ready && state == WorkerState::ready;
  }
  if (unit.state != Unit::State::starting) return;
  if (ready) return on_ready(unit, now);
  if (start_limit_.ns > 0 && now - unit.spawned > start_limit_) {
    fence(unit, unit.who,
          fmt::format("was not ready {:.0f} s after its start", (now - unit.spawned).to_seconds()),
          now);
  }
}

// Why a worker is taken for hung; "": it is not.
std::string Supervisor::stands_still(Unit& unit, int device, Instant now) {
  const auto member = std::find_if(unit.members.begin(), unit.members.end(),
                                   [&](const auto& m) { return m.device == device; });
  const WorkerSlot& slot = control_->worker(device);
  for (size_t thread = 0; thread < std::size(slot.hearts); ++thread) {
    const uint64_t beats = slot.hearts[thread].beats.load(std::memory_order_relaxed);
    const bool started = beats != 0 || thread == 0;  // the first one beats from the start
    if (beats != member->beats[thread] || !started) {
      member->beats[thread] = beats;
      member->grew[thread] = now;
    } else if (now - member->grew[thread] > watchdog_) {
      return fmt::format("showed no sign of life for {:.1f} s (--watchdog-timeout)",
                         (now - member->grew[thread]).to_seconds());
    }
  }
  return "";
}

// Stops the unit for good: once its processes are reaped, nothing of this epoch can be written.
void Supervisor::fence(Unit& unit, const std::string& who, const std::string& cause, Instant now) {
  for (Unit::Member& member : unit.members) member.process.kill();
  if (!recovers_) link_->abandon();  // else the scheduler would wait for the dead
  unit.state = Unit::State::fencing;
  unit.who = who;
  unit.cause = cause;
  unit.in_flight = events_.in_flight ? events_.in_flight() : "";
  spdlog::error("{} {}; epoch {} of {} ends", who, cause, unit.epoch, scope_of(unit));
  if (unit.lost) return;  // while it was being restarted
  unit.lost = true;
  unit.noticed = now;
  unit.event = {unix_now(), who, cause, 0, -1, 0};
  if (unit.group && events_.group_lost) {
    for (const int group : groups_of(unit)) {
      unit.event.requests += events_.group_lost(group, who + " " + cause);
    }
  } else if (!unit.group && events_.expert_rank) {
    events_.expert_rank(false);
  }
}

void Supervisor::on_fenced(Unit& unit, Instant now) {
  const auto retry = unit.policy.on_death(now);
  report(unit);
  if (!retry) return retire(unit);
  unit.state = Unit::State::waiting;
  unit.retry = *retry;
  if (*retry > now) {
    spdlog::warn("{} died {} times in a while: it is started again in {:.1f} s", unit.who,
                 unit.policy.deaths(), (*retry - now).to_seconds());
  }
}

void Supervisor::on_ready(Unit& unit, Instant now) {
  unit.state = Unit::State::up;
  unit.policy.on_ready(now);
  if (!unit.lost) return;
  unit.lost = false;
  unit.event.epoch = unit.epoch;
  unit.event.seconds = (now - unit.noticed).to_seconds();
  ++totals_.recoveries;
  totals_.requests_rerun += unit.event.requests;
  totals_.recent.push_back(unit.event);
  if (totals_.recent.size() > kRecent) totals_.recent.erase(totals_.recent.begin());
  spdlog::info("recovered {} in {:.2f} s, epoch {}, {}", unit.who, unit.event.seconds, unit.epoch,
               unit.group ? fmt::format("{} requests re-run", unit.event.requests)
                          : "its items in flight served again");
  for (const int group : groups_of(unit)) {
    if (unit.group && events_.group_back) events_.group_back(group, unit.epoch);
  }
  if (!unit.group && events_.expert_rank) events_.expert_rank(true);
}

void Supervisor::retire(Unit& unit) {
  unit.state = Unit::State::retired;
  totals_.recent.push_back(unit.event);
  if (totals_.recent.size() > kRecent) totals_.recent.erase(totals_.recent.begin());
  std::string why = unit.who + " " + unit.cause;
  if (!recovers_) {
    why += "; --link p2p does not recover";
  } else if (max_restarts_ > 0) {
    why += fmt::format("; it died {} times within {} s (--max-restarts)", unit.policy.deaths(),
                       restart_window_s_);
  }
  spdlog::error("{}; {} stays out of service", why, scope_of(unit));
  const Error error{Code::unavailable, why + "; the instance cannot serve: restart it"};
  const bool all = !unit.group || !recovers_;
  if (!all && events_.group_retired) events_.group_retired(unit.index, error);
  if (all && events_.instance_retired) events_.instance_retired(error);
}

void Supervisor::report(const Unit& unit) {
  CrashFacts facts{unit.who, unit.cause, unit.epoch, unit.policy.deaths(), unit.in_flight, {}};
  facts.pids.resize(static_cast<size_t>(plan_.geometry.devices()));
  for (const auto& each : units_) {
    for (const Unit::Member& member : each->members) {
      facts.pids[static_cast<size_t>(member.device)] = member.process.pid();
    }
  }
  const auto path = write_crash_report(crash_dir_, facts, *control_, window_fds_);
  if (path) {
    spdlog::info("crash report: {}", *path);
  } else {
    spdlog::warn("no crash report: {}", path.error().message);
  }
}

std::vector<PeerStatus> Supervisor::peers() const {
  const std::lock_guard lock(mutex_);
  const Geometry& g = plan_.geometry;
  static constexpr const char* kStates[] = {"starting", "loading", "ready", "failed"};
  std::vector<PeerStatus> out;
  for (int device = 1; device < g.devices(); ++device) {
    PeerStatus peer;
    const bool attention = device < expert_device(g, 0);
    peer.role = attention ? "attention" : "moe";
    if (attention) {
      peer.group = (device - 1) / g.ranks;
      peer.tp_rank = (device - 1) % g.ranks;
    } else {
      peer.moe_rank = device - expert_device(g, 0);
    }
    const Unit& unit = unit_of(device);
    for (const Unit::Member& member : unit.members) {
      if (member.device == host_device(g, device)) peer.pid = member.process.pid();
    }
    peer.epoch = unit.epoch;
    peer.restarts = unit.restarts;
    peer.last_death = unit.cause.empty() ? "" : unit.who + " " + unit.cause;
    const bool runs = unit.state == Unit::State::starting || unit.state == Unit::State::up;
    peer.state = unit.state == Unit::State::retired
                     ? "retired"
                     : (runs ? kStates[control_->worker(device).state.load() & 3] : "dead");
    out.push_back(peer);
  }
  return out;
}

FaultStatus Supervisor::status() const {
  const std::lock_guard lock(mutex_);
  const Geometry& g = plan_.geometry;
  FaultStatus out = totals_;
  out.groups = g.groups;
  out.expert_ranks = g.expert_ranks;
  bool retired = false;
  int groups_left = 0;
  bool failed = false;
  for (const auto& unit : units_) {
    const bool gone = unit->state == Unit::State::retired;
    const bool up = unit->state == Unit::State::up;
    retired = retired || gone;
    if (unit->group) {
      const int groups = static_cast<int>(groups_of(*unit).size());
      groups_left += gone ? 0 : groups;
      out.groups_up += up ? groups : 0;
    } else {
      out.expert_ranks_up += up ? 1 : 0;
    }
    failed = failed || (gone && (!unit->group || !recovers_));
    if (up) continue;
    out.reason += fmt::format("{}{} {}{}", out.reason.empty() ? "" : "; ", unit->who, unit->cause,
                              gone ? ", it stays out of service" : ", it is being restarted");
  }
  if (g.lockstep) out.expert_ranks_up = out.groups_up * g.ranks;
  const bool all = out.groups_up == g.groups && out.expert_ranks_up == g.expert_ranks;
  out.state = failed || groups_left == 0 ? "failed"
              : retired                  ? "degraded"
              : all                      ? "serving"
                                         : "recovering";
  return out;
}

std::string Supervisor::waiting_for() const {
  std::string out;
  for (int device = 1; device < plan_.geometry.devices(); ++device) {
    const std::string waiting = control_->worker(device).waiting.read();
    if (!waiting.empty()) {
      out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", device_name(plan_.geometry, device),
                         waiting);
    }
  }
  return out;
}

void Supervisor::halt() {
  if (control_ == nullptr) return;
  control_->stop().store(1);
  const std::lock_guard lock(mutex_);
  const auto alive = [&] {
    bool any = false;
    for (const auto& unit : units_) {
      for (Unit::Member& member : unit->members) any = !member.process.ended() || any;
    }
    return any;
  };
  const Instant deadline = monotonic_now() + kStopGrace;
  while (alive() && monotonic_now() < deadline) {
    for (int device = 1; link_ != nullptr && device < plan_.geometry.devices(); ++device) {
      link_->doorbell(device).ring();
    }
    nap(Duration::millis(2));
  }
  for (const auto& unit : units_) {
    for (Unit::Member& member : unit->members) member.process.kill();
  }
  while (alive()) nap(Duration::millis(1));
}

}  // namespace asap
