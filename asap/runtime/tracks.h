// Track names of an instance's trace: one process per device, one thread per agent.
#pragma once

#include <functional>
#include <vector>

#include "asap/base/trace.h"
#include "asap/wire/geometry.h"

namespace asap {

std::vector<TraceTrack> trace_tracks(
    const Geometry& geometry, const std::function<const TraceRing*(int device, int agent)>& ring);

}  // namespace asap
