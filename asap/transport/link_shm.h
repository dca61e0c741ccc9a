// link_shm: windows in memory that peers have mapped. A put is a copy, a flag is a release store; the hardware's cache
// coherence is the network.
//
// Windows are memfds: they have no name that another user could open, and the kernel frees them with the last process,
// however it died.
#pragma once

#include <memory>
#include <vector>

#include "asap/base/result.h"
#include "asap/transport/link.h"

namespace asap {

// A zeroed memfd of `bytes`; it is not inherited by children unless they are given it. `name` shows in /proc.
Result<int> create_shared_memory(const std::string& name, uint64_t bytes);

// Maps the windows whose descriptor is >= 0 (indexed by device); a device that `fds` leaves out cannot be written to.
// The descriptors stay open and owned by the caller.
Result<std::unique_ptr<Link>> make_link_shm(const Geometry& geometry, const std::vector<int>& fds);

}  // namespace asap
