// Files that come with the program: found beside its build, where it was installed, or in the
// current directory.
#pragma once

#include <string>

#include "asap/base/result.h"

namespace asap {

// The bundled demonstration model: beside the binary's build, or where it was installed.
Result<std::string> bundled_model();
// The file of a workload trace: a file that exists, or one of traces/ by its short name (W0) or its
// own, found as the bundled model is. Errors: not_found (lists the shipped ones).
Result<std::string> find_trace(const std::string& name_or_path);

}  // namespace asap
