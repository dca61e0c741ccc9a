#include "asap/policy/pairer.h"

#include <algorithm>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr double kFree = -1;
// Weights that come before any cost.
constexpr double kOpenFirst = -2;
constexpr double kIdleFirst = -1;

}  // namespace

Pairer::Pairer(const SchedulerLimits& limits)
    : stages_(limits.stages),
      pairing_(limits.pairing),
      groups_(static_cast<size_t>(limits.groups)),
      weight_(static_cast<size_t>(limits.groups), 0) {
  CHECK(limits.stages > 0);
  for (Group& group : groups_) group.cost.resize(static_cast<size_t>(stages_), kFree);
  slots_.reserve(groups_.size());
}

bool Pairer::takes(const Group& group) const {
  if (group.lost || group.live == stages_) return false;
  return pairing_ == Pairing::refill || group.live == 0 || group.open;
}

bool Pairer::any_free() const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const Group& g) { return takes(g); });
}

double Pairer::outstanding(const Group& group) const {
  double cost = 0;
  for (const double c : group.cost) cost += c > 0 ? c : 0;
  return cost;
}

std::span<const Pairer::Slot> Pairer::slots(std::span<const double> backlog) {
  slots_.clear();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (!takes(group)) continue;
    weight_[g] = group.open        ? kOpenFirst
                 : group.live == 0 ? kIdleFirst
                                   : outstanding(group) + backlog[g];
    const auto stage = std::find(group.cost.begin(), group.cost.end(), kFree);
    slots_.push_back({static_cast<int>(g), static_cast<int>(stage - group.cost.begin())});
  }
  std::sort(slots_.begin(), slots_.end(), [&](const Slot& a, const Slot& b) {
    const double wa = weight_[static_cast<size_t>(a.group)];
    const double wb = weight_[static_cast<size_t>(b.group)];
    return wa != wb ? wa < wb : a.group < b.group;
  });
  return slots_;
}

Room Pairer::room(int group) const {
  Room room;
  room.whole_group = at(group).live == 0;
  room.free_stages = stages_ - at(group).live;
  room.own_stages = room.free_stages;
  if (pairing_ == Pairing::paper) return room;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (static_cast<int>(g) == group || groups_[g].lost) continue;
    room.free_stages += stages_ - groups_[g].live;
    room.other_idle = room.other_idle || groups_[g].live == 0;
  }
  return room;
}

void Pairer::on_start(const BatchPlan& plan, double cost) {
  Group& group = at(plan.group);
  double& slot = group.cost[static_cast<size_t>(plan.stage)];
  CHECK(takes(group) && slot == kFree, "g{} stage {} is taken", plan.group, plan.stage);
  slot = std::max(cost, 0.0);
  ++group.live;
  group.open = pairing_ == Pairing::paper && !plan.exclusive && group.live < stages_;
}

void Pairer::on_batch_done(int group, int stage) {
  Group& g = at(group);
  CHECK(g.cost[static_cast<size_t>(stage)] != kFree, "g{} stage {} runs no batch", group, stage);
  g.cost[static_cast<size_t>(stage)] = kFree;
  --g.live;
  g.open = false;
}

void Pairer::on_group_lost(int group) {
  Group& g = at(group);
  std::fill(g.cost.begin(), g.cost.end(), kFree);
  g.live = 0;
  g.open = false;
  g.lost = true;
}

void Pairer::on_group_back(int group) {
  at(group).lost = false;
}

void Pairer::check() const {
  for (const Group& group : groups_) {
    const auto free = std::count(group.cost.begin(), group.cost.end(), kFree);
    CHECK(group.live == stages_ - free, "{} batches live, {} of {} stages free", group.live, free,
          stages_);
    CHECK(!group.lost || (group.live == 0 && !group.open));
    CHECK(!group.open || (pairing_ == Pairing::paper && group.live > 0 && group.live < stages_));
  }
}

}  // namespace asap
