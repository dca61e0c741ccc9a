// link_shm: windows in memory that peers have mapped. A put is a copy, a flag is a release store;
// the hardware's cache coherence is the network.
#pragma once

#include <memory>
#include <vector>

#include "asap/base/result.h"
#include "asap/transport/link.h"

namespace asap {

// Maps the windows whose descriptor is >= 0 (indexed by device); a device that `fds` leaves out
// cannot be written to. The descriptors stay open and owned by the caller.
Result<std::unique_ptr<Link>> make_link_shm(const Geometry& geometry, const std::vector<int>& fds);

}  // namespace asap
