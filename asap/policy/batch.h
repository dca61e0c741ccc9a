// BatchPlan: what one stage of a group computes next.
#pragma once

#include <cstdint>
#include <vector>

namespace asap {

// One sequence's part in a batch: new tokens [past, past + tokens).
struct BatchPiece {
  uint64_t sequence = 0;
  int past = 0;
  int tokens = 0;
  bool sample = false;  // the prompt ends here, or this is a generated token: sample the next one
  int follows = -1;     // stage of the group where the part before this one runs; -1: it is done
};

struct BatchPlan {
  int group = 0;
  int stage = 0;
  int tokens = 0;          // of all pieces
  bool exclusive = false;  // a long prompt that shares its group with no other batch
  std::vector<BatchPiece> pieces;

  void clear() {
    tokens = 0;
    exclusive = false;
    pieces.clear();
  }
};

}  // namespace asap
