#include "asap/runtime/windows.h"

#include <unistd.h>

#include <utility>

#include "asap/transport/shared_memory.h"

namespace asap {

Result<Windows> Windows::open(const Geometry& geometry, const Platform& platform) {
  Windows out;
  for (int device = 0; device < geometry.devices(); ++device) {
    ASAP_ASSIGN(const int fd, create_shared_memory("asap-" + device_name(geometry, device),
                                                   window_bytes(geometry, device)));
    out.fds_.push_back(fd);
  }
  ASAP_ASSIGN(out.link_, platform.make_process_link("onesided", geometry, out.fds_));
  return out;
}

Windows::Windows(Windows&& other) noexcept
    : fds_(std::exchange(other.fds_, {})), link_(std::move(other.link_)) {}

Windows& Windows::operator=(Windows&& other) noexcept {
  std::swap(fds_, other.fds_);
  std::swap(link_, other.link_);
  return *this;
}

Windows::~Windows() {
  link_.reset();
  for (const int fd : fds_) close(fd);
}

}  // namespace asap
