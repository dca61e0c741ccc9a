// How the CLI gets an Engine: worker processes, or everything in this one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "asap/runtime/config.h"
#include "asap/runtime/engine.h"
#include "asap/runtime/worker.h"

namespace asap {

struct EngineOptions {
  bool in_process = false;
  bool progress = true;    // print loading progress on stderr
  std::string trace_file;  // written when the engine is destroyed; "" = no trace
  std::function<bool()> interrupted = [] { return false; };  // asked while starting
};

// Loads the model and returns an engine that is ready. Errors come before anything large is
// allocated: unsupported or broken checkpoints, impossible geometries, workers that cannot start.
Result<std::unique_ptr<Engine>> make_engine(const EngineConfig& config, const Platform& platform,
                                            const EngineOptions& options);

}  // namespace asap
