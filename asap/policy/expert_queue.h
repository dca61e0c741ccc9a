// ExpertQueue: the order in which an expert rank serves complete items. A (group, stage) has one
// item at most, so no order below can starve anyone: whoever waits is passed by each other slot a
// bounded number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "asap/base/units.h"

namespace asap {

enum class ExpertOrder : uint8_t {
  round_robin,   // over (group, stage), from a cursor that persists: the fair default
  oldest_first,  // by the time at which the item was complete
};

struct ExpertQueueLimits {
  int groups = 1;
  int stages = 1;
  ExpertOrder order = ExpertOrder::round_robin;
  // Ready items of equal layer are computed together: each expert's weights are read once for them.
  bool merge = false;
  // Lockstep engines: nothing is served before the items of all groups are there.
  bool lockstep = false;
};

class ExpertQueue {
 public:
  struct Item {
    int group = 0;
    int stage = 0;
  };

  explicit ExpertQueue(const ExpertQueueLimits& limits);

  // The item of (group, stage) is complete.
  void on_ready(int group, int stage, int layer, Instant now);
  // Takes the item to serve.
  std::optional<Item> next(Instant now);
  // Takes another item of this layer to be served with it, where items are merged.
  std::optional<Item> next_of(int layer);
  size_t ready() const { return ready_; }  // items that wait
  // Aborts if an invariant is broken (tests).
  void check() const;

 private:
  size_t round_robin() const;
  size_t oldest() const;
  Item take(size_t slot);

  const ExpertQueueLimits limits_;
  std::vector<Instant> since_;  // [D·R] when the item was complete; never(): none
  std::vector<int> layer_;      // [D·R]
  size_t ready_ = 0;            // items
  size_t round_ = 0;            // lockstep: items of the present round still to be served
  size_t cursor_;               // slot served last
};

}  // namespace asap
