// ModelWeights: every tensor of a checkpoint by its role, shapes checked against the ModelSpec.
//
// Views only: no tensor is read or copied here. A rank packs its slices from these views
// (compute/).
#pragma once

#include <vector>

#include "asap/base/result.h"
#include "asap/model/int8.h"
#include "asap/model/safetensors.h"
#include "asap/model/spec.h"
#include "asap/model/tensor.h"

namespace asap {

struct LayerViews {
  TensorView input_norm, post_norm;  // [H]

  // gqa
  TensorView q, k,
      v;  // [heads·d, H], [kv_heads·d, H] ×2; mla without q_lora: q is [heads·(nope+rope), H]
  TensorView q_bias, k_bias, v_bias;  // [heads·d], [kv_heads·d] ×2 if qkv_bias
  TensorView q_norm, k_norm;          // [d] each, or [heads·d] and [kv_heads·d] when QkNorm::full
  TensorView sinks;                   // [heads]
  // mla
  TensorView q_a, q_a_norm, q_b;     // [q_lora, H], [q_lora], [heads·(nope+rope), q_lora]
  TensorView kv_a, kv_a_norm, kv_b;  // [kv_lora+rope, H], [kv_lora], [heads·(nope+v), kv_lora]
  TensorView q_a_bias, kv_a_bias;    // [q_lora], [kv_lora+rope] if qkv_bias
  // dsa, layers that have an indexer
  TensorView index_q_b, index_k;               // [index_heads·dim, q_lora], [dim, H]
  TensorView index_k_norm, index_k_norm_bias;  // [dim]
  TensorView index_weights;                    // [index_heads, H]
  TensorView o, o_bias;                        // [H, heads·v], [H]

  FfnViews dense;                  // dense layers
  TensorView router, router_bias;  // [N, H], [N] (bias only if router.has_bias)
  TensorView router_logit_bias;    // [N] if router.logit_bias
  FfnViews shared;                 // if shared_intermediate > 0
  TensorView shared_gate;          // [1, H] if shared_gate
  std::vector<FfnViews>
      experts;  // [N]; per-expert tensors and fused gate_up_proj/down_proj look alike here
};

struct ModelWeights {
  TensorView embed;       // [V, H]
  TensorView final_norm;  // [H]
  TensorView lm_head;     // [V, H]; the embedding when tied
  std::vector<LayerViews> layers;
  std::vector<std::string> stored;  // names of all tensors that the views show
};

// Errors: not_found names the missing tensor; invalid names a tensor of the wrong shape;
// unsupported names a dtype, a quantisation, or up to three tensors that the architecture does not
// use. Quantisation marks views (TensorView::as_int8). Tensors without meaning here are skipped:
// prediction layers beyond the last, rotary tables, cache scales.
Result<ModelWeights> bind_weights(const Checkpoint& checkpoint, const ModelSpec& spec,
                                  Quantization quantization = Quantization::none);

// Whether a tensor is skipped: layers beyond the model (multi-token prediction), tables that can be
// computed, cache scales, a copy of the tied embedding.
bool has_no_use(const std::string& name, const ModelSpec& spec);

// One stored matrix, whatever its role.
Result<TensorView> bind_matrix(const Checkpoint& checkpoint, const ModelSpec& spec,
                               const std::string& name);

// The matrices that W8A8 multiplies as int8: experts, shared experts, dense FFNs, projections of
// attention but for kv_b. Routers, the embedding, the LM head and indexers decide too much, or cost
// too little.
std::vector<TensorView*> quantizable_matrices(ModelWeights& weights);

}  // namespace asap
