// One function per command: each adds its flags to a subcommand and, if it was chosen, runs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "asap/runtime/worker.h"

namespace asap {

// Each returns the action of its command; it gives the exit code.
std::function<int()> add_serve(CLI::App& app, const Platform& platform);
std::function<int()> add_run(CLI::App& app, const Platform& platform);
std::function<int()> add_inspect(CLI::App& app);
std::function<int()> add_quantize(CLI::App& app);
std::function<int()> add_verify(CLI::App& app, const Platform& platform);
std::function<int()> add_plan(CLI::App& app);
std::function<int()> add_simulate(CLI::App& app);
std::function<int()> add_reproduce(CLI::App& app);
std::function<int()> add_bench(CLI::App& app, const Platform& platform);
std::function<int()> add_calibrate(CLI::App& app, const Platform& platform);
std::function<int()> add_bench_comm(CLI::App& app, const Platform& platform);
std::function<int()> add_bench_kernels(CLI::App& app, const Platform& platform);
std::function<int()> add_bench_load(CLI::App& app, const Platform& platform);
std::function<int()> add_bench_prefill(CLI::App& app, const Platform& platform);
std::function<int()> add_worker(CLI::App& app, const Platform& platform);

}  // namespace asap
