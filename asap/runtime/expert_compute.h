// ExpertCompute: what an expert rank does to the rows of its items. The agents (expert.h) own the
// protocol and the order; they ask here for numbers. Two implementations: ExpertRows does the
// maths, PricedExperts (priced.h) only takes the time that a cost profile says.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "asap/transport/verbs.h"

namespace asap {

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

// Tokens [first, first + count) of an item, from token `at` of a piece.
struct ExpertSegment {
  ExpertItem* item = nullptr;
  int first = 0, count = 0, at = 0;
  bool last() const { return first + count == item->tokens; }
};

// What one call of the super kernel computes: part of an item, or items of equal layer together.
struct ExpertPiece {
  int layer = 0;
  int tokens = 0;
  std::vector<ExpertSegment> segments;
  // Rows in the order of ExpertWork.
  std::vector<int32_t> expert_offsets, row_token, token_offsets, token_rows;
  std::vector<float> row_weight;
  std::vector<const std::byte*> payload;  // [tokens]
  std::vector<float> out;                 // [piece tokens, H]
};

// Three agents call it, each its own methods.
class ExpertCompute {
 public:
  virtual ~ExpertCompute() = default;
  virtual int piece_tokens() const = 0;  // of one call, at most
  // Before the first item: memory for the largest, so that none is taken later.
  virtual void reserve(ExpertItem& item) const = 0;
  virtual void reserve(ExpertPiece& piece) const = 0;
  // receive: the ranks' shares become the item's rows; item.tokens and rank_begin are set.
  virtual void index(std::span<const DispatchView> views, ExpertItem& item) = 0;
  // compute: the piece's segments, with tokens.
  virtual void experts(ExpertPiece& piece) = 0;
  // send: before rows().
  virtual void narrow(const ExpertPiece& piece) = 0;
  // send: the answer's rows from token `at` of the piece on, in the activation type; null if there
  // are none to write.
  virtual const std::byte* rows(const ExpertPiece& piece, int at) const = 0;
};

}  // namespace asap
