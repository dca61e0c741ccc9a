#include "asap/cli/cli.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <vector>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"

namespace asap {

namespace {

struct Command {
  const char* name;
  const char* help;
  std::function<int()> action;
  CLI::App* app = nullptr;
};

int parse_and_run(CLI::App& app, int argc, char** argv, std::vector<Command>& commands) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);  // prints help, or the message
    return code == 0 ? 0 : exit_code(Code::invalid);
  }
  for (Command& command : commands) {
    if (command.app->parsed()) return command.action();
  }
  return 0;
}

}  // namespace

int run_cli(int argc, char** argv, const Platform& platform) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("asap"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  CLI::App app("ASAP: asynchronous, disaggregated prefill for Mixture-of-Experts models");
  app.set_version_flag("--version", "asap 0.1.0");
  app.require_subcommand(1);
  std::vector<Command> commands = {
      {"serve", "Serve a model over an OpenAI-compatible HTTP API", nullptr},
      {"run", "Run one request and print its tokens", nullptr},
      {"inspect", "Describe a checkpoint: architecture, sizes, bytes per device", nullptr},
      {"verify", "Check engines against golden checkpoints with expected results", nullptr},
      {"worker", "One device of an instance; started by serve and run", nullptr},
  };
  for (Command& command : commands) {
    command.app = app.add_subcommand(command.name, command.help);
  }
  commands[0].action = add_serve(*commands[0].app, platform);
  commands[1].action = add_run(*commands[1].app, platform);
  commands[2].action = add_inspect(*commands[2].app);
  commands[3].action = add_verify(*commands[3].app, platform);
  commands[4].action = add_worker(*commands[4].app, platform);
  return parse_and_run(app, argc, argv, commands);
}

}  // namespace asap
