#include "asap/runtime/tracks.h"

#include "asap/runtime/control.h"

namespace asap {

std::vector<TraceTrack> trace_tracks(
    const Geometry& g, const std::function<const TraceRing*(int device, int agent)>& ring) {
  static constexpr const char* kStreams[] = {"receive", "compute", "send"};
  std::vector<TraceTrack> tracks;
  for (int device = 0; device < g.devices(); ++device) {
    const bool expert = device >= expert_device(g, 0);
    for (int agent = 0; agent < (expert ? kAgentsPerDevice : 1); ++agent) {
      tracks.push_back({device_name(g, device), expert ? kStreams[agent] : "compute", device + 1,
                        agent + 1, ring(device, agent)});
    }
  }
  return tracks;
}

}  // namespace asap
