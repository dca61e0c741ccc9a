// WorkerProcess: one `asap worker` as its front sees it: started with the descriptors that it
// needs, killed, reaped. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/wire/geometry.h"

namespace asap {

class WorkerProcess {
 public:
  // Starts the worker of `device` with the control block and all windows at the numbers where it
  // looks for them (control.h). Error (internal): the system has no room for another process.
  Status spawn(const Geometry& geometry, int device, int control_fd,
               const std::vector<int>& window_fds);
  // A stopped process dies of it, too.
  void kill();
  // Whether it has ended, and is reaped: nothing of it can write any more.
  bool ended();
  bool alive() const { return alive_; }
  pid_t pid() const { return pid_; }  // of the last process
  // Readable once it has ended, to wait for that; -1: it is reaped, or the system has no such
  // thing.
  int end_fd() const { return end_fd_; }
  // Whether it ended by SIGKILL: of its front, an operator, or a kernel without memory.
  bool killed() const { return killed_; }
  // "was killed by signal 9 (Killed)", once it has ended.
  const std::string& how() const { return how_; }

 private:
  pid_t pid_ = 0;
  bool alive_ = false, killed_ = false;
  int end_fd_ = -1;
  std::string how_;
};

}  // namespace asap
