// The expert rank's three agents (the triple stream): receive, compute and send, joined by bounded
// queues. They share one ExpertRank, which owns the items and buffers that pass between them.
//
//   receive  sees that all T shares of a (group, stage) have arrived, checks and indexes them
//   compute  picks items (policy), runs the super kernel piece by piece; the layer is data
//   send     writes partial results to the group's ranks, the flag last: exactly one answer per
//            item
//
// A rank may die at any moment and another process take its place: everything that it owes stands
// in memory that outlives it. Items lie in its window until all their answers were read, and what
// was answered stands in the flags of those answers. So the successor accepts what is announced and
// not fully answered, computes the same bits, and sends the answers that are missing; its peers
// only wait a little longer.
//
// A group's items are accepted if they are of the group's present epoch, which the front announces
// (fence). The rank says so (fenced) once it holds nothing of an earlier one.
//
// Back-pressure is structural: a (group, stage) has one item at most, and its region in the window
// stays valid until the answer. So hidden states are read from the window where they lie, by the
// kernel that widens them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "asap/base/spsc.h"
#include "asap/policy/expert_queue.h"
#include "asap/runtime/agent.h"
#include "asap/runtime/expert_compute.h"
#include "asap/runtime/row_histogram.h"
#include "asap/transport/verbs.h"

namespace asap {

class ExpertRank {
 public:
  // `visible`: under a virtual clock, the time from which what an agent hands on can be seen; null:
  // at once.
  ExpertRank(const Geometry& geometry, int rank, std::unique_ptr<ExpertCompute> compute, Link& link,
             const ExpertQueueLimits& limits, const Tracer tracers[3],
             Instant (*visible)() = nullptr);
  ~ExpertRank();

  // What its compute agent did is counted there; call before the agents run.
  void count_load(ExpertLoadCounters* counters);

  Agent& receive();
  Agent& compute();
  Agent& send();
  // Doorbells of the agents that are fed by queues; receive sleeps on its window's.
  Doorbell& compute_bell() { return compute_bell_; }
  Doorbell& send_bell() { return send_bell_; }

 private:
  class Receive;
  class Compute;
  class Send;
  friend class Receive;
  friend class Compute;
  friend class Send;
  // From one agent to the next.
  template <typename T>
  struct Handed {
    T* value;
    Instant at;
  };
  template <typename T>
  using Handover = SpscQueue<Handed<T>>;

  template <typename T>
  void hand(Handover<T>& queue, T* value) {
    queue.push({value, visible_ != nullptr ? visible_() : Instant{0}});
  }
  template <typename T>
  static T* take(Handover<T>& queue, Instant now) {
    const Handed<T>* front = queue.front();
    if (front == nullptr || front->at > now) return nullptr;
    return queue.pop()->value;
  }

  const Geometry geometry_;
  const int rank_;
  const ExpertLayout layout_;
  const AttentionLayout attention_layout_;
  std::unique_ptr<ExpertCompute> math_;
  Instant (*const visible_)();
  std::vector<ExpertItem> items_;  // [D·R]
  // [D·R] the item is between receive and its last answer.
  std::vector<std::atomic<uint8_t>> busy_;
  std::atomic<uint8_t> stalled_{0};  // receive waits for a busy item
  Doorbell& receive_bell_;
  // [D·R·T] flag of the last answer by a predecessor of this process.
  std::vector<uint64_t> answered_before_;
  std::vector<ExpertPiece> pieces_;  // two: one is computed while the other is sent
  Handover<ExpertItem> ready_;       // receive -> compute
  Handover<ExpertPiece> computed_;   // compute -> send
  Handover<ExpertPiece> free_;       // send -> compute
  Doorbell compute_bell_, send_bell_;
  std::unique_ptr<Receive> receive_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Send> send_;
};

}  // namespace asap
