// ExpertRows: ExpertCompute with real numbers: the packed experts of one rank and the super kernel.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "asap/compute/ops.h"
#include "asap/model/weights.h"
#include "asap/runtime/expert_compute.h"
#include "asap/runtime/row_histogram.h"

namespace asap {

// The experts of one rank, packed, and the address table over all layers.
struct ExpertWeights {
  Part experts;  // of every layer
  Arena arena;
  std::vector<ExpertMatrix> entries;  // [L][experts]
  ExpertTable table;
};
std::shared_ptr<const ExpertWeights> load_expert_weights(const ModelSpec& spec,
                                                         const Checkpoint& checkpoint,
                                                         const ModelWeights& views, int rank,
                                                         int ranks, Ops& ops,
                                                         const std::function<void(int)>& progress);

// Tokens of one call of the super kernel; larger items are computed and answered in pieces of this
// size.
inline constexpr int kPieceTokens = 4096;
int piece_tokens(const Geometry& geometry);
// Rows of one call, at most.
int piece_rows(const Geometry& geometry);

class ExpertRows final : public ExpertCompute {
 public:
  // `super_kernel` off: a kernel call for each expert, to measure what the one call saves.
  ExpertRows(const Geometry& geometry, std::shared_ptr<const ExpertWeights> weights, Ops& ops,
             bool super_kernel = true);

  // Where rows per expert and item are counted; null: nowhere.
  void count_rows(RowHistogram* histogram) { histogram_ = histogram; }

  int piece_tokens() const override { return asap::piece_tokens(geometry_); }
  void reserve(ExpertItem& item) const override;
  void reserve(ExpertPiece& piece) const override;
  void index(std::span<const DispatchView> views, ExpertItem& item) override;
  void experts(ExpertPiece& piece) override;
  void narrow(const ExpertPiece& piece) override;
  const std::byte* rows(const ExpertPiece& piece, int at) const override;

 private:
  void count(std::span<const DispatchView> views);
  void sort_by_expert(ExpertPiece& piece);
  void per_expert(ExpertPiece& piece);

  const Geometry geometry_;
  std::shared_ptr<const ExpertWeights> weights_;
  Ops& ops_;
  const bool super_kernel_;
  RowHistogram* histogram_ = nullptr;
  std::vector<int32_t> next_item_;   // receive: fill cursors
  std::vector<int32_t> next_piece_;  // compute: fill cursors
  std::vector<std::byte> wire_;      // send: [piece tokens, H] in the activation type
  // Without the super kernel: one expert's rows.
  std::vector<int32_t> one_offsets_, one_token_offsets_, one_token_rows_;
  std::vector<float> one_out_;
};

}  // namespace asap
