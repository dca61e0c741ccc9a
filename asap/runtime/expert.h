// The expert rank's three agents (the triple stream): receive, compute and send, joined by bounded
// queues. They share one ExpertRank, which owns the items and buffers that pass between them.
//
//   receive  sees that all T rows of a (group, stage) have arrived, checks them, sorts their rows
//   by expert compute  picks an item (policy), runs the super kernel piece by piece; the layer is
//   data of the item send     writes partial results to the group's ranks, the flag last: exactly
//   one answer per item
//
// Back-pressure is structural: a (group, stage) has one item at most, and its region in the window
// stays valid until the answer. So hidden states are read from the window where they lie, by the
// kernel that widens them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "asap/base/spsc.h"
#include "asap/compute/ops.h"
#include "asap/model/weights.h"
#include "asap/policy/expert_queue.h"
#include "asap/runtime/agent.h"
#include "asap/transport/verbs.h"

namespace asap {

// The experts of one rank, packed, and the address table over all layers.
struct ExpertWeights {
  Part experts;  // of every layer
  Arena arena;
  std::vector<ExpertMatrix> entries;  // [L][experts]
  ExpertTable table;
};
std::shared_ptr<const ExpertWeights> load_expert_weights(const ModelSpec& spec,
                                                         const ModelWeights& views, int rank,
                                                         int ranks, Ops& ops,
                                                         const std::function<void(int)>& progress);

// Tokens of one call of the super kernel; larger items are computed and answered in pieces of this
// size.
inline constexpr int kPieceTokens = 4096;
int piece_tokens(const Geometry& geometry);
// Rows of one call, at most.
int piece_rows(const Geometry& geometry);

// One item in this rank: its rows sorted for the kernel, piece after piece.
struct ExpertItem {
  ItemId id;
  int tokens = 0;               // of all ranks; global token i is rank t's token i - rank_begin[t]
  std::vector<int> rank_begin;  // [T + 1]
  std::vector<const std::byte*> payload;  // [tokens] hidden state in the window
  std::vector<int32_t> token_offsets;     // [tokens + 1] rows of a token, ascending expert
  std::vector<int32_t> token_expert;      // [rows]
  std::vector<float> token_weight;        // [rows]
};

// Rows of one piece in the order of ExpertWork.
struct ExpertPiece {
  ExpertItem* item = nullptr;
  int first = 0, count = 0;  // global tokens
  std::vector<int32_t> expert_offsets, row_token, token_offsets, token_rows;
  std::vector<float> row_weight;
  std::vector<float> out;  // [piece tokens, H]
};

class ExpertRank {
 public:
  ExpertRank(const Geometry& geometry, int rank, std::shared_ptr<const ExpertWeights> weights,
             Ops& ops, Link& link, const Tracer tracers[3]);
  ~ExpertRank();

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

  const Geometry geometry_;
  const int rank_;
  const uint64_t epoch_ = 1;
  const ExpertLayout layout_;
  const AttentionLayout attention_layout_;
  std::shared_ptr<const ExpertWeights> weights_;
  Ops& ops_;
  std::vector<ExpertItem> items_;     // [D·R]
  std::vector<ExpertPiece> pieces_;   // two: one is computed while the other is sent
  SpscQueue<ExpertItem*> ready_;      // receive -> compute
  SpscQueue<ExpertPiece*> computed_;  // compute -> send
  SpscQueue<ExpertPiece*> free_;      // send -> compute
  Doorbell compute_bell_, send_bell_;
  std::unique_ptr<Receive> receive_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Send> send_;
};

}  // namespace asap
