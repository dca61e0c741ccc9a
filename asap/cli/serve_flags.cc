#include "asap/cli/serve_flags.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "asap/cli/options.h"
#include "asap/cli/shipped_files.h"
#include "asap/cli/validators.h"
#include "asap/runtime/crash_report.h"
#include "asap/serve/http_tls.h"

namespace asap {

namespace {

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

// What requests may take of the front.
Status take_limits(ServeFlags& flags) {
  if (flags.max_body_mib_total < flags.max_body_mib) {
    return fail(Code::invalid,
                "--max-body-mib-total {} is less than --max-body-mib {}: no body of that size "
                "could ever be read",
                flags.max_body_mib_total, flags.max_body_mib);
  }
  flags.options.queue_timeout = Duration::seconds(flags.queue_timeout_s);
  flags.options.max_body_bytes = flags.max_body_mib << 20;
  flags.options.max_body_bytes_total = flags.max_body_mib_total << 20;
  return raise_descriptor_limit(flags);
}

// The model, and what clients call it.
Status take_model(ServeFlags& flags) {
  if (flags.config.model.empty() && flags.config.preset.empty()) {
    ASAP_ASSIGN(flags.config.model, bundled_model());
  }
  ASAP_TRY(check_context(flags.config));
  ASAP_TRY(check_config(flags.config));
  if (flags.options.served_model_name.empty()) {
    std::filesystem::path path(source_of(flags.config).name());
    if (!path.has_filename()) path = path.parent_path();
    flags.options.served_model_name = path.filename().string();
  }
  flags.options.model_root = flags.config.model;
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

void add_service_flags(CLI::App& app, ServeFlags& flags) {
  const std::string group = "Service";
  const auto option = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(group);
  };
  ServeOptions& o = flags.options;
  option("--queue-timeout-s", flags.queue_timeout_s,
         "Longest wait of a request before it starts, then 408; 0: none. A request's header "
         "X-Queue-Timeout-S goes before it")
      ->check(between(0, 86'400));
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

void add_serve_flags(CLI::App& app, ServeFlags& flags) {
  add_engine_flags(app, flags.config, flags.trace_file, flags.check_config);
  app.add_option("--host", flags.options.host, "Address to listen on")->capture_default_str();
  app.add_option("--port", flags.options.port, "Port; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--port-file", flags.port_file, "Write the port to this file once ready")
      ->check(writable_file());
  app.add_option("--shutdown-timeout", flags.shutdown_timeout_s,
                 "Seconds that requests may take to end after SIGTERM or Ctrl-C; a second signal "
                 "ends at once")
      ->check(between(0, 86'400))
      ->capture_default_str();
  app.add_option("--served-model-name", flags.options.served_model_name,
                 "Name in /v1/models; default: the directory's name")
      ->check(not_empty());
  app.add_option("--chat-template", flags.chat_template,
                 "File with the chat template (Jinja); default: the model's own")
      ->check(readable_file());
  add_service_flags(app, flags);
}

Result<ServeTexts> check_serve(ServeFlags& flags) {
  ASAP_TRY(take_model(flags));
  ASAP_TRY(take_keys(flags));
  ASAP_TRY(take_limits(flags));
  ASAP_TRY(http::TlsContext::load(flags.options.ssl_certfile, flags.options.ssl_keyfile));
  ASAP_TRY(crash_folder(flags.config.crash_dir));
  ASAP_ASSIGN(Tokenizer tokenizer, load_tokenizer(flags.config));
  auto chat = chat_template(flags);
  if (!chat && !flags.chat_template.empty()) return tl::unexpected<Error>(chat.error());
  return ServeTexts{std::move(tokenizer), std::move(chat)};
}

}  // namespace asap
