#include "asap/model/read_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace asap {

Result<std::string> read_file(const std::string& path, uint64_t limit) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return fail(Code::not_found, "{}: no such file", path);
  }
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) return fail(Code::not_found, "{}: {}", path, error.message());
  if (size > limit) {
    return fail(Code::invalid, "{}: {} bytes exceed the limit of {} for such a file", path, size,
                limit);
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return fail(Code::not_found, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  return text;
}

}  // namespace asap
