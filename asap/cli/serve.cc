// asap serve: the HTTP front over an engine, until SIGINT or SIGTERM.
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "asap/chat/chat_template.h"
#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/make_engine.h"
#include "asap/serve/front.h"

namespace asap {

namespace {

// What the engine has handed over last gets so long to reach its client.
constexpr auto kLastBytes = std::chrono::milliseconds(200);

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
};

// What clients must show, and a warning where anybody on the network could ask for anything.
Status take_keys(ServeFlags& flags) {
  AuthKeys& keys = flags.options.auth;
  if (!flags.api_key_file.empty()) {
    ASAP_ASSIGN(const auto more, read_api_keys(flags.api_key_file));
    keys.client.insert(keys.client.end(), more.begin(), more.end());
  }
  keys.client.erase(std::remove(keys.client.begin(), keys.client.end(), ""), keys.client.end());
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

// Each connection is a descriptor; most systems allow a thousand unless asked.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The template of the command line or, without one, the model's own.
Result<ChatTemplate> chat_template(const ServeFlags& flags) {
  return flags.chat_template.empty()
             ? ChatTemplate::load(flags.config.model)
             : ChatTemplate::load_file(flags.chat_template, flags.config.model);
}

// Completions are served all the same.
void say_chat(const Result<ChatTemplate>& chat) {
  if (chat) {
    spdlog::info("chat template: {}", chat->origin());
  } else {
    spdlog::warn("no chat: {}", chat.error().message);
  }
}

Status write_port(const std::string& path, uint16_t port) {
  std::ofstream file(path);
  file << port << "\n";
  file.flush();
  if (!file) return fail(Code::invalid, "cannot write --port-file {}", path);
  return {};
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
  if (!engine.drained()) spdlog::warn("requests were cut off after {:g} s", timeout_s);
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

Status serve(ServeFlags& flags, const Platform& platform) {
  catch_interrupts();
  ASAP_ASSIGN(const Tokenizer tokenizer, load_tokenizer(flags.config));
  auto chat = chat_template(flags);
  if (!chat && !flags.chat_template.empty()) return tl::unexpected<Error>(chat.error());
  flags.config.trace = !flags.trace_file.empty();
  EngineOptions options;
  options.trace_file = flags.trace_file;
  options.interrupted = &interrupted;
  ASAP_ASSIGN(const auto engine, make_engine(flags.config, platform, options));
  say_chat(chat);
  ASAP_ASSIGN(const auto front,
              HttpFront::start(flags.options, *engine, tokenizer, std::move(chat)));
  if (!flags.port_file.empty()) ASAP_TRY(write_port(flags.port_file, front->port()));
  std::printf("listening on %s://%s:%u\n", flags.options.ssl_certfile.empty() ? "http" : "https",
              flags.options.host.c_str(), front->port());
  std::fflush(stdout);
  StateLog states(*engine);
  while (!interrupted()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    states.look();
  }
  drain(*engine, flags.shutdown_timeout_s);
  spdlog::info("stopping");
  front->stop();
  return {};
}

int run(ServeFlags& flags, const Platform& platform) {
  if (flags.config.model.empty() && flags.config.preset.empty()) {
    auto model = bundled_model();
    if (!model) return report(model.error());
    flags.config.model = *model;
  }
  if (flags.check_config) return print_config(flags.config);
  if (const Status keys = take_keys(flags); !keys) return report(keys.error());
  if (!(flags.queue_timeout_s >= 0 && flags.queue_timeout_s <= 86'400)) {
    return report({Code::invalid, fmt::format("--queue-timeout-s is {}; it must be between 0 and "
                                              "86400",
                                              flags.queue_timeout_s)});
  }
  flags.options.queue_timeout = Duration::seconds(flags.queue_timeout_s);
  flags.options.max_body_bytes = flags.max_body_mib << 20;
  raise_descriptor_limit();
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
      ->envname("ASAP_API_KEY");
  option("--api-key-file", flags.api_key_file, "File of such keys, one a line, mode 0600");
  option("--admin-api-key", o.auth.admin,
         "Key for /admin and profiling; default: a client's key does")
      ->envname("ASAP_ADMIN_API_KEY");
  option("--ssl-keyfile", o.ssl_keyfile, "Private key, PEM: serve TLS");
  option("--ssl-certfile", o.ssl_certfile, "Certificate chain, PEM");
  option("--max-connections", o.max_connections, "Open connections; more get 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  option("--max-body-mib", flags.max_body_mib, "Size of a request's body; larger ones get 413")
      ->check(CLI::Range(1, 1024))
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
  app.add_option("--port-file", flags->port_file, "Write the port to this file once ready");
  app.add_option("--shutdown-timeout", flags->shutdown_timeout_s,
                 "Seconds that requests may take to end after SIGTERM or Ctrl-C; a second signal "
                 "ends at once")
      ->check(between(0, 86'400))
      ->capture_default_str();
  app.add_option("--served-model-name", flags->options.served_model_name,
                 "Name in /v1/models; default: the directory's name");
  app.add_option("--chat-template", flags->chat_template,
                 "File with the chat template (Jinja); default: the model's own");
  add_service_flags(app, *flags);
  return [flags, &platform] { return run(*flags, platform); };
}

}  // namespace asap
