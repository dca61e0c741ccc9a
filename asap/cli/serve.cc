// asap serve: the HTTP front over an engine, until SIGINT or SIGTERM.
#include <spdlog/spdlog.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/serve_flags.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/make_engine.h"
#include "asap/runtime/warm_up.h"
#include "asap/serve/front.h"

namespace asap {

namespace {

// What the engine has handed over last gets so long to reach its client.
constexpr auto kLastBytes = std::chrono::milliseconds(200);
constexpr Duration kLongestWarmUp = Duration::seconds(10);

// Completions are served all the same.
void say_chat(const Result<ChatTemplate>& chat) {
  if (chat) {
    spdlog::info("chat template: {}", chat->origin());
  } else {
    spdlog::warn("no chat: {}", chat.error().message);
  }
}

// --port-file: there while the server serves. One that an earlier server left would send somebody
// to a port of others.
class PortFile {
 public:
  explicit PortFile(std::string path) : path_(std::move(path)) { remove(); }
  ~PortFile() { remove(); }
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

  Status write(uint16_t port) const {
    if (path_.empty()) return {};
    std::ofstream file(path_);
    file << port << "\n";
    file.flush();
    if (!file) return fail(Code::invalid, "cannot write --port-file {}", path_);
    return {};
  }

 private:
  void remove() const {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path_, ignored)) std::filesystem::remove(path_, ignored);
  }
  const std::string path_;
};

// Tells every request that is left why it ends, and waits until that is on its way.
void cut_off(Engine& engine, double timeout_s) {
  spdlog::warn("requests were cut off after {:g} s", timeout_s);
  engine.end_all({Code::unavailable,
                  fmt::format("the server is shutting down and waits for requests no longer than "
                              "{:g} s (--shutdown-timeout); send this one to another instance",
                              timeout_s)});
  const Instant deadline = monotonic_now() + Duration::seconds(1);
  while (!engine.drained() && monotonic_now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Takes no more requests and waits for those that are there; a second signal ends the process.
void drain(Engine& engine, double timeout_s) {
  engine.drain();
  if (engine.drained()) return;
  const EngineStats stats = engine.stats();
  spdlog::info(
      "draining: {} requests are left, at most {:g} s (--shutdown-timeout); a second signal ends "
      "at once",
      stats.running + stats.waiting, timeout_s);
  const Instant deadline = monotonic_now() + Duration::seconds(timeout_s);
  while (!engine.drained() && monotonic_now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!engine.drained()) cut_off(engine, timeout_s);
  std::this_thread::sleep_for(kLastBytes);
}

// A line whenever the instance's state changes.
class StateLog {
 public:
  explicit StateLog(const Engine& engine) : engine_(engine) {}

  void look() {
    const bool ready = engine_.ready();
    const FaultStatus faults = engine_.fault_status();
    if (ready == ready_ && faults.state == state_ && faults.draining == draining_) return;
    spdlog::info("state ready={} faults={} draining={} reason=\"{}\"", ready, faults.state,
                 faults.draining, ready ? faults.reason : engine_.not_ready_reason());
    ready_ = ready;
    state_ = faults.state;
    draining_ = faults.draining;
  }

 private:
  const Engine& engine_;
  bool ready_ = false, draining_ = false;
  std::string state_;
};

// Where admission goes by time it must know the instance's speed.
void learn_speed(const ServeFlags& flags, Engine& engine) {
  if (flags.config.max_queued_s <= 0) return;
  const Instant begin = monotonic_now();
  if (warm_up(engine, kLongestWarmUp, &interrupted)) {
    spdlog::info("speed measured in {:.1f} s", (monotonic_now() - begin).to_seconds());
  } else {
    spdlog::warn(
        "the speed is not known after {:.0f} s of warm-up: --max-queued-s and "
        "--queue-timeout-s judge nobody until it is",
        (monotonic_now() - begin).to_seconds());
  }
}

void wait_for_signal(const Engine& engine) {
  StateLog states(engine);
  while (!interrupted()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    states.look();
  }
}

Status serve(ServeFlags& flags, const Platform& platform) {
  catch_interrupts();
  ASAP_ASSIGN(ServeTexts texts, check_serve(flags));
  ASAP_ASSIGN(auto bound, HttpServer::bind(flags.options));
  const PortFile port_file(flags.port_file);
  flags.config.trace = !flags.trace_file.empty();
  EngineOptions options;
  options.trace_file = flags.trace_file;
  options.interrupted = &interrupted;
  ASAP_ASSIGN(const auto engine, make_engine(flags.config, platform, options));
  say_chat(texts.chat);
  learn_speed(flags, *engine);
  ASAP_ASSIGN(const auto front, HttpFront::start(flags.options, *engine, texts.tokenizer,
                                                 std::move(texts.chat), std::move(bound)));
  ASAP_TRY(port_file.write(front->port()));
  std::printf("listening on %s://%s:%u\n", flags.options.ssl_certfile.empty() ? "http" : "https",
              flags.options.host.c_str(), front->port());
  std::fflush(stdout);
  wait_for_signal(*engine);
  drain(*engine, flags.shutdown_timeout_s);
  spdlog::info("stopping");
  front->stop();
  return engine->close();
}

int run(ServeFlags& flags, const Platform& platform) {
  if (flags.check_config) {
    const auto texts = check_serve(flags);
    if (!texts) return report(texts.error());
    say_chat(texts->chat);
    return print_config(flags.config);
  }
  const Status status = serve(flags, platform);
  return status ? 0 : report(status.error());
}

}  // namespace

std::function<int()> add_serve(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(app, *flags);
  return [flags, &platform] { return run(*flags, platform); };
}

}  // namespace asap
