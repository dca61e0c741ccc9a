// AttentionAgent: one attention rank (g, t). It holds up to R batches, one per stage, and advances
// whichever has received what it waits for: the command, a part from a peer of the group, or the
// experts' answers. Nothing here waits for another group, and no decision needs the other ranks of
// this one: the exchanges of a stage have buffers of their own, so ranks may advance stages in
// different orders and still meet.
//
// A batch on a stage:
//   command -> embed, project(0) -> [gather] -> store, select? -> [select] -> attend -> [reduce]
//     -> MoE layer:   residual, route, dispatch, shared -> [combine] -> residual -> project(next)
//     -> dense layer: residual, FFN                                            -> project(next)
//     -> last layer done:  final norm -> [rows] -> head -> [logits] -> sample -> result (rank 0)
// Words in brackets are exchanges: the stage is parked until all parts are there.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "asap/compute/attention_side.h"
#include "asap/policy/interleave.h"
#include "asap/runtime/agent.h"
#include "asap/transport/verbs.h"

namespace asap {

// What a rank decided for its slice of a batch at one layer: for tests and verification, never on
// in production.
struct Observation {
  int layer = 0;
  std::span<const SequenceCommand> sequences;  // of the whole batch, rows following each other
  Part slice;
  std::span<const int32_t> experts;   // [slice, K], or empty
  std::span<const float> weights;     // [slice, K]
  std::span<const int32_t> selected;  // [slice, index_topk] padded with -1, or empty
};
using Observer = std::function<void(const Observation&)>;

class AttentionAgent final : public Agent {
 public:
  AttentionAgent(const Geometry& geometry, int group, int rank,
                 std::shared_ptr<const AttentionWeights> weights, int kv_blocks, Ops& ops,
                 std::unique_ptr<Port> port, Tracer tracer);
  ~AttentionAgent() override;

  int do_work(Instant now) override;
  std::string name() const override;
  std::string waiting_for() const override;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  enum class Phase : uint8_t { idle, gather, select, reduce, combine, rows, logits };
  struct Stage;

  bool arrived(const Stage& stage) const;
  void advance(Stage& stage);

  void begin_batch(Stage& stage);
  void read_command(Stage& stage);
  void place_tokens(Stage& stage);
  void project(Stage& stage);
  void on_gathered(Stage& stage);
  void attend(Stage& stage, const int32_t* selected);
  void collect_selected(const Stage& stage);
  void on_selected(Stage& stage);
  void on_reduced(Stage& stage);
  void dispatch(Stage& stage);
  void on_combined(Stage& stage);
  void next_layer(Stage& stage);
  void send_rows(Stage& stage);
  void on_rows(Stage& stage);
  void on_logits(Stage& stage);
  void finish(Stage& stage);

  const float* collect_gathered(const Stage& stage);  // [tokens, gather_width]
  uint64_t group_flag(const Stage& stage) const;
  ItemId item(const Stage& stage) const;
  void trace(const Stage& stage, TraceOp op, Instant begin, TraceFlow flow = TraceFlow::none) const;

  const Geometry geometry_;
  const int group_, rank_;
  const uint64_t epoch_ = 1;
  const AttentionLayout layout_;
  const ExpertLayout expert_layout_;
  const FrontLayout front_layout_;
  const ModelSpec spec_;
  AttentionCaches caches_;
  Ops& ops_;
  AttentionSide side_;
  std::unique_ptr<Port> port_;
  Tracer tracer_;
  Observer observer_;
  Interleave interleave_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<uint8_t> queued_;  // [stages] handed to interleave_, not yet advanced

  const std::vector<double> rope_, index_rope_;  // frequencies
  std::vector<float> gathered_;                  // [S, gather_width]
  std::vector<float> partial_;                   // [S, H]
  std::vector<int32_t> selected_;                // [S, index_topk]
  std::vector<float> head_rows_;                 // [max_batch_seqs, H]
  std::vector<float> logits_;                    // [max_batch_seqs, V]
  std::vector<std::byte> wire_;                  // rows on their way out, in the activation type
  std::vector<float> row_logits_;                // [V] of one sequence
  std::vector<int32_t> counts_, next_;           // dispatch: rows per local expert, fill cursors
  std::vector<RowEntry> rows_;                   // dispatch: rows of one expert rank
  std::vector<size_t> taken_;                    // [T] rows read from each owner's part
};

}  // namespace asap
