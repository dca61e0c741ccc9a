// Flags shared by the commands.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "asap/base/result.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/config.h"
#include "asap/runtime/worker.h"

namespace asap {

int exit_code(Code code);
// Prints "asap: message" on stderr and gives the exit code.
int report(const Error& error);

// MODEL or --preset, how its weights come, and what of it is kept.
void add_model_flags(CLI::App& app, EngineConfig& config);
// The model, and geometry, limits and kernels of an instance.
void add_engine_flags(CLI::App& app, EngineConfig& config, std::string& trace_file,
                      bool& check_config);
// --isa, beside --ops.
void add_isa_flag(CLI::App& app, EngineConfig& config);
// --scheduler and the flags of its single mechanisms.
void add_scheduling_flags(CLI::App& app, EngineConfig& config);
// Whether a model is named at all. Errors: invalid.
Status check_model(const EngineConfig& config);
// --max-model-len against the model's own context (runtime/config.h).
Status check_context(const EngineConfig& config);
// The model's tokenizer; bytes as tokens for a dummy that has none.
Result<Tokenizer> load_tokenizer(const EngineConfig& config);
// --check-config: prints the topology and the windows.
int print_config(const EngineConfig& config);

// What --output-file gets; "" writes nothing. Errors: internal (names the file).
Status write_figures(const std::string& file, const nlohmann::ordered_json& figures);

// True after SIGINT or SIGTERM, once catch_interrupts() was called.
void catch_interrupts();
bool interrupted();

}  // namespace asap
