// asap serve: the HTTP front over an engine, until SIGINT or SIGTERM.
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "asap/chat/chat_template.h"
#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/make_engine.h"
#include "asap/runtime/warm_up.h"
#include "asap/serve/front.h"

namespace asap {

namespace {

// What the engine has handed over last gets so long to reach its client.
constexpr auto kLastBytes = std::chrono::milliseconds(200);
constexpr Duration kLongestWarmUp = Duration::seconds(10);

struct ServeFlags {
  EngineConfig config;
  ServeOptions options;
  std::string trace_file;
  bool check_config = false;
  double shutdown_timeout_s = 30;
  std::string port_file;
  std::string chat_template;
  std::string api_key_file;
  double queue_timeout_s = 0;
  size_t max_body_mib = 16;
  size_t max_body_mib_total = 1024;
};

// A key that is empty looks like a lock and is none.
Status check_environment() {
  for (const char* name : {"ASAP_API_KEY", "ASAP_ADMIN_API_KEY"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value != 0) continue;
    return fail(Code::invalid,
                "{} is set but empty, which would serve without a key: unset it, or "
                "put the key into it",
                name);
  }
  return {};
}

// What clients must show, and a warning where anybody on the network could ask for anything.
Status take_keys(ServeFlags& flags) {
  AuthKeys& keys = flags.options.auth;
  ASAP_TRY(check_environment());
  if (!flags.api_key_file.empty()) {
    ASAP_ASSIGN(const auto more, read_api_keys(flags.api_key_file));
    keys.client.insert(keys.client.end(), more.begin(), more.end());
  }
  const std::string& host = flags.options.host;
  const bool loopback = host == "localhost" || host == "::1" || host.starts_with("127.");
  if (!loopback && !keys.any()) {
    spdlog::warn(
        "--host {} without --api-key: whoever reaches this port can use the server and "
        "drain it",
        host);
  }
  if (!loopback && keys.any() && flags.options.ssl_certfile.empty()) {
    spdlog::warn("--host {} without --ssl-certfile: keys and prompts cross the network readable",
                 host);
  }
  return {};
}

// Each connection is a descriptor; most systems allow a thousand unless asked. Beside them the
// front holds the windows, and while it starts a worker a copy of each.
Status raise_descriptor_limit(ServeFlags& flags) {
  constexpr rlim_t kOwn = 64;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const EngineConfig& c = flags.config;
  const auto devices = static_cast<rlim_t>(c.data_parallel_size) *
                           static_cast<rlim_t>(c.tensor_parallel_size) * (in_lockstep(c) ? 2 : 1) +
                       static_cast<rlim_t>(std::max(1, c.num_moe_ranks));
  const rlim_t needed =
      kOwn + 4 * devices + static_cast<rlim_t>(flags.options.reserved_connections);
  if (limit.rlim_max <= needed) {
    return fail(Code::invalid,
                "{} files may be open (ulimit -n), but windows, workers and probes alone need {}: "
                "raise the limit",
                limit.rlim_max, needed + 1);
  }
  const rlim_t room = limit.rlim_max - needed;
  if (room < static_cast<rlim_t>(flags.options.max_connections)) {
    spdlog::warn(
        "{} files may be open (ulimit -n): room for {} connections instead of the {} of "
        "--max-connections",
        limit.rlim_max, room, flags.options.max_connections);
    flags.options.max_connections = static_cast<int>(room);
  }
  return {};
}

// The template of the command line or, without one, the model's own.
Result<ChatTemplate> chat_template(const ServeFlags& flags) {
  if (!flags.chat_template.empty()) {
    return ChatTemplate::load_file(flags.chat_template, flags.config.model);
  }
  if (!flags.config.preset.empty()) {
    return fail(Code::unsupported,
                "the preset {} has no chat template; give one with --chat-template FILE",
                flags.config.preset);
  }
  return ChatTemplate::load(flags.config.model);
}

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

// What may be wrong beside the model shows before that is loaded.
Status serve(ServeFlags& flags, const Platform& platform) {
  catch_interrupts();
  ASAP_ASSIGN(const Tokenizer tokenizer, load_tokenizer(flags.config));
  auto chat = chat_template(flags);
  if (!chat && !flags.chat_template.empty()) return tl::unexpected<Error>(chat.error());
  ASAP_ASSIGN(auto bound, HttpServer::bind(flags.options));
  const PortFile port_file(flags.port_file);
  flags.config.trace = !flags.trace_file.empty();
  EngineOptions options;
  options.trace_file = flags.trace_file;
  options.interrupted = &interrupted;
  ASAP_ASSIGN(const auto engine, make_engine(flags.config, platform, options));
  say_chat(chat);
  learn_speed(flags, *engine);
  ASAP_ASSIGN(const auto front, HttpFront::start(flags.options, *engine, tokenizer, std::move(chat),
                                                 std::move(bound)));
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
  if (flags.config.model.empty() && flags.config.preset.empty()) {
    auto model = bundled_model();
    if (!model) return report(model.error());
    flags.config.model = *model;
  }
  if (flags.check_config) return print_config(flags.config);
  if (const Status context = check_context(flags.config); !context) return report(context.error());
  if (const Status keys = take_keys(flags); !keys) return report(keys.error());
  if (!(flags.queue_timeout_s >= 0 && flags.queue_timeout_s <= 86'400)) {
    return report({Code::invalid, fmt::format("--queue-timeout-s is {}; it must be between 0 and "
                                              "86400",
                                              flags.queue_timeout_s)});
  }
  flags.options.queue_timeout = Duration::seconds(flags.queue_timeout_s);
  flags.options.max_body_bytes = flags.max_body_mib << 20;
  flags.options.max_body_bytes_total = flags.max_body_mib_total << 20;
  if (flags.max_body_mib_total < flags.max_body_mib) {
    return report({Code::invalid,
                   fmt::format("--max-body-mib-total {} is less than --max-body-mib {}: no body of "
                               "that size could ever be read",
                               flags.max_body_mib_total, flags.max_body_mib)});
  }
  if (const Status files = raise_descriptor_limit(flags); !files) return report(files.error());
  if (flags.options.served_model_name.empty()) {
    std::filesystem::path path(source_of(flags.config).name());
    if (!path.has_filename()) path = path.parent_path();
    flags.options.served_model_name = path.filename().string();
  }
  flags.options.model_root = flags.config.model;
  const Status status = serve(flags, platform);
  return status ? 0 : report(status.error());
}

void add_service_flags(CLI::App& app, ServeFlags& flags) {
  const std::string group = "Service";
  const auto option = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(group);
  };
  ServeOptions& o = flags.options;
  option("--queue-timeout-s", flags.queue_timeout_s,
         "Longest wait of a request before it starts, then 408; 0: none. A request's header "
         "X-Queue-Timeout-S goes before it");
  option("--api-key", o.auth.client,
         "Key that clients must send (Authorization: Bearer KEY); may be given several times")
      ->check(not_empty())
      ->envname("ASAP_API_KEY");
  option("--api-key-file", flags.api_key_file, "File of such keys, one a line, mode 0600")
      ->check(not_empty());
  option("--admin-api-key", o.auth.admin,
         "Key for /admin and profiling; default: a client's key does")
      ->check(not_empty())
      ->envname("ASAP_ADMIN_API_KEY");
  option("--ssl-keyfile", o.ssl_keyfile, "Private key, PEM: serve TLS");
  option("--ssl-certfile", o.ssl_certfile, "Certificate chain, PEM");
  option("--max-connections", o.max_connections, "Open connections; more get 503, but for probes")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  option("--max-body-mib", flags.max_body_mib, "Size of a request's body; larger ones get 413")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  option("--max-body-mib-total", flags.max_body_mib_total,
         "Size of all bodies that are being received or parsed; more get 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  option("--http-threads", o.threads, "Threads that serve connections")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--enable-log-requests", o.log_requests, "A log line for each request that ends")
      ->group(group);
}

}  // namespace

std::function<int()> add_serve(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<ServeFlags>();
  add_engine_flags(app, flags->config, flags->trace_file, flags->check_config);
  app.add_option("--host", flags->options.host, "Address to listen on")->capture_default_str();
  app.add_option("--port", flags->options.port, "Port; 0: any free one")->capture_default_str();
  app.add_option("--port-file", flags->port_file, "Write the port to this file once ready")
      ->check(writable_file());
  app.add_option("--shutdown-timeout", flags->shutdown_timeout_s,
                 "Seconds that requests may take to end after SIGTERM or Ctrl-C; a second signal "
                 "ends at once")
      ->check(between(0, 86'400))
      ->capture_default_str();
  app.add_option("--served-model-name", flags->options.served_model_name,
                 "Name in /v1/models; default: the directory's name")
      ->check(not_empty());
  app.add_option("--chat-template", flags->chat_template,
                 "File with the chat template (Jinja); default: the model's own")
      ->check(not_empty());
  add_service_flags(app, *flags);
  return [flags, &platform] { return run(*flags, platform); };
}

}  // namespace asap
