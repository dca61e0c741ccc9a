// Supervisor: starts one worker process per device (in lockstep: per pair of attention and expert
// rank), watches them, and stops them. It owns the
// shared memory of the instance; as memfds, it vanishes with the last process however that dies.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/runtime/control.h"
#include "asap/runtime/engine.h"
#include "asap/runtime/worker.h"

namespace asap {

// A worker that ended while it was needed.
struct WorkerDeath {
  int device = 0;
  std::string what;  // "moe e1 (pid 123) was killed by signal 9"
};

class Supervisor {
 public:
  // Creates control block and windows, spawns the workers and waits until all are ready, printing
  // progress on stderr if `progress`. `interrupted` is asked about ten times a second; true gives
  // the start-up up. Errors: a worker's own message (bad model, no memory), or who did not become
  // ready.
  static Result<std::unique_ptr<Supervisor>> start(const EngineConfig& config,
                                                   const EnginePlan& plan, const Platform& platform,
                                                   bool progress,
                                                   const std::function<bool()>& interrupted);
  ~Supervisor();  // stops the workers: asks, then kills after two seconds

  Link& link() { return *link_; }
  Control& control() { return *control_; }
  // Workers that died since the last call. One thread.
  std::vector<WorkerDeath> poll();
  std::vector<PeerStatus> peers() const;
  // What every live worker says it waits for; lines for a log.
  std::string waiting_for() const;

 private:
  struct Worker;
  Supervisor() = default;
  Status spawn(int device);
  Status wait_ready(bool progress, const std::function<bool()>& interrupted);
  void report_progress() const;
  void stop();

  EnginePlan plan_;
  std::unique_ptr<Control> control_;
  std::vector<int> window_fds_;  // [devices]
  std::unique_ptr<Link> link_;
  // [devices], null for the front and for a rank that another one's process runs.
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace asap
