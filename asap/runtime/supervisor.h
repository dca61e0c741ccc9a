// Supervisor: starts one worker process per device (in lockstep: per pair of attention and expert
// rank), watches them, starts those again that die or hang, and stops them. It owns the shared
// memory of the instance; as memfds, it vanishes with the last process however that dies.
//
// Recovery has one unit and one rule. A unit is what loses its state together: an attention group
// (its ranks share a KV cache) or an expert rank; in lockstep, where everybody waits for everybody,
// all of the instance. When a process of a unit ends, or shows no sign
// of life within the watchdog's time, the unit is fenced: all its processes are killed and reaped,
// so that nothing of them can write any more. Then it is started again with the next epoch; peers
// accept nothing of an earlier one (wire/layout.h). Windows are the front's memory and stay.
//
//   starting -> up -> fencing -> waiting -> starting ...     all ready; a death; reaped; time to
//   try
//                        `-----> retired                     died too often (policy/restart.h)
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "asap/base/result.h"
#include "asap/runtime/control.h"
#include "asap/runtime/engine.h"
#include "asap/runtime/worker.h"

namespace asap {

// What the scheduler has to know; called on the supervisor's thread. None may call back.
struct SupervisorEvents {
  // At notice. How many requests are run again.
  std::function<int(int group, const std::string& cause)> group_lost;
  // All its ranks are ready at `epoch`.
  std::function<void(int group, uint64_t epoch)> group_back;
  std::function<void(int group, const Error& error)> group_retired;
  std::function<void(bool up)> expert_rank;  // an expert rank is being restarted, or is back
  std::function<void(const Error& error)> instance_retired;  // an expert rank stays away
  std::function<std::string()> in_flight;  // for crash reports
};

class Supervisor {
 public:
  // Creates control block and windows, spawns the workers and waits until all are ready, printing
  // progress on stderr if `progress`; those that die meanwhile are started again. `interrupted` is
  // asked about every other millisecond; true gives the start-up up. Errors: a worker's own message
  // (bad model, no memory), or who died too often.
  static Result<std::unique_ptr<Supervisor>> start(const EngineConfig& config,
                                                   const EnginePlan& plan, const Platform& platform,
                                                   bool progress,
                                                   const std::function<bool()>& interrupted);
  ~Supervisor();  // stops

  Link& link() { return *link_; }
  Control& control() { return *control_; }
  // Of a group: what start() has reached.
  uint64_t group_epoch(int group) const;
  // Watches the workers on a thread of its own from now on. Once.
  void watch(SupervisorEvents events);
  // Stops the workers: asks, then kills after two seconds. No event comes after it.
  void stop();
  // Any thread: a group got nowhere for too long, whoever is to blame. Takes no lock that is held
  // while an event is delivered.
  void give_up(int group, const std::string& why);

  // Any thread.
  std::vector<PeerStatus> peers() const;
  FaultStatus status() const;
  // What every live worker says it waits for; lines for a log.
  std::string waiting_for() const;

 private:
  struct Unit;
  Supervisor();
  Status open(const EngineConfig& config, const EnginePlan& plan, const Platform& platform);
  Status spawn(Unit& unit, Instant now);
  Status wait_ready(bool progress, const std::function<bool()>& interrupted);
  Status check_kills() const;
  void report_progress() const;
  void run();
  void rest();
  void ring();
  void halt();

  void step(Instant now);
  void step(Unit& unit, Instant now);
  void look_after(Unit& unit, Instant now);
  void fence(Unit& unit, const std::string& who, const std::string& cause, Instant now);
  void on_fenced(Unit& unit, Instant now);
  void on_ready(Unit& unit, Instant now);
  void retire(Unit& unit);
  void report(const Unit& unit);
  std::string stands_still(Unit& unit, int device, Instant now);
  Unit& unit_of(int device) const;
  std::vector<int> groups_of(const Unit& unit) const;
  std::string scope_of(const Unit& unit) const;
  Status clear_windows();

  EnginePlan plan_;
  Duration watchdog_;
  Duration start_limit_{0};  // of a restart: far more than the first start took; 0: none yet
  bool recovers_ = true;
  int max_restarts_ = 0, restart_window_s_ = 0;
  uint64_t needed_ = 0;  // bytes of the instance, at least
  int64_t kills_ = -1;   // of the kernel for want of memory, before the start
  std::string crash_dir_;
  std::unique_ptr<Control> control_;
  std::vector<int> window_fds_;  // [devices]
  std::unique_ptr<Link> link_;
  SupervisorEvents events_;
  int wake_fd_ = -1;  // ends a rest()
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  mutable std::mutex mutex_;                  // guards what follows
  std::vector<std::unique_ptr<Unit>> units_;  // groups, then expert ranks; in lockstep one
  Instant last_step_ = Instant::never();
  FaultStatus totals_;  // recoveries, requests, recent

  std::mutex requests_mutex_;                          // guards what follows
  std::vector<std::pair<int, std::string>> requests_;  // give_up(): group, why
};

}  // namespace asap
