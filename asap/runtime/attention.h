// AttentionAgent: one attention rank (g, t). It holds up to R batches, one per stage, and advances
// whichever has received what it waits for: the command, a part from a peer of the group, or the
// experts' answers. Nothing here waits for another group, and no decision needs the other ranks of
// this one: the exchanges of a stage have buffers of their own, so ranks may advance stages in
// different orders and still meet. The numbers come from an AttentionCompute.
//
// A batch on a stage:
//   command -> begin, project(0) -> [gather] -> store, select? -> [select] -> attend -> [reduce]
//     -> MoE layer:   residual, route, dispatch, shared -> [combine] -> residual -> project(next)
//     -> dense layer: residual, FFN                                            -> project(next)
//     -> last layer done:  final norm -> [rows] -> head -> [logits] -> sample -> result (rank 0)
// Words in brackets are exchanges: the stage is parked until all parts are there.
//
// A batch that nobody wants any more ends before its next layer: rank 0 sees the front's word and
// says so in place of its latents, and each rank, in place of its partial sums, that it knows.
//
// In lockstep all attention ranks of the instance meet twice in a MoE layer: [enter] before the
// dispatch, [leave] after the answers were added. A batch without tokens does nothing but meet the
// others, dispatch nothing, and wait for its answers.
//
// With fewer regions than stages (the paper's engine has one for a group) a stage also waits for
// its [turn]: until so few items of the group lie at the experts. All ranks must dispatch in one
// order then, or each would hold what the other waits for: rank 0's.
//
// A prompt's parts may run on several stages at once: a part that follows another one does a
// layer's attention once the other has stored its keys of that layer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "asap/compute/attention_side.h"
#include "asap/policy/interleave.h"
#include "asap/runtime/agent.h"
#include "asap/runtime/attention_compute.h"
#include "asap/transport/verbs.h"

namespace asap {

class AttentionAgent final : public Agent {
 public:
  AttentionAgent(const Geometry& geometry, const ModelSpec& spec, int group, int rank,
                 std::unique_ptr<AttentionCompute> compute, std::unique_ptr<Port> port,
                 Tracer tracer, uint64_t epoch = 1);
  ~AttentionAgent() override;

  int do_work(Instant now) override;
  std::string name() const override;
  std::string waiting_for() const override;

 private:
  enum class Phase : uint8_t {
    idle,
    gather,
    select,
    reduce,
    turn,
    enter,
    combine,
    leave,
    rows,
    logits
  };
  struct Stage;

  bool arrived(const Stage& stage) const;
  bool may_attend(const Stage& stage) const;
  bool may_dispatch(const Stage& stage) const;
  void advance(Stage& stage);
  void park(Stage& stage, Phase phase);

  void begin_batch(Stage& stage);
  void read_command(Stage& stage);
  void place_sequences(Stage& stage);
  void project(Stage& stage);
  void on_gathered(Stage& stage);
  void attend(Stage& stage);
  void on_reduced(Stage& stage);
  bool unwanted(const Stage& stage) const;
  void abandon(Stage& stage);
  void meet_experts(Stage& stage);
  void meet_others(Stage& stage, Phase where);
  void send_item(Stage& stage);
  void dispatch(Stage& stage);
  void on_combined(Stage& stage);
  void next_layer(Stage& stage);
  void send_rows(Stage& stage);
  void on_rows(Stage& stage);
  void on_logits(Stage& stage);
  void finish(Stage& stage, int samples);

  // The same payload to every rank of the group.
  void put_all(const Stage& stage, const Area& area, Payload payload);
  void put_to(const Stage& stage, const Area& area, int to, Payload payload);
  uint64_t group_flag(const Stage& stage) const;
  ItemId item(const Stage& stage) const;
  void trace(const Stage& stage, TraceOp op, Instant begin, TraceFlow flow = TraceFlow::none) const;

  const Geometry geometry_;
  const int group_, rank_;
  const uint64_t epoch_;  // of the group
  const AttentionLayout layout_;
  const ExpertLayout expert_layout_;
  const FrontLayout front_layout_;
  const ModelSpec spec_;
  std::unique_ptr<AttentionCompute> compute_;
  std::unique_ptr<Port> port_;
  Tracer tracer_;
  Interleave interleave_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<uint8_t> queued_;  // [stages] handed to interleave_, not yet advanced
};

}  // namespace asap
