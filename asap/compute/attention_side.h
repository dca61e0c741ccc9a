// AttentionSide: the maths of one attention rank, without batches, stages or links: what happens to
// token rows between one exchange and the next. The attention agent (runtime/attention.h) calls
// these steps in order and moves the rows.
//
// Between layers a rank owns a slice of the batch's tokens; inside attention it owns heads. The
// steps of a layer:
//   project   own slice   norm, down-projections                        -> latents to gather
//   store     all tokens  caches
//   select    own slice   DSA: keys that each token attends to          -> selections to gather
//   attend    all tokens  own heads, o_proj                             -> partial sums to reduce
//   route     own slice   norm, router                                  -> dispatch
//   shared    own slice   shared expert, while the routed experts work
//   dense     own slice   FFN of a dense layer, in place of route and shared
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/compute/ops.h"
#include "asap/model/weights.h"

namespace asap {

// Rank `rank` of `ranks`: heads, vocabulary rows and nothing else are divided; down-projections,
// router, shared and dense FFNs work on token slices and are whole on every rank. So are q, k and v
// where their norm spans all heads (QkNorm::full): a rank with some heads could not compute it.
struct AttentionLayerWeights {
  std::vector<float> input_norm, post_norm;       // [H]
  Matrix q, k, v;                                 // gqa; q also mla without q_lora
  std::vector<float> q_norm, k_norm;              // [d], or whole widths for QkNorm::full
  std::vector<float> sinks;                       // [own heads] or empty
  Matrix q_a, q_b, kv_a;                          // mla
  std::vector<float> q_a_norm, kv_a_norm;         // [q_lora], [kv_lora]
  std::vector<MlaHead> mla_heads;                 // own heads
  Matrix index_q, index_k, index_weights;         // dsa, whole on every rank
  std::vector<float> index_k_norm, index_k_bias;  // [index_dim]
  Matrix o;                                       // [H, own heads·v]
  Matrix router;
  std::vector<float> router_bias;  // [N] or empty
  ExpertMatrix shared, dense;
  Matrix shared_gate;  // [1, H]
};

struct AttentionWeights {
  ModelSpec spec;
  Checkpoint checkpoint;  // keeps the mapped embedding alive
  Arena arena;
  int heads = 0;     // own query heads
  int kv_heads = 0;  // own kv heads (gqa); shared by several ranks when T > kv_heads
  int first_head = 0, first_kv_head = 0;
  Part vocab;  // own rows of the LM head
  TensorView embed;
  std::vector<float> final_norm;
  Matrix lm_head;
  std::vector<AttentionLayerWeights> layers;
};

// Whether `ranks` divides the model; the error names the number and the divisor.
Status check_tensor_parallel(const ModelSpec& spec, int ranks);
// Packs rank `rank`'s shard. `progress` (may be null) counts layers done.
std::shared_ptr<const AttentionWeights> load_attention_weights(
    const ModelSpec& spec, const Checkpoint& checkpoint, const ModelWeights& views, int rank,
    int ranks, Ops& ops, const std::function<void(int)>& progress);

// KV memory of one rank: `blocks` blocks of kKvBlock tokens in every layer. Pages are taken from
// the system when first written.
struct AttentionCaches {
  AttentionCaches(const AttentionWeights& weights, int blocks, DType dtype);
  Arena arena;
  std::vector<KvCache> kv;     // [L]
  std::vector<KvCache> index;  // [L], dsa; empty for layers without an indexer
};
// Bytes of cache per token on one rank.
uint64_t cache_bytes_per_token(const ModelSpec& spec, int ranks, DType dtype);

// A batch as one rank sees it; arrays cover all its tokens, rows of sequences follow each other.
struct BatchRows {
  int tokens = 0;
  Part slice;  // rows that this rank owns between layers
  std::span<const Sequence> sequences;
  const int32_t* slots = nullptr;       // [tokens] cache slot
  const float* angles = nullptr;        // [tokens, rope.dim/2, 2] cos, sin
  const float* index_angles = nullptr;  // [tokens, index_rope.dim/2, 2]
  bool select = false;                  // some token sees more than index_topk keys
};
// cos and sin of `rope` for positions[n], [n, dim/2, 2]: computed in double, so a position has one
// value everywhere.
void rope_angles(const std::vector<double>& frequencies, double amplitude,
                 std::span<const int32_t> positions, float* out);

class AttentionSide {
 public:
  // `max_tokens`: rows of the largest batch.
  AttentionSide(std::shared_ptr<const AttentionWeights> weights, AttentionCaches& caches, Ops& ops,
                int max_tokens);

  // Elements per token that `project` hands to the group: [qr or x | c | k_rope | index key]; for
  // gqa x, or [q | k | v] of all heads for QkNorm::full.
  static int gather_width(const ModelSpec& spec);

  void embed(std::span<const int32_t> tokens, float* h) const;  // [n, H]
  void project(int layer, const BatchRows& batch, const float* h, float* latents);
  void store(int layer, const BatchRows& batch, const float* gathered);  // [tokens, gather_width]
  void select(int layer, const BatchRows& batch, const float* h, const float* gathered,
              int32_t* selected);  // [slice, index_topk]
  void attend(int layer, const BatchRows& batch, const float* gathered, const int32_t* selected,
              float* partial);  // [tokens, H]
  // x = post-attention norm of h [n, H]; experts and weights of each row, [n, K].
  void route(int layer, int n, const float* h, float* x, int32_t* ids, float* weights);
  void shared(int layer, int n, const float* x, float* out);  // [n, H]; zeros without shared expert
  void dense(int layer, int n, float* h);                     // h += FFN(norm(h))
  void final_norm(int n, const float* h, float* x) const;
  void head(int n, const float* x, float* logits) const;  // [n, own vocabulary rows]

  const AttentionWeights& weights() const { return *weights_; }

 private:
  void project_qkv(int layer, const BatchRows& batch, const float* x, float* qkv);
  void project_index_key(int layer, const BatchRows& batch, const float* x, int ldx, float* key);
  void store_gqa(int layer, const BatchRows& batch, const float* gathered);
  void attend_gqa(int layer, const BatchRows& batch, const float* gathered);
  void attend_mla(int layer, const BatchRows& batch, const float* gathered,
                  const int32_t* selected);

  std::shared_ptr<const AttentionWeights> weights_;
  const ModelSpec& spec_;
  AttentionCaches& caches_;
  Ops& ops_;
  int gather_width_;
  std::vector<float> x_;       // [max_tokens, H] normed rows
  std::vector<float> y_;       // [max_tokens, H] output of a dense FFN
  std::vector<float> q_;       // [max_tokens, own heads·qk] or index queries
  std::vector<float> kv_;      // [max_tokens, 2·own kv heads·d]
  std::vector<float> out_;     // [max_tokens, own heads·v]
  std::vector<float> logits_;  // [max_tokens, N] router logits, or index weights
};

}  // namespace asap
