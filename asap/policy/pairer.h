// Pairer: which stage of which group gets the next batch (stage filling; with R = 2 the paper's
// dual-batch interleaving).
//
//   Pairing::refill  a freed stage is filled at once; idle groups first, then the group with the
//                    least outstanding cost
//   Pairing::paper   a group takes batches only when all its stages are free, and fills them
//                    together; an exclusive batch keeps its partners' stages empty
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "asap/policy/batch.h"
#include "asap/policy/batcher.h"
#include "asap/policy/limits.h"

namespace asap {

class Pairer {
 public:
  struct Slot {
    int group = 0;
    int stage = 0;
  };

  explicit Pairer(const SchedulerLimits& limits);

  // The slot that each group offers, best group first. `backlog`: [D] cost of what lives in a group
  // and no batch has taken. Valid until the next call.
  std::span<const Slot> slots(std::span<const double> backlog);
  Room room(int group) const;
  bool idle(int group) const { return at(group).live == 0; }
  bool any_free() const;
  // The group has just started a batch and waits for its partners.
  bool open(int group) const { return at(group).open; }

  void on_start(const BatchPlan& plan, double cost);
  // There is nothing to pair with what the group started.
  void on_no_partner(int group) { at(group).open = false; }
  void on_batch_done(int group, int stage);
  void on_group_lost(int group);
  void on_group_back(int group);
  void check() const;

 private:
  struct Group {
    std::vector<double> cost;  // [R] of the running batch; negative: the stage is free
    int live = 0;              // running batches
    bool open = false;
    bool lost = false;
  };
  Group& at(int group) { return groups_[static_cast<size_t>(group)]; }
  const Group& at(int group) const { return groups_[static_cast<size_t>(group)]; }
  bool takes(const Group& group) const;
  double outstanding(const Group& group) const;

  const int stages_;
  const Pairing pairing_;
  std::vector<Group> groups_;   // [D]
  std::vector<double> weight_;  // [D] scratch of slots()
  std::vector<Slot> slots_;     // [<= D] its result
};

}  // namespace asap
