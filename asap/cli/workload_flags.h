// Flags that describe a workload, shared by the commands that send one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "asap/load/workload.h"

namespace asap {

struct WorkloadFlags {
  WorkloadSpec spec;
  std::string lengths = "constant:512";
};

void add_workload_flags(CLI::App& app, WorkloadFlags& flags);
// The specification that the flags give. Errors: invalid, by flag.
Result<WorkloadSpec> workload_spec(const WorkloadFlags& flags);

}  // namespace asap
