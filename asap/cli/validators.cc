#include "asap/cli/validators.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>

namespace asap {

CLI::Validator not_empty() {
  return CLI::Validator(
      [](const std::string& text) {
        return std::string(text.empty() ? "it is empty: give a value or leave it out" : "");
      },
      "");
}

namespace {

// "" or why `path` cannot be written.
std::string write_problem(const std::string& path) {
  if (path.empty()) return "the name is empty";
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return "it is a folder";
    return access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return std::strerror(errno);
  close(fd);
  unlink(path.c_str());
  return "";
}

}  // namespace

CLI::Validator readable_file() {
  return CLI::Validator(
      [](const std::string& path) {
        std::error_code error;
        const bool folder = std::filesystem::is_directory(path, error);
        if (!folder && access(path.c_str(), R_OK) == 0) return std::string();
        return fmt::format("cannot read {}: {}; name a file that exists and may be read",
                           path.empty() ? "\"\"" : path,
                           folder ? "it is a folder" : std::strerror(errno));
      },
      "");
}

CLI::Validator writable_file() {
  return CLI::Validator(
      [](const std::string& path) {
        const std::string problem = write_problem(path);
        return problem.empty() ? problem
                               : fmt::format(
                                     "cannot write {}: {}; name a file in a folder that "
                                     "exists and may be written to",
                                     path, problem);
      },
      "");
}

CLI::Validator creatable_path() {
  return CLI::Validator(
      [](const std::string& text) {
        std::error_code error;
        std::filesystem::path there = std::filesystem::absolute(text, error);
        while (!std::filesystem::exists(there, error) && there.has_relative_path()) {
          there = there.parent_path();
        }
        const bool whole = there == std::filesystem::absolute(text, error);
        const bool may = (whole || std::filesystem::is_directory(there, error)) &&
                         access(there.c_str(), W_OK) == 0;
        return may ? std::string()
                   : fmt::format("cannot write {}: {} does not let me", text, there.string());
      },
      "");
}

CLI::Validator unsigned_number() {
  return CLI::Validator(
      [](const std::string& text) {
        uint64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [at, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && at == end) return std::string();
        return fmt::format("{} is not a whole number from 0 to {}", text, UINT64_MAX);
      },
      "");
}

CLI::Validator between(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) {
          return std::string();
        }
        return fmt::format("{} is not a number from {:g} to {:g}", text, low, high);
      },
      fmt::format("{:g} to {:g}", low, high));
}

}  // namespace asap
