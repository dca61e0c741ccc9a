// read_file: a small text file of a model directory as a string.
#pragma once

#include <cstdint>
#include <string>

#include "asap/base/result.h"

namespace asap {

// Errors: not_found (no such regular file, or not readable), invalid (larger than `limit` bytes).
Result<std::string> read_file(const std::string& path, uint64_t limit);

}  // namespace asap
