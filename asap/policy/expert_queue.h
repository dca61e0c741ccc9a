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

class ExpertQueue {
 public:
  struct Item {
    int group = 0;
    int stage = 0;
  };

  ExpertQueue(int groups, int stages, ExpertOrder order = ExpertOrder::round_robin);

  // The item of (group, stage) is complete.
  void on_ready(int group, int stage, Instant now);
  // Takes the item to serve.
  std::optional<Item> next(Instant now);
  // Aborts if an invariant is broken (tests).
  void check() const;

 private:
  size_t round_robin() const;
  size_t oldest() const;

  const int stages_;
  const ExpertOrder order_;
  std::vector<Instant> since_;  // [D·R] when the item was complete; never(): none
  size_t ready_ = 0;            // items
  size_t cursor_;               // slot served last
};

}  // namespace asap
