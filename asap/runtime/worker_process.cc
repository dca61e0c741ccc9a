#include "asap/runtime/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "asap/base/check.h"
#include "asap/runtime/control.h"

namespace asap {

namespace {

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

// Descriptors go to fixed numbers in the child. They are first copied above that range, so that no
// copy overwrites one that is still to be copied.
Status WorkerProcess::spawn(const Geometry& g, int device, int control_fd,
                            const std::vector<int>& window_fds) {
  CHECK(!alive_, "{} runs already", device_name(g, device));
  const int above = kFirstWindowFd + g.devices() + 1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  std::vector<int> copies;
  const auto give = [&](int fd, int as) {
    copies.push_back(fcntl(fd, F_DUPFD_CLOEXEC, above));
    if (copies.back() >= 0) posix_spawn_file_actions_adddup2(&actions, copies.back(), as);
  };
  give(control_fd, kControlFd);
  for (int i = 0; i < g.devices(); ++i) {
    give(window_fds[static_cast<size_t>(i)], kFirstWindowFd + i);
  }
  // What else is open here, connections above all, is not for workers: a client would not see them
  // closed while a worker holds a copy.
  posix_spawn_file_actions_addclosefrom_np(&actions, kFirstWindowFd + g.devices());
  std::vector<std::string> arguments = worker_arguments(g, device);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const bool copied = std::find(copies.begin(), copies.end(), -1) == copies.end();
  const int error =
      copied ? posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ)
             : EMFILE;
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : copies) {
    if (fd >= 0) close(fd);
  }
  if (error != 0) {
    return fail(Code::internal, "cannot start {}: {}{}", device_name(g, device),
                std::strerror(error),
                error == EMFILE ? "; raise the number of files that may be open (ulimit -n)" : "");
  }
  alive_ = true;
  end_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  how_.clear();
  killed_ = false;
  return {};
}

void WorkerProcess::kill() {
  if (alive_) ::kill(pid_, SIGKILL);
}

bool WorkerProcess::ended() {
  if (!alive_) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  how_ = describe_exit(status);
  killed_ = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  alive_ = false;
  if (end_fd_ >= 0) close(std::exchange(end_fd_, -1));
  return true;
}

}  // namespace asap
