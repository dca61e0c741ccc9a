// asap serve: the HTTP front over an engine, until SIGINT or SIGTERM.
#include <spdlog/spdlog.h>

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
};

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
  std::printf("listening on http://%s:%u\n", flags.options.host.c_str(), front->port());
  std::fflush(stdout);
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
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
  if (flags.options.served_model_name.empty()) {
    std::filesystem::path path(source_of(flags.config).name());
    if (!path.has_filename()) path = path.parent_path();
    flags.options.served_model_name = path.filename().string();
  }
  flags.options.model_root = flags.config.model;
  const Status status = serve(flags, platform);
  return status ? 0 : report(status.error());
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
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--served-model-name", flags->options.served_model_name,
                 "Name in /v1/models; default: the directory's name");
  app.add_option("--chat-template", flags->chat_template,
                 "File with the chat template (Jinja); default: the model's own");
  return [flags, &platform] { return run(*flags, platform); };
}

}  // namespace asap
