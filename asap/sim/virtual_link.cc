#include "asap/sim/virtual_link.h"

#include <sys/mman.h>

#include <cstring>

#include "asap/base/check.h"

namespace asap {

class VirtualLink::VirtualPort final : public Port {
 public:
  VirtualPort(VirtualLink& link, int device) : link_(link), device_(device) {}

  void put(int device, uint64_t offset, const void* data, uint64_t bytes) override {
    if (bytes > 0) std::memcpy(link_.at(device, offset, bytes), data, bytes);
  }
  void put_flag(int device, uint64_t offset, uint64_t value) override {
    link_.events_.add_flag(link_.clock_.now() + link_.latency_,
                           link_.at(device, offset, sizeof(value)), value, device);
  }
  std::byte* window() override { return link_.at(device_, 0, 0); }

 private:
  VirtualLink& link_;
  int device_;
};

// Pages are taken when first written, so a window costs what is used of it.
VirtualLink::VirtualLink(const Geometry& geometry, Duration latency, const VirtualClock& clock,
                         EventQueue& events)
    : latency_(latency), clock_(clock), events_(events) {
  for (int device = 0; device < geometry.devices(); ++device) {
    const uint64_t bytes = window_bytes(geometry, device);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED, "no address space for a window of {} bytes", bytes);
    windows_.push_back({static_cast<std::byte*>(memory), bytes});
  }
}

VirtualLink::~VirtualLink() {
  for (const Window& window : windows_) munmap(window.base, window.bytes);
}

std::unique_ptr<Port> VirtualLink::attach(int device) {
  return std::make_unique<VirtualPort>(*this, device);
}

Doorbell& VirtualLink::doorbell(int device) {
  return *reinterpret_cast<Doorbell*>(windows_[static_cast<size_t>(device)].base);
}

std::byte* VirtualLink::at(int device, uint64_t offset, uint64_t bytes) {
  const Window& window = windows_[static_cast<size_t>(device)];
  CHECK(offset + bytes <= window.bytes, "{} bytes at {} leave window {} of {}", bytes, offset,
        device, window.bytes);
  return window.base + offset;
}

}  // namespace asap
