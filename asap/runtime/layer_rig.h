// LayerRig: what one layer of a batch costs an attention rank and an expert rank, measured on the
// engine's own agents. One thread steps them in turn over a real link, with T = 1, and times every
// step; so the costs hold whatever the engine spends, copies and checks included.
//
// The attention rank and expert rank 0 are real. Other expert ranks only answer, untimed: a layer
// of a model whose experts need many devices can be measured on one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "asap/base/prng.h"
#include "asap/compute/measure.h"
#include "asap/runtime/attention.h"
#include "asap/runtime/attention_rows.h"
#include "asap/runtime/config.h"
#include "asap/runtime/expert.h"
#include "asap/runtime/expert_rows.h"
#include "asap/runtime/windows.h"

namespace asap {

// Seconds of the rig's clock. Per layer, but for `batch`.
struct LayerTimes {
  double attention = 0;  // projections, caches, attention, reduce, router, shared expert
  double dispatch = 0;   // attention rank: to all expert ranks
  double receive = 0;    // expert rank 0
  double experts = 0;    // expert rank 0
  double combine = 0;    // expert rank 0: the answer
  double add = 0;        // attention rank: all answers
  double batch = 0;      // once: embedding, head, sampling
  int expert_rows = 0;   // (token, expert) pairs of expert rank 0
  int expert_tokens = 0;
  double half_share = 0;  // of those rows: the first half of the rank's experts; last MoE layer
};

// New tokens of one sequence, over `past` that count as cached.
struct RigSequence {
  int tokens = 0;
  int past = 0;
};

class LayerRig {
 public:
  struct Options {
    EngineConfig config;  // model, E, threads, types; D = T = R = 1 whatever it says
    int max_tokens = 0;   // of a batch
    int max_sequences = 1;
    int max_context = 0;  // of a sequence, cached and new
    Clock clock = nullptr;
    std::function<void(int done, int all)> progress;  // of loading, layers; may be null
  };
  // Errors as those of load_spec, make_plan and open_weights.
  static Result<std::unique_ptr<LayerRig>> open(const Options& options, const Platform& platform);
  ~LayerRig();

  // One batch of random tokens through all layers; the last token of each sequence is sampled.
  LayerTimes run(std::span<const RigSequence> sequences);

  // Seconds of the last batch in each op, all layers and agents.
  std::map<std::string_view, double> op_seconds() const;

  const EngineConfig& config() const { return config_; }  // D, T, R and sizes as they are here
  const ModelSpec& spec() const { return spec_; }
  const EnginePlan& plan() const { return plan_; }
  Ops& ops() { return *ops_; }
  Team& team() { return *team_; }

 private:
  LayerRig(const EngineConfig& config, Clock clock, const EnginePlan& plan, const ModelSpec& spec,
           const Platform& platform);
  Status connect(const Platform& platform);
  Status load(const Options& options);
  void send_command(std::span<const RigSequence> sequences);
  double step(Agent& agent);
  void answer_for_others();
  void add_events(LayerTimes* times) const;

  const EngineConfig config_;
  const Clock clock_;
  const ModelSpec spec_;
  const EnginePlan plan_;
  const AttentionLayout layout_;
  const ExpertLayout expert_layout_;
  const FrontLayout front_layout_;
  Windows windows_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Port> front_;
  std::vector<std::unique_ptr<Port>> others_;  // expert ranks 1, 2, ...
  std::vector<uint64_t> answered_;             // items, by those
  Arena ring_memory_;
  std::vector<TraceRing*> rings_;  // attention, receive, compute, send
  std::unique_ptr<AttentionAgent> attention_;
  std::unique_ptr<ExpertRank> experts_;
  std::vector<std::byte> command_;
  uint64_t batch_ = 0;
  Prng prng_{1};
};

}  // namespace asap
