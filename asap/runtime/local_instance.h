// LocalInstance: all devices of an instance in this process, on one thread that steps every agent.
// The same agents, link messages and scheduler as between processes; only the driver differs. `asap
// run --in-process` uses it with the real clock; tests step it under a virtual one, with seeded
// delays, reordered messages and shuffled agents.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "asap/base/prng.h"
#include "asap/compute/attention_side.h"
#include "asap/runtime/attention.h"
#include "asap/runtime/attention_rows.h"
#include "asap/runtime/config.h"
#include "asap/runtime/expert.h"
#include "asap/runtime/expert_rows.h"
#include "asap/runtime/scheduler.h"

namespace asap {

// Packed weights of all ranks, shared by instances of equal T and E.
struct LocalWeights {
  std::vector<std::shared_ptr<const AttentionWeights>> attention;  // [T]
  std::vector<std::shared_ptr<const ExpertWeights>> experts;       // [E]
};
// `progress` (may be null) counts layers of ranks that are done, of so many.
Result<LocalWeights> load_local_weights(
    const EngineConfig& config, const ModelSpec& spec, Ops& ops,
    const std::function<void(int done, int all)>& progress = nullptr);

class LocalInstance {
 public:
  // `rings`: trace rings by device and agent, or empty. `ops` and `link` must outlive the instance.
  LocalInstance(const EngineConfig& config, const EnginePlan& plan, const ModelSpec& spec,
                const LocalWeights& weights, Ops& ops, Link& link,
                std::span<TraceRing* const> rings);

  // Steps every agent once, in an order drawn from `order` if given; how much was done. With
  // `order`, an agent may now and then stand still for up to `max_stall`, as a process does whose
  // core was taken.
  int step(Instant now, Prng* order = nullptr, Duration max_stall = {0});
  Scheduler& scheduler() { return *scheduler_; }

  // The processes of a group, or of an expert rank, die with all that they hold, and later others
  // take their place: what the supervisor does, without processes (tests). How many requests run
  // again.
  int kill_group(int group, Instant now);
  void start_group(int group, uint64_t epoch, Instant now);
  void kill_expert(int rank, Instant now);
  void start_expert(int rank, Instant now);
  // Every attention rank reports its decisions (tests).
  void observe(const Observer& observer) {
    for (AttentionRows* rows : rows_) {
      if (rows != nullptr) rows->observe(observer);
    }
  }
  // Rows per expert and item, of all expert ranks.
  const RowHistogram& expert_rows() const { return expert_rows_; }
  // What every agent waits for, one line each: the last words of a run that hangs.
  std::string waiting_for() const;

 private:
  void add_attention(int group, int t, uint64_t epoch);
  void add_expert(int rank);
  void add(Agent& agent);
  void remove(const Agent& agent);
  Tracer tracer(int device, int agent) const;

  const EnginePlan plan_;
  const ModelSpec spec_;
  const LocalWeights weights_;
  Ops& ops_;
  const std::vector<TraceRing*> rings_;
  std::vector<std::unique_ptr<AttentionAgent>> attention_;  // [D·T]; null: dead
  std::vector<AttentionRows*> rows_;                        // of the agents
  std::vector<std::unique_ptr<ExpertRank>> experts_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Agent*> agents_;
  std::vector<Instant> stalled_until_;  // by agent, in their present order
  Link& link_;
  RowHistogram expert_rows_;
};

}  // namespace asap
