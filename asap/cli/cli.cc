#include "asap/cli/cli.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"

namespace asap {

namespace {

struct Command {
  const char* name;
  const char* help;
  std::function<std::function<int()>(CLI::App&)> add;  // adds its flags, gives its action
  CLI::App* app = nullptr;
  std::function<int()> action = nullptr;
};

// The name that stands where a command should be, if it is none; CLI11 would say that one is
// missing.
Status check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return {};
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  std::string names;
  for (const CLI::App* command : commands) {
    if (command->get_name() != argv[1]) {
      names += (names.empty() ? "" : ", ") + command->get_name();
      continue;
    }
    const bool deeper = command->get_require_subcommand_min() > 0;
    return deeper ? check_command(*command, argc - 1, argv + 1) : Status();
  }
  return fail(Code::invalid, "no such command: {}; there are {}", argv[1], names);
}

// The command that the words on the line lead to, and its name: "asap bench serve".
const CLI::App* command_of(const CLI::App* app, std::string* name) {
  for (;;) {
    const auto deeper = app->get_subcommands();
    if (deeper.empty()) return app;
    app = deeper.front();
    *name += " " + app->get_name();
  }
}

std::string kind_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.starts_with("UINT")) return "a whole number of at least 0";
  if (type.starts_with("INT")) return fmt::format("a whole number of at most {}", INT32_MAX);
  return type.starts_with("FLOAT") ? "a number" : "a value";
}

// CLI11 says that a value cannot be converted or is missing, and not what it should be.
Error parse_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string name = "asap";
  const CLI::App* const command = command_of(&app, &name);
  const std::string text = error.what();
  constexpr std::string_view kConvert = "Could not convert: ", kIs = " = ",
                             kMissing = ": 1 required";
  const size_t is = text.find(kIs), missing = text.find(kMissing);
  if (text.starts_with(kConvert) && is != text.npos) {
    const std::string flag = text.substr(kConvert.size(), is - kConvert.size());
    if (const CLI::Option* option = command->get_option_no_throw(flag)) {
      return {Code::invalid,
              fmt::format("{} is \"{}\"; it must be {} ({})", flag, text.substr(is + kIs.size()),
                          kind_of(*option), option->get_description())};
    }
  }
  if (missing != text.npos) {
    const std::string flag = text.substr(0, missing);
    if (const CLI::Option* option = command->get_option_no_throw(flag)) {
      return {Code::invalid,
              fmt::format("{} needs {} ({})", flag, kind_of(*option), option->get_description())};
    }
  }
  // What a validator says holds the remedy.
  if (error.get_name() == "ValidationError") return {Code::invalid, text};
  return {Code::invalid, fmt::format("{}; {} --help lists the flags", text, name)};
}

int parse_and_run(CLI::App& app, int argc, char** argv, std::vector<Command>& commands) {
  if (const Status known = check_command(app, argc, argv); !known) return report(known.error());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // prints help
    return report(parse_error(app, error));
  }
  for (Command& command : commands) {
    if (command.app->parsed()) return command.action();
  }
  return 0;
}

}  // namespace

int run_cli(int argc, char** argv, const Platform& platform) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its write
  spdlog::set_default_logger(spdlog::stderr_color_mt("asap"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  CLI::App app("ASAP: asynchronous, disaggregated prefill for Mixture-of-Experts models");
  app.set_version_flag("--version", "asap 0.1.0");
  app.require_subcommand(1);
  const auto with_platform = [&](auto add) {
    return [add, &platform](CLI::App& command) { return add(command, platform); };
  };
  std::vector<Command> commands = {
      {"serve", "Serve a model over an OpenAI-compatible HTTP API", with_platform(add_serve)},
      {"run", "Run one request and print its tokens", with_platform(add_run)},
      {"inspect", "Describe a checkpoint: architecture, sizes, bytes per device", add_inspect},
      {"quantize", "Write a checkpoint's int8 form (W8A8), which vLLM reads too", add_quantize},
      {"verify", "Check engines against golden checkpoints with expected results",
       with_platform(add_verify)},
      {"plan", "Find the instance that serves a demand best on so many devices", add_plan},
      {"simulate", "Run a workload through an instance of any size in virtual time", add_simulate},
      {"reproduce", "The paper's evaluation as a report: its figures, simulated, measured",
       add_reproduce},
      {"bench", "Measure: load on a server, kernels, communication", with_platform(add_bench)},
      {"calibrate", "Measure a cost profile of a model on this machine",
       with_platform(add_calibrate)},
      {"worker", "One device of an instance; started by serve and run", with_platform(add_worker)},
  };
  for (Command& command : commands) {
    command.app = app.add_subcommand(command.name, command.help);
    command.action = command.add(*command.app);
  }
  return parse_and_run(app, argc, argv, commands);
}

}  // namespace asap
