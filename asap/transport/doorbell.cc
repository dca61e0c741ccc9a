#include "asap/transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace asap {

namespace {

// A shared futex: the word may lie in memory of several processes.
long futex(std::atomic<uint32_t>* word, int op, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), op, value, timeout, nullptr, 0);
}

}  // namespace

void Doorbell::ring() {
  // Two read-modify-writes of one word are ordered: either the sleeper's comes later and, having
  // read ours, it sees our flag; or it came first, and we see the sleeper.
  if (sleepers.fetch_add(0, std::memory_order_acq_rel) == 0) return;
  rings.fetch_add(1, std::memory_order_release);
  futex(&rings, FUTEX_WAKE, INT_MAX, nullptr);
}

uint32_t Doorbell::prepare() {
  const uint32_t ticket = rings.load(std::memory_order_acquire);
  sleepers.fetch_add(1, std::memory_order_acq_rel);
  return ticket;
}

void Doorbell::sleep(uint32_t ticket, Duration timeout) {
  const timespec limit{timeout.ns / 1'000'000'000, timeout.ns % 1'000'000'000};
  futex(&rings, FUTEX_WAIT, ticket, &limit);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace asap
