// ModelSpec: what a checkpoint computes, in one normalised form.
//
// config.json has two generations of keys and a dozen dialects; a family file (model/families/*.cc)
// reads its dialect and fills this struct. Everything above this folder looks here only and never
// at config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/base/units.h"

namespace asap {

enum class AttentionKind : uint8_t {
  gqa,  // grouped-query attention; q, k, v projections of the hidden state
  mla,  // multi-head latent attention (DeepSeek): one cached latent + one rope key per token
};

// Rotary embedding of `dim` elements: angle of pair j at position p is p·ω_j (ω after YaRN).
struct RopeSpec {
  int dim = 0;               // rotary width, elements; even
  bool interleaved = false;  // pairs (2j, 2j+1); otherwise (j, j + dim/2)
  double theta = 1e4;        // base
  bool yarn = false;
  double factor = 1.0;
  double original_max_positions = 0;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double amplitude = 1.0;  // multiplies cos and sin (YaRN's attention factor, already resolved)

  bool operator==(const RopeSpec&) const = default;
};
// ω_j for j in [0, dim/2), in double.
std::vector<double> rope_frequencies(const RopeSpec& rope);

// Normalisation of q and k after their projections, before RoPE.
enum class QkNorm : uint8_t {
  none,
  per_head,  // RMSNorm over each head's head_dim
  full,      // RMSNorm over all heads together
};

enum class RouterScore : uint8_t {
  softmax,           // over all experts
  sigmoid,           // of each expert
  softmax_selected,  // over the logits of the selected experts; selection by logit
};

// What a group of experts is worth.
enum class GroupScore : uint8_t {
  top2_sum,  // its two best experts together (DeepSeek-V3)
  max,       // its best expert (DeepSeek-V2)
};

// Expert selection of one token from its router logits.
struct RouterSpec {
  RouterScore score = RouterScore::softmax;
  bool has_bias = false;    // e_score_correction_bias: added for the selection only
  bool logit_bias = false;  // the router is a linear layer with a bias
  int groups = 1;           // consecutive expert groups; 1 = no group stage
  int top_groups = 1;       // groups kept
  GroupScore group_score = GroupScore::top2_sum;
  bool normalize = false;  // divide the selected weights by their sum (+1e-20 for sigmoid)
  double scale = 1.0;      // routed_scaling_factor, always applied

  bool operator==(const RouterSpec&) const = default;
};

// How an FFN joins gate g and up u: silu(g)·u, or gpt-oss's clamped form
// min(g, limit)·sigmoid(alpha·min(g, limit))·(clamp(u, -limit, limit) + 1).
struct GluSpec {
  bool clamped = false;
  double alpha = 1.702;
  double limit = 7.0;

  bool operator==(const GluSpec&) const = default;
};

struct ModelSpec {
  std::string model_type;    // of config.json: "deepseek_v32", "qwen3_moe", ...
  std::string architecture;  // architectures[0] of config.json

  int hidden = 0;         // H
  int layers = 0;         // L; tensors of model.layers.i with i >= L are ignored (MTP)
  int vocab = 0;          // rows of the embedding, padding included
  int max_positions = 0;  // max_position_embeddings
  double rms_eps = 1e-6;
  bool tied_embeddings = false;
  DType stored_dtype = DType::bf16;  // torch_dtype / dtype of config.json
  std::vector<int> eos_ids;          // from config.json and generation_config.json
  int bos_id = -1;                   // -1: none

  AttentionKind attention = AttentionKind::gqa;
  int heads = 0;
  int kv_heads = 0;               // gqa only
  int head_dim = 0;               // gqa only
  QkNorm qk_norm = QkNorm::none;  // gqa
  double clip_qkv = 0;            // gqa: q, k, v (after norms) clamped to ±this; 0: no
  bool qkv_bias = false;          // on q, k, v; mla: on q_a and kv_a
  bool o_bias = false;
  bool sinks = false;       // gqa: one learnt logit per head joins the softmax without a value
  std::vector<int> window;  // gqa: [layers] keys that a token sees, itself included, 0 = all; or
                            // empty: all layers see all
  int q_lora = 0;           // mla: 0 = a single q_proj
  int kv_lora = 0;          // mla: width of the latent c
  int qk_nope = 0, qk_rope = 0, v_head = 0;  // mla: per-head widths
  double mla_norm_eps = 1e-6;                // mla: eps of q_a_layernorm and kv_a_layernorm
  double attention_scale = 0;                // σ: multiplies q·k
  RopeSpec rope;

  // DeepSeek sparse attention; index_topk == 0: dense attention.
  int index_heads = 0, index_dim = 0, index_topk = 0;
  RopeSpec index_rope;  // on the first index_rope.dim elements of each index head
  // [layers] 1: the layer has an indexer, 0: it attends to the selection of the last layer that has
  // one; or empty: every layer has its own.
  std::vector<uint8_t> index_layer;

  // Roundings that some references apply and others do not (docs/models.md).
  bool index_fp8 = false;   // Hadamard transform and fp8 round trip of index queries and keys
  bool latent_fp8 = false;  // mla: fp8 round trip of the normed latent
  bool fp8_ue8m0 = false;   // activation scales of --quantization fp8 are powers of two

  std::vector<uint8_t> moe_layer;  // [layers]: 1 = experts, 0 = dense FFN
  int dense_intermediate = 0;      // width of a dense layer's FFN
  int experts = 0;                 // N: routed experts of a MoE layer
  int top_k = 0;                   // K
  int moe_intermediate = 0;        // width of one routed expert
  int shared_intermediate = 0;     // width of the (merged) shared expert; 0 = none
  bool shared_gate = false;        // shared expert times sigmoid(w·x)
  bool expert_bias = false;        // routed experts have biases on gate, up and down
  GluSpec glu;                     // of routed experts
  RouterSpec router;

  // Width of q and k per head as attention sees them, and of v.
  int qk_head() const { return attention == AttentionKind::mla ? qk_nope + qk_rope : head_dim; }
  int v_head_width() const { return attention == AttentionKind::mla ? v_head : head_dim; }
  int window_of(int layer) const { return window.empty() ? 0 : window[static_cast<size_t>(layer)]; }
  // Whether the layer computes a selection of its own.
  bool indexes(int layer) const {
    return index_topk > 0 && (index_layer.empty() || index_layer[static_cast<size_t>(layer)] != 0);
  }
  int index_layers() const {
    int n = 0;
    for (int layer = 0; layer < layers; ++layer) n += indexes(layer) ? 1 : 0;
    return n;
  }
  int moe_layers() const {
    int n = 0;
    for (uint8_t moe : moe_layer) n += moe;
    return n;
  }

  bool operator==(const ModelSpec&) const = default;
};

// Reads DIR/config.json (and generation_config.json if present).
// Errors: not_found (no such directory or file), invalid (not JSON, a key missing or of the wrong
// type or range; the message names the key and value), unsupported (model_type or a feature; the
// message lists what is supported).
Result<ModelSpec> load_spec(const std::string& directory);
// The same from the text of config.json; `file` names it in messages.
Result<ModelSpec> parse_spec(const std::string& text, const std::string& file);
// What generation_config.json adds: end tokens.
Status parse_generation_config(const std::string& text, const std::string& file, ModelSpec* spec);

}  // namespace asap
