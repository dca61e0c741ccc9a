// VirtualLink: windows in one process; a flag becomes visible a link's latency after the moment at
// which its sender stood in virtual time. Payload is there at once: nobody looks at it before its
// flag, and no region is rewritten before its answer.
#pragma once

#include <memory>
#include <vector>

#include "asap/sim/event_queue.h"
#include "asap/sim/virtual_clock.h"
#include "asap/transport/link.h"

namespace asap {

class VirtualLink final : public Link {
 public:
  VirtualLink(const Geometry& geometry, Duration latency, const VirtualClock& clock,
              EventQueue& events);
  ~VirtualLink() override;

  std::unique_ptr<Port> attach(int device) override;
  Doorbell& doorbell(int device) override;
  Instant deliver(Instant) override { return Instant::never(); }

 private:
  class VirtualPort;
  struct Window {
    std::byte* base = nullptr;
    uint64_t bytes = 0;
  };
  std::byte* at(int device, uint64_t offset, uint64_t bytes);

  const Duration latency_;
  const VirtualClock& clock_;
  EventQueue& events_;
  std::vector<Window> windows_;
};

}  // namespace asap
