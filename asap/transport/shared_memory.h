// Shared memory of an instance, as memfds: they have no name that another user could open, and the
// kernel frees them with the last process, however it died.
#pragma once

#include <cstdint>
#include <string>

#include "asap/base/result.h"

namespace asap {

// A zeroed memfd of `bytes`; children do not inherit it unless they are given it. `name` shows in
// /proc.
Result<int> create_shared_memory(const std::string& name, uint64_t bytes);

}  // namespace asap
