#include "asap/transport/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace asap {

Result<int> create_shared_memory(const std::string& name, uint64_t bytes) {
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (fd < 0) return fail(Code::internal, "memfd_create({}): {}", name, std::strerror(errno));
  // It has no name that others could open; /proc has, so its mode says that it is nobody else's.
  if (fchmod(fd, S_IRUSR | S_IWUSR) != 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(fd);
    return fail(Code::internal, "cannot size the shared memory {} to {} bytes: {}", name, bytes,
                std::strerror(error));
  }
  return fd;
}

}  // namespace asap
