// Geometry: the fixed shape of an instance. Every device derives it from the model and the flags,
// and the front's is compared with each worker's field by field before anything is exchanged.
#pragma once

#include <cstdint>
#include <string>

#include "asap/base/result.h"
#include "asap/base/units.h"

namespace asap {

inline constexpr int32_t kProtocolVersion = 1;

struct Geometry {
  int32_t protocol = kProtocolVersion;
  int32_t groups = 1;              // D: data-parallel attention groups
  int32_t ranks = 1;               // T: tensor-parallel ranks of a group
  int32_t expert_ranks = 1;        // E: devices that hold experts
  int32_t stages = 2;              // R: batches alive in a group at once
  int32_t regions = 2;             // items of a group that may lie at the experts at once, <= R
  int32_t max_batch_tokens = 0;    // S: tokens of one batch
  int32_t max_batch_seqs = 0;      // sequences of one batch
  int32_t max_seq_blocks = 0;      // KV blocks of the longest sequence
  int32_t hidden = 0;              // H
  int32_t layers = 0;              // L
  int32_t moe_layers = 0;          // items of one batch per expert rank
  int32_t experts = 0;             // N
  int32_t top_k = 0;               // K
  int32_t vocab = 0;               // V
  int32_t gather_width = 0;        // elements per token in the all-gather before attention
  int32_t index_topk = 0;          // DSA: keys selected per token; 0 = dense attention
  int32_t logits_rows = 0;         // full logits rows a result may carry (0 when serving)
  DType activation = DType::bf16;  // rows on the wire and in the KV cache: bf16 or f32
  // Synchronous engines: attention rank i and expert rank i are one worker (D·T = E), R is 1, and
  // all attention ranks meet before and after the experts of a layer.
  bool lockstep = false;

  int devices() const { return 1 + groups * ranks + expert_ranks; }
  // Tokens of a batch's slice on one rank, at most (ceil(S/T)).
  int slice_tokens() const { return (max_batch_tokens + ranks - 1) / ranks; }
  // Experts on one expert rank, at most (ceil(N/E)).
  int local_experts() const { return (experts + expert_ranks - 1) / expert_ranks; }
  // Local experts that one token can select, at most.
  int local_top_k() const { return top_k < local_experts() ? top_k : local_experts(); }
  // Vocabulary rows on one rank, at most (ceil(V/T)).
  int vocab_slice() const { return (vocab + ranks - 1) / ranks; }
  uint64_t row_bytes() const { return static_cast<uint64_t>(hidden) * dtype_bytes(activation); }
};

// Error (invalid) names the first field that differs and both values; `who` is the peer.
Status compare(const Geometry& front, const Geometry& peer, const std::string& who);

// Devices are numbered 0 = front, then attention ranks by group and rank, then expert ranks.
inline constexpr int kFrontDevice = 0;
inline int attention_device(const Geometry& g, int group, int rank) {
  return 1 + group * g.ranks + rank;
}
inline int expert_device(const Geometry& g, int expert_rank) {
  return 1 + g.groups * g.ranks + expert_rank;
}
// The device whose process runs this one, and on whose doorbell it sleeps: itself, but in lockstep
// an expert rank lives with the attention rank of its number.
inline int host_device(const Geometry& g, int device) {
  const bool guest = g.lockstep && device >= expert_device(g, 0);
  return guest ? device - g.groups * g.ranks : device;
}
// "front", "attention g0 t1", "moe e2": the names used in logs, traces and errors.
std::string device_name(const Geometry& g, int device);

}  // namespace asap
