// What a model weighs and costs, from its ModelSpec alone: no weights are read, nothing is
// measured.
#pragma once

#include <cstdint>

#include "asap/base/units.h"
#include "asap/model/spec.h"

namespace asap {

// Parameters of the whole model by role.
struct ParameterCount {
  int64_t embedding = 0;
  int64_t head = 0;        // 0 when tied to the embedding
  int64_t norms = 0;       // every norm, biases included
  int64_t attention = 0;   // projections
  int64_t indexer = 0;     // of sparse attention
  int64_t dense = 0;       // FFNs of dense layers
  int64_t shared = 0;      // shared experts
  int64_t router = 0;      // selection bias included
  int64_t routed = 0;      // all routed experts
  int64_t per_expert = 0;  // one routed expert of one layer, biases excluded
  int64_t biases = 0;      // of attention projections and experts, and attention sinks

  int64_t total = 0;
  // Taking part in one token: top_k routed experts, and no embedding table unless it is the head
  // too.
  int64_t active = 0;
};
ParameterCount count_parameters(const ModelSpec& spec);

// Bytes that weights take. `weights` is how matrices are kept: with f8_e4m3 they have one F32
// multiplier per 128×128 block, with i8 one per row, with mxfp4 one exponent byte per 32 values;
// what checkpoints do not quantise (embedding, head, router, the indexer's head weights) then
// counts as bf16. Norms and biases are kept as float32.
struct AttentionRankBytes {
  uint64_t embedding = 0;
  uint64_t head = 0;  // a shard of the vocabulary
  uint64_t norms = 0;
  uint64_t attention = 0;  // own heads; down-projections and the indexer are whole on every rank
  uint64_t dense = 0;      // whole on every rank, like shared and router
  uint64_t shared = 0;
  uint64_t router = 0;

  uint64_t total() const { return embedding + head + norms + attention + dense + shared + router; }
};
// The largest of `ranks` tensor-parallel ranks.
AttentionRankBytes attention_rank_bytes(const ModelSpec& spec, int ranks, DType weights);
// One routed expert of one layer, biases excluded.
uint64_t expert_bytes(const ModelSpec& spec, DType weights);
// The largest of `ranks` expert ranks: its experts of every MoE layer.
uint64_t expert_rank_bytes(const ModelSpec& spec, int ranks, DType weights);

// Cache of one token over all layers, all heads. With f8_e4m3: a latent of fp8 values with one F32
// multiplier per 128 and a bf16 rope key; an index key of fp8 values with one multiplier; plain fp8
// for grouped-query attention.
struct CacheBytes {
  uint64_t keys_values = 0;  // k and v, or the latent and the rope key
  uint64_t index = 0;        // keys of the sparse-attention indexer

  uint64_t total() const { return keys_values + index; }
};
CacheBytes token_cache_bytes(const ModelSpec& spec, DType cache);

// Floating-point operations of a prompt of `prompt_tokens` tokens, per token and over all layers; a
// token sees (prompt_tokens + 1) / 2 keys on average. Latent attention is counted in its expanded
// form, with sparse attention in its absorbed form over the selected keys; a sliding window bounds
// the keys of its layers.
struct TokenFlops {
  double attention = 0;  // projections, core, indexer
  double moe = 0;        // routed and shared experts, router
  double dense = 0;
  double head_per_prompt = 0;  // once per prompt, not per token

  double per_token() const { return attention + moe + dense; }
};
TokenFlops flops_per_token(const ModelSpec& spec, int64_t prompt_tokens);

}  // namespace asap
