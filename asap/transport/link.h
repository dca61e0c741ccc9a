// Link: one-sided writes into the windows of peers. Four verbs of the protocol (dispatch and
// combine, send and recv) and the two collectives of a group are written once on top of it
// (verbs.h); a transport supplies only this.
//
//   link_shm   windows in memory shared by processes (or threads)
//   link_loop  windows in one process; messages may be delayed and reordered by a seed
//   link_p2p   blocking messages over one of these, to compare with
//
// Ordering, as RDMA gives it: a flag becomes visible after every put that the same port made to the
// same window before it. Nothing else is ordered: two messages may overtake each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "asap/base/units.h"
#include "asap/transport/doorbell.h"
#include "asap/wire/layout.h"

namespace asap {

// What one agent holds to write to peers and read its own device's window. One producer per port.
class Port {
 public:
  virtual ~Port() = default;
  // Copies `bytes` to the window of `device`. Never blocks.
  virtual void put(int device, uint64_t offset, const void* data, uint64_t bytes) = 0;
  // Stores a flag after all earlier puts of this port to that window, and rings its owner. Never
  // blocks.
  virtual void put_flag(int device, uint64_t offset, uint64_t value) = 0;
  // The window of this port's device.
  virtual std::byte* window() = 0;
};

class Link {
 public:
  virtual ~Link() = default;
  // A port for an agent of `device`.
  virtual std::unique_ptr<Port> attach(int device) = 0;
  virtual Doorbell& doorbell(int device) = 0;
  // The process of `device` is dead and reaped, or new and silent. After this call nothing that a
  // predecessor had sent and that is not visible yet becomes visible; what others had sent to it
  // before is visible. Where writes are made by the sender's own core, as between processes of a
  // machine, that holds already.
  virtual void fence(int device) { static_cast<void>(device); }
  // Peers are gone for good: from now on nobody waits for them, and what is sent is dropped. Any
  // thread. Links that never wait need nothing of it.
  virtual void abandon() {}
  // Makes messages visible whose time has come; the earliest time of those that wait (never() if
  // none).
  virtual Instant deliver(Instant now) = 0;
};

}  // namespace asap
