// AttentionCompute: what one attention rank does to the rows of its batches between one exchange
// and the next. The agent (attention.h) owns the protocol, phases and flags; it asks here for
// numbers. Two implementations: AttentionRows does the maths, PricedAttention (priced.h) only takes
// the time that a cost profile says.
#pragma once

#include <cstddef>
#include <span>

#include "asap/base/units.h"
#include "asap/transport/verbs.h"
#include "asap/wire/messages.h"

namespace asap {

// A batch on a stage of a rank. Rows of sequences follow each other in the batch; between layers
// the rank owns the rows of `slice`.
struct StageBatch {
  int stage = 0;
  int layer = 0;
  int tokens = 0;
  int largest_tokens = 0;  // lockstep: of the largest batch that meets the experts in this layer
  Part slice;
  bool select = false;  // some token sees more than index_topk keys
  double pairs = 0;     // Σ new·(new + 2·past): what attention costs
  std::span<const SequenceCommand> commands;
  std::span<const int32_t> blocks;    // KV block tables, one after another
  std::span<const int32_t> ids;       // [tokens] token ids
  std::span<const LogitBias> biases;  // of the sequences, one after another
  std::span<const int32_t> sampled;   // batch rows whose logits are wanted
  ItemId item;                        // this layer's expert work
  const std::byte* window = nullptr;
};

using Payload = std::span<const std::byte>;  // valid until the next call

// Calls for a batch come in the order in which they stand here, layer by layer; calls for other
// stages come between them.
class AttentionCompute {
 public:
  virtual ~AttentionCompute() = default;

  virtual void begin(const StageBatch& b) = 0;       // places the tokens, embeds the slice
  virtual Payload project(const StageBatch& b) = 0;  // -> gather, the same to every rank
  virtual void store(const StageBatch& b) = 0;       // gathered latents -> caches
  virtual Payload select(const StageBatch& b) = 0;   // DSA -> select, the same to every rank
  virtual void attend(const StageBatch& b) = 0;      // own heads, all tokens
  virtual Payload partial(const StageBatch& b, int to) = 0;  // -> reduce: the rows of rank `to`
  virtual void reduce(const StageBatch& b) = 0;              // partial sums, residual
  virtual void dense(const StageBatch& b) = 0;               // FFN of a dense layer
  virtual void route(const StageBatch& b) = 0;               // norm, router
  // What expert rank `e` gets; asked for 0, 1, ... E-1.
  virtual DispatchShare share(const StageBatch& b, int e) = 0;
  virtual void shared(const StageBatch& b) = 0;        // shared expert
  virtual void combine(const StageBatch& b) = 0;       // the experts' answers, residual
  virtual Payload last_rows(const StageBatch& b) = 0;  // own sampled rows, final norm -> rows
  virtual Payload logits(const StageBatch& b) = 0;     // own vocabulary -> logits
  // Rank 0: fills token and log-probabilities of sampled sequence number `i`.
  virtual void sample(const StageBatch& b, int i, const SequenceCommand& c, ResultEntry* out) = 0;
  virtual Payload row_logits() const = 0;  // [V] float32 of the sequence sampled last
};

}  // namespace asap
