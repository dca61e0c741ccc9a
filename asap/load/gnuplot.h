// gnuplot as a child process: a script goes in, what it prints comes out.
#pragma once

#include <string>

#include "asap/base/result.h"

namespace asap {

// Runs without the user's settings and is ended after a minute. Errors: not_found (gnuplot is not
// installed), internal (it failed; the message has what it said).
Result<std::string> run_gnuplot(const std::string& script);

}  // namespace asap
