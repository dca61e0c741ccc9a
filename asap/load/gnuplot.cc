#include "asap/load/gnuplot.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

extern char** environ;

namespace asap {

namespace {

constexpr int kSilenceMs = 60'000;  // of a child that writes nothing
constexpr size_t kMaxOutput = size_t{64} << 20;

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Until the other end closes. False: the child fell silent, or wrote without end.
bool read_all(int fd, std::string& out) {
  std::array<char, 64 * 1024> bytes;
  for (;;) {
    pollfd ready{fd, POLLIN, 0};
    const int n = ::poll(&ready, 1, kSilenceMs);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || out.size() > kMaxOutput) return false;
    const ssize_t got = ::read(fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    out.append(bytes.data(), static_cast<size_t>(got));
  }
}

std::string contents(int fd) {
  std::string out;
  std::array<char, 4096> bytes;
  ::lseek(fd, 0, SEEK_SET);
  for (ssize_t n = 1; n > 0 && out.size() < bytes.size();) {
    n = ::read(fd, bytes.data(), bytes.size());
    if (n > 0) out.append(bytes.data(), static_cast<size_t>(n));
  }
  return out;
}

// Starts gnuplot with these as its standard input, output and error; 0 or an errno.
int start(int in, int out, int err, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  std::string name = "gnuplot";
  std::string defaults = "-d";  // no user settings
  char* argv[] = {name.data(), defaults.data(), nullptr};
  const int error = posix_spawnp(&pid, name.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

Result<std::string> run_gnuplot(const std::string& script) {
  // The script waits in memory, so nobody blocks on a full pipe.
  const Descriptor input(::memfd_create("gnuplot-script", MFD_CLOEXEC));
  const Descriptor errors(::memfd_create("gnuplot-errors", MFD_CLOEXEC));
  int ends[2] = {-1, -1};
  if (input.get() < 0 || errors.get() < 0 || ::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(Code::internal, "gnuplot: no file descriptors ({})", std::strerror(errno));
  }
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  if (!write_all(input.get(), script) || ::lseek(input.get(), 0, SEEK_SET) != 0) {
    return fail(Code::internal, "gnuplot: its script cannot be kept ({})", std::strerror(errno));
  }
  pid_t pid = 0;
  if (const int error = start(input.get(), to.get(), errors.get(), pid); error != 0) {
    if (error == ENOENT) {
      return fail(Code::not_found,
                  "gnuplot, which draws the charts, is not installed: apt-get install gnuplot-nox");
    }
    return fail(Code::internal, "gnuplot cannot be started: {}", std::strerror(error));
  }
  to.close();
  std::string out;
  const bool ended = read_all(from.get(), out);
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return fail(Code::internal, "gnuplot did not end within its deadline");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(Code::internal, "gnuplot failed (status {}): {}", status, contents(errors.get()));
  }
  return out;
}

}  // namespace asap
