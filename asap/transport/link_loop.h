// link_loop: all windows in one process and one thread. With a seed it behaves as badly as a
// network may: every message is delayed, the pieces of its payload land in random order at random
// times before its flag, and messages overtake each other. Without delays a put is a copy.
#pragma once

#include <memory>

#include "asap/transport/link.h"

namespace asap {

struct LoopOptions {
  uint64_t seed = 0;
  Duration max_delay = {
      0};  // 0: messages are visible at once; else each is delayed by [0, max_delay]
};

std::unique_ptr<Link> make_link_loop(const Geometry& geometry, LoopOptions options);

}  // namespace asap
