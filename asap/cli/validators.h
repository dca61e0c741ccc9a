// What CLI11 asks of a flag's value before the command runs: each says what is wrong and what would
// do.
#pragma once

#include <CLI/CLI.hpp>

namespace asap {

// A text that is not empty.
CLI::Validator not_empty();
// A file that can be read.
CLI::Validator readable_file();
// A file that can be written: asked before the work whose result it gets. Leaves no new file.
CLI::Validator writable_file();
// A file or folder that can be made, with the folders above it that are missing.
CLI::Validator creatable_path();
// A whole number from 0 to 2^64 - 1; CLI11 takes the last one for what is beyond.
CLI::Validator unsigned_number();
// A number from `low` to `high`; CLI::Range lets "nan" through.
CLI::Validator between(double low, double high);

}  // namespace asap
