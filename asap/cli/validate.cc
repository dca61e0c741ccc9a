#include "asap/cli/validate.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "asap/cli/options.h"
#include "asap/runtime/clock.h"

namespace asap {

namespace {

constexpr Duration kPoll = Duration::millis(20);
constexpr Duration kStartLimit = Duration::seconds(600);  // dummy weights of a large model
constexpr Duration kStopLimit = Duration::seconds(10);

void pause() {
  std::this_thread::sleep_for(std::chrono::nanoseconds(kPoll.ns));
}

// A folder of our own, gone with this object.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "asap-plan-XXXXXX").string();
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// `asap serve` with its flags, on a free port; stopped with this object.
class ServerProcess {
 public:
  explicit ServerProcess(std::vector<std::string> flags) : flags_(std::move(flags)) {}
  ~ServerProcess() { stop(); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // The port, once the server is ready.
  Result<uint16_t> start() {
    if (folder_.path().empty()) {
      return fail(Code::internal, "--validate: no temporary folder can be made in {}",
                  std::filesystem::temp_directory_path().string());
    }
    const std::string port_file = folder_.path() + "/port";
    ASAP_TRY(spawn(port_file));
    const Instant deadline = monotonic_now() + kStartLimit;
    while (monotonic_now() < deadline) {
      int port = 0;
      if (std::ifstream(port_file) >> port) return static_cast<uint16_t>(port);
      if (ended()) return fail(Code::unavailable, "--validate: asap serve ended while it started");
      if (interrupted()) return fail(Code::unavailable, "interrupted");
      pause();
    }
    return fail(Code::unavailable, "--validate: asap serve was not ready within {:.0f} s",
                kStartLimit.to_seconds());
  }

 private:
  Status spawn(const std::string& port_file) {
    std::vector<std::string> arguments = {"asap", "serve", "--port", "0", "--port-file", port_file};
    arguments.insert(arguments.end(), flags_.begin(), flags_.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // Its address is of no interest; errors are.
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return {};
    pid_ = 0;
    return fail(Code::internal, "--validate: cannot start asap serve: {}", std::strerror(error));
  }

  bool ended() {
    if (pid_ != 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
    return pid_ == 0;
  }

  void stop() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGINT);
    const Instant deadline = monotonic_now() + kStopLimit;
    while (monotonic_now() < deadline) {
      if (ended()) return;
      pause();
    }
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  const std::vector<std::string> flags_;
  Folder folder_;
  pid_t pid_ = 0;
};

std::vector<std::string> serve_flags(const EngineConfig& instance, const EngineConfig& real) {
  std::vector<std::string> out;
  const auto flag = [&](const char* name, const auto& value) {
    out.push_back(name);
    out.push_back(fmt::format("{}", value));
  };
  if (real.model.empty()) {
    flag("--preset", real.preset);
    flag("--load-format", "dummy");
    if (real.num_hidden_layers > 0) flag("--num-hidden-layers", real.num_hidden_layers);
    if (!real.hf_overrides.empty()) flag("--hf-overrides", real.hf_overrides);
  } else {
    flag("--model", real.model);
    flag("--load-format", real.load_format);
  }
  flag("--quantization", real.quantization);
  flag("--profile", instance.profile);
  flag("--scheduler", instance.scheduler);
  flag("--data-parallel-size", instance.data_parallel_size);
  flag("--tensor-parallel-size", instance.tensor_parallel_size);
  flag("--num-moe-ranks", instance.num_moe_ranks);
  flag("--stages", instance.stages);
  flag("--max-num-batched-tokens", instance.max_num_batched_tokens);
  if (instance.chunked_prefill_size > 0) {
    flag("--chunked-prefill-size", instance.chunked_prefill_size);
  }
  flag("--max-num-seqs", instance.max_num_seqs);
  flag("--max-model-len", instance.max_model_len);
  flag("--kv-cache-tokens", instance.kv_cache_tokens);
  return out;
}

}  // namespace

Result<LoadReport> measure_for_real(const EngineConfig& instance, const EngineConfig& real,
                                    const std::vector<Arrival>& workload,
                                    const std::function<bool(const LoadProgress&)>& progress) {
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(real)));
  ServerProcess server(serve_flags(instance, real));
  Target target;
  ASAP_ASSIGN(target.port, server.start());
  ASAP_ASSIGN(target.model, first_model(target));
  LoadOptions options;
  options.id_high = std::min(options.id_high, spec.vocab);
  options.id_low = std::min(options.id_low, options.id_high / 2);
  ASAP_ASSIGN(const LoadResult result, run_load(target, workload, options, progress));
  return make_report(result);
}

}  // namespace asap
