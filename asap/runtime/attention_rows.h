// AttentionRows: AttentionCompute with real numbers: AttentionSide's maths on rows that lie in
// buffers here and in the rank's window.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "asap/compute/attention_side.h"
#include "asap/runtime/attention_compute.h"

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

class AttentionRows final : public AttentionCompute {
 public:
  AttentionRows(const Geometry& geometry, int rank, std::shared_ptr<const AttentionWeights> weights,
                int kv_blocks, Ops& ops);
  ~AttentionRows() override;

  void observe(Observer observer) { observer_ = std::move(observer); }

  void begin(const StageBatch& b) override;
  Payload project(const StageBatch& b) override;
  void store(const StageBatch& b) override;
  Payload select(const StageBatch& b) override;
  void attend(const StageBatch& b) override;
  Payload partial(const StageBatch& b, int to) override;
  void reduce(const StageBatch& b) override;
  void dense(const StageBatch& b) override;
  void route(const StageBatch& b) override;
  DispatchShare share(const StageBatch& b, int e) override;
  void shared(const StageBatch& b) override;
  void combine(const StageBatch& b) override;
  Payload last_rows(const StageBatch& b) override;
  Payload logits(const StageBatch& b) override;
  void sample(const StageBatch& b, int i, const SequenceCommand& c, ResultEntry* out) override;
  Payload row_logits() const override;

 private:
  struct Stage;

  Stage& at(const StageBatch& b) { return *stages_[static_cast<size_t>(b.stage)]; }
  void collect_gathered(const StageBatch& b);
  void collect_selected(const StageBatch& b);
  std::span<const int32_t> history(const StageBatch& b, size_t command);

  const Geometry geometry_;
  const int rank_;
  const AttentionLayout layout_;
  const ModelSpec spec_;
  AttentionCaches caches_;
  Ops& ops_;
  AttentionSide side_;
  Observer observer_;
  std::vector<std::unique_ptr<Stage>> stages_;
  int gathered_stage_ = -1;  // whose latents gathered_ holds; -1: nobody's

  const std::vector<double> rope_, index_rope_;  // frequencies
  std::vector<float> gathered_;                  // [S, gather_width]
  std::vector<float> partial_;                   // [S, H]
  std::vector<int32_t> selected_;                // [S, index_topk]
  std::vector<float> head_rows_;                 // [max_batch_seqs, H]
  std::vector<float> logits_;                    // [max_batch_seqs, V]
  std::vector<std::byte> wire_;                  // rows on their way out, in the activation type
  std::vector<float> row_logits_;                // [V] of one sequence
  std::vector<int32_t> cached_ids_;              // [KV slots] tokens, for penalties
  std::vector<int32_t> history_;                 // of the sequence being sampled
  std::vector<int32_t> counts_, next_;           // share: rows per local expert, fill cursors
  std::vector<RowEntry> rows_;                   // share: rows of one expert rank
  std::vector<size_t> taken_;                    // [T] rows read from each owner's part
};

}  // namespace asap
