// Doorbell: how an idle agent gives its core away and is woken, across processes.
//
// It lies in the memory that senders can reach: a window, or the heap for agents of one process. A
// sender rings after it stored a flag; the ring is a load unless somebody sleeps, so a busy
// receiver costs its peers nothing. A sleeper announces itself, looks at its inputs once more, and
// only then sleeps: no wake is lost.
#pragma once

#include <atomic>
#include <cstdint>

#include "asap/base/units.h"

namespace asap {

struct Doorbell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> sleepers{0};

  void ring();
  // Announces a sleeper; the returned ticket goes to sleep(). Look at the inputs in between.
  uint32_t prepare();
  // Sleeps until a ring after prepare(), or the timeout.
  void sleep(uint32_t ticket, Duration timeout);
  // A new owner: its predecessor may have died asleep.
  void reset() { sleepers.store(0, std::memory_order_relaxed); }
  // Work was found after prepare(): do not sleep.
  void abandon() { sleepers.fetch_sub(1, std::memory_order_relaxed); }
};
static_assert(sizeof(Doorbell) == 8);

}  // namespace asap
