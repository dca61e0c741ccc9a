#include "asap/runtime/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "asap/runtime/clock.h"
#include "asap/transport/shared_memory.h"

namespace asap {

namespace {

constexpr Duration kStopGrace = Duration::seconds(2);

void nap(Duration duration) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(duration.ns));
}

// The command line says what the process is; ps and top show it.
std::vector<std::string> worker_arguments(const Geometry& g, int device) {
  if (device < expert_device(g, 0)) {
    const int index = device - 1;
    return {"asap",      "worker",
            "--role",    "attention",
            "--group",   std::to_string(index / g.ranks),
            "--tp-rank", std::to_string(index % g.ranks)};
  }
  return {"asap", "worker",     "--role",
          "moe",  "--moe-rank", std::to_string(device - expert_device(g, 0))};
}

std::string describe_exit(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  }
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

}  // namespace

struct Supervisor::Worker {
  std::atomic<pid_t> pid{0};
  std::atomic<bool> dead{false};
  bool reported = false;
  std::string how;  // once dead
};

Result<std::unique_ptr<Supervisor>> Supervisor::start(const EngineConfig& config,
                                                      const EnginePlan& plan,
                                                      const Platform& platform, bool progress,
                                                      const std::function<bool()>& interrupted) {
  std::unique_ptr<Supervisor> out(new Supervisor);
  const Geometry& g = plan.geometry;
  out->plan_ = plan;
  ASAP_ASSIGN(out->control_, Control::create(config, g));
  for (int device = 0; device < g.devices(); ++device) {
    ASAP_ASSIGN(const int fd,
                create_shared_memory("asap-" + device_name(g, device), window_bytes(g, device)));
    out->window_fds_.push_back(fd);
  }
  ASAP_ASSIGN(out->link_, platform.make_process_link(config.link, g, out->window_fds_));
  out->workers_.resize(static_cast<size_t>(g.devices()));
  for (int device = 1; device < g.devices(); ++device) {
    if (host_device(g, device) == device) ASAP_TRY(out->spawn(device));
  }
  ASAP_TRY(out->wait_ready(progress, interrupted));
  return out;
}

Supervisor::~Supervisor() {
  stop();
  link_.reset();
  for (const int fd : window_fds_) close(fd);
}

// Descriptors go to fixed numbers in the child. They are first copied above that range, so that no
// copy overwrites one that is still to be copied.
Status Supervisor::spawn(int device) {
  const Geometry& g = plan_.geometry;
  const int above = kFirstWindowFd + g.devices() + 1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  std::vector<int> copies;
  const auto give = [&](int fd, int as) {
    copies.push_back(fcntl(fd, F_DUPFD_CLOEXEC, above));
    posix_spawn_file_actions_adddup2(&actions, copies.back(), as);
  };
  give(control_->fd(), kControlFd);
  for (int i = 0; i < g.devices(); ++i) {
    give(window_fds_[static_cast<size_t>(i)], kFirstWindowFd + i);
  }
  std::vector<std::string> arguments = worker_arguments(g, device);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : copies) close(fd);
  if (error != 0) {
    return fail(Code::internal, "cannot start {}: {}", device_name(g, device),
                std::strerror(error));
  }
  workers_[static_cast<size_t>(device)] = std::make_unique<Worker>();
  workers_[static_cast<size_t>(device)]->pid = pid;
  return {};
}

Status Supervisor::wait_ready(bool progress, const std::function<bool()>& interrupted) {
  const Geometry& g = plan_.geometry;
  Instant last_report = monotonic_now();
  while (true) {
    int ready = 0;
    for (int device = 1; device < g.devices(); ++device) {
      WorkerSlot& slot = control_->worker(device);
      const auto state = static_cast<WorkerState>(slot.state.load());
      if (state == WorkerState::failed) {
        return fail(Code::invalid, "{}: {}", device_name(g, device), slot.error.read());
      }
      ready += state == WorkerState::ready ? 1 : 0;
    }
    if (ready == g.devices() - 1) return {};
    const std::vector<WorkerDeath> deaths = poll();
    if (!deaths.empty()) {
      return fail(Code::unavailable, "{} while starting", deaths.front().what);
    }
    if (interrupted()) return fail(Code::unavailable, "interrupted while starting");
    if (progress && monotonic_now() - last_report > Duration::seconds(1)) {
      last_report = monotonic_now();
      report_progress();
    }
    nap(Duration::millis(2));
  }
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

std::vector<WorkerDeath> Supervisor::poll() {
  std::vector<WorkerDeath> deaths;
  for (size_t device = 1; device < workers_.size(); ++device) {
    Worker* worker = workers_[device].get();
    if (worker == nullptr || worker->dead) continue;
    int status = 0;
    if (waitpid(worker->pid, &status, WNOHANG) != worker->pid) continue;
    worker->how = describe_exit(status);
    worker->dead = true;
    deaths.push_back(
        {static_cast<int>(device),
         fmt::format("{} (pid {}) {}", device_name(plan_.geometry, static_cast<int>(device)),
                     worker->pid.load(), worker->how)});
  }
  return deaths;
}

std::vector<PeerStatus> Supervisor::peers() const {
  const Geometry& g = plan_.geometry;
  static constexpr const char* kStates[] = {"starting", "loading", "ready", "dead"};
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
    const Worker* worker = workers_[static_cast<size_t>(host_device(g, device))].get();
    if (worker == nullptr) continue;
    peer.pid = worker->pid;
    peer.epoch = 1;
    peer.state = worker->dead ? "dead" : kStates[control_->worker(device).state.load() & 3];
    out.push_back(peer);
  }
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

void Supervisor::stop() {
  if (control_ == nullptr) return;
  control_->stop().store(1);
  const auto alive = [&] {
    poll();
    for (const auto& worker : workers_) {
      if (worker != nullptr && !worker->dead) return true;
    }
    return false;
  };
  const Instant deadline = monotonic_now() + kStopGrace;
  while (alive() && monotonic_now() < deadline) {
    for (int device = 1; link_ != nullptr && device < plan_.geometry.devices(); ++device) {
      link_->doorbell(device).ring();
    }
    nap(Duration::millis(2));
  }
  for (const auto& worker : workers_) {
    if (worker != nullptr && !worker->dead) kill(worker->pid, SIGKILL);
  }
  while (alive()) nap(Duration::millis(1));
}

}  // namespace asap
