// EventQueue: what will happen in virtual time: flags that become visible, agents that wake. Of
// equal times flags come before wakes, else as they were added: a run is a function of its inputs
// alone.
//
// Events come in bursts of one time (a dispatch sets a flag on every expert rank), so the heap has
// bursts, not events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "asap/base/units.h"

namespace asap {

struct Event {
  std::byte* to = nullptr;  // a flag's place; null: a wake
  uint64_t value = 0;       // of the flag
  int who = 0;              // device that owns the flag's window, or agent
};

class EventQueue {
 public:
  void add_flag(Instant due, std::byte* to, uint64_t value, int device);
  void add_wake(Instant due, int agent);
  bool empty() const { return heap_.empty() && served_ == kNone; }
  // Of the event that pop() gives next; never() if there is none.
  Instant next_due() const;
  Event pop();
  uint64_t added() const { return added_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Burst {
    Instant due;
    uint64_t order = 0;  // of equal `due`
    std::vector<Event> events;
  };
  // The burst to which an event of that time is added: the newest, if it fits.
  Burst& burst(Instant due, bool wake);
  bool before(size_t a, size_t b) const;
  void push(size_t burst);
  size_t pop_burst();

  std::vector<Burst> bursts_;  // reused
  std::vector<size_t> free_;
  std::vector<size_t> heap_;           // four children a node
  size_t newest_[2] = {kNone, kNone};  // flags, wakes; still in the heap
  size_t served_ = kNone;              // being handed out
  size_t next_ = 0;                    // its next event
  uint64_t added_ = 0;
};

}  // namespace asap
