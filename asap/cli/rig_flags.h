// Flags of commands that measure one layer of a model in this process (runtime/layer_rig.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "asap/base/result.h"
#include "asap/runtime/layer_rig.h"

namespace asap {

// The model, types and threads. The weights are random ones unless --load-format says otherwise.
void add_rig_flags(CLI::App& app, EngineConfig& config);

// Of those, the ones that packed weights depend on: threads and kernels.
void add_kernel_flags(CLI::App& app, EngineConfig& config);
// --rounds and --output-file.
void add_result_flags(CLI::App& app, int& rounds, std::string& output_file);

// Fills in what the flags left open: `preset` where no model is named, as few layers as it takes to
// have one with experts, all cores as threads. Errors: as load_spec; unsupported (no experts).
Status complete_rig_config(const std::string& preset, EngineConfig* config);

// CPU time with one thread, which neighbours on a shared machine do not lengthen. With more, wall
// time: threads that wait for others must count.
Clock rig_clock(const EngineConfig& config);
std::string_view rig_clock_name(const EngineConfig& config);

// "1,2,4" as ascending numbers from 1 to `most`. Errors: invalid, naming `flag`.
Result<std::vector<int>> parse_counts(const std::string& flag, const std::string& text, int most);

// The loading of layers on stderr, about once a second if it takes long.
std::function<void(int done, int all)> show_loading();

}  // namespace asap
