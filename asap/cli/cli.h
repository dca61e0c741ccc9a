// The command line: asap serve | run | inspect | verify | worker. Names and meanings follow vLLM's
// where it has the flag.
#pragma once

#include "asap/runtime/worker.h"

namespace asap {

// The exit code: 0, or by kind of error (base/result.h): 2 a wrong flag or input, 3 something not
// found, 4 not supported, 5 overloaded, 6 a worker died, 1 anything else.
int run_cli(int argc, char** argv, const Platform& platform);

}  // namespace asap
