#include "asap/transport/link_shm.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "asap/base/check.h"

namespace asap {

namespace {

struct Mapping {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
  Mapping() = default;
  Mapping(Mapping&& other) noexcept : base(other.base), bytes(other.bytes) { other.base = nullptr; }
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (base != nullptr) munmap(base, bytes);
  }
};

class ShmPort final : public Port {
 public:
  ShmPort(const std::vector<Mapping>& windows, const Geometry& geometry, int device)
      : windows_(windows), geometry_(geometry), device_(device) {}

  void put(int device, uint64_t offset, const void* data, uint64_t bytes) override {
    const Mapping& window = mapped(device);
    CHECK(offset + bytes <= window.bytes, "put of {} bytes at {} leaves window {} of {}", bytes,
          offset, device, window.bytes);
    if (bytes > 0) std::memcpy(window.base + offset, data, bytes);
  }

  void put_flag(int device, uint64_t offset, uint64_t value) override {
    const Mapping& window = mapped(device);
    CHECK(offset + sizeof(value) <= window.bytes, "flag at {} leaves window {} of {}", offset,
          device, window.bytes);
    store_flag(window.base + offset, value);
    reinterpret_cast<Doorbell*>(mapped(host_device(geometry_, device)).base)->ring();
  }

  std::byte* window() override { return mapped(device_).base; }

 private:
  const Mapping& mapped(int device) const {
    const Mapping& window = windows_[static_cast<size_t>(device)];
    CHECK(window.base != nullptr, "device {} has no mapping of the window of device {}", device_,
          device);
    return window;
  }
  const std::vector<Mapping>& windows_;
  const Geometry& geometry_;
  int device_;
};

class ShmLink final : public Link {
 public:
  ShmLink(const Geometry& geometry, std::vector<Mapping> windows)
      : geometry_(geometry), windows_(std::move(windows)) {}
  std::unique_ptr<Port> attach(int device) override {
    return std::make_unique<ShmPort>(windows_, geometry_, device);
  }
  Doorbell& doorbell(int device) override {
    const auto host = static_cast<size_t>(host_device(geometry_, device));
    return *reinterpret_cast<Doorbell*>(windows_[host].base);
  }
  Instant deliver(Instant) override { return Instant::never(); }

 private:
  const Geometry geometry_;
  std::vector<Mapping> windows_;
};

}  // namespace

Result<std::unique_ptr<Link>> make_link_shm(const Geometry& geometry, const std::vector<int>& fds) {
  CHECK(static_cast<int>(fds.size()) == geometry.devices());
  std::vector<Mapping> windows(fds.size());
  for (size_t device = 0; device < fds.size(); ++device) {
    if (fds[device] < 0) continue;
    const uint64_t bytes = window_bytes(geometry, static_cast<int>(device));
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[device], 0);
    if (base == MAP_FAILED) {
      return fail(Code::internal, "cannot map the window of {} ({} bytes): {}",
                  device_name(geometry, static_cast<int>(device)), bytes, std::strerror(errno));
    }
    windows[device].base = static_cast<std::byte*>(base);
    windows[device].bytes = bytes;
  }
  return std::unique_ptr<Link>(std::make_unique<ShmLink>(geometry, std::move(windows)));
}

}  // namespace asap
