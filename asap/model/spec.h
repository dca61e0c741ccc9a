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

enum class RouterScore : uint8_t { softmax, sigmoid };

// Expert selection of one token from its router logits.
struct RouterSpec {
  RouterScore score = RouterScore::softmax;
  bool has_bias = false;   // e_score_correction_bias: added for the selection only
  int groups = 1;          // consecutive expert groups; 1 = no group stage
  int top_groups = 1;      // groups kept
  bool normalize = false;  // divide the selected weights by their sum (+1e-20 for sigmoid)
  double scale = 1.0;      // routed_scaling_factor, always applied

  bool operator==(const RouterSpec&) const = default;
};

struct ModelSpec {
  std::string model_type;    // "deepseek_v32", "deepseek_v3", "qwen3_moe"
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
  int kv_heads = 0;                          // gqa only
  int head_dim = 0;                          // gqa only
  bool qk_norm_per_head = false;             // gqa: RMSNorm over each head's head_dim, before RoPE
  int q_lora = 0;                            // mla: 0 = a single q_proj
  int kv_lora = 0;                           // mla: width of the latent c
  int qk_nope = 0, qk_rope = 0, v_head = 0;  // mla: per-head widths
  double mla_norm_eps = 1e-6;                // mla: eps of q_a_layernorm and kv_a_layernorm
  double attention_scale = 0;                // σ: multiplies q·k
  RopeSpec rope;

  // DeepSeek sparse attention; index_topk == 0: dense attention.
  int index_heads = 0, index_dim = 0, index_topk = 0;
  RopeSpec index_rope;  // on the first index_rope.dim elements of each index head

  std::vector<uint8_t> moe_layer;  // [layers]: 1 = experts, 0 = dense FFN
  int dense_intermediate = 0;      // width of a dense layer's FFN
  int experts = 0;                 // N: routed experts of a MoE layer
  int top_k = 0;                   // K
  int moe_intermediate = 0;        // width of one routed expert
  int shared_intermediate = 0;     // width of the (merged) shared expert; 0 = none
  RouterSpec router;

  // Width of q and k per head as attention sees them, and of v.
  int qk_head() const { return attention == AttentionKind::mla ? qk_nope + qk_rope : head_dim; }
  int v_head_width() const { return attention == AttentionKind::mla ? v_head : head_dim; }
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

}  // namespace asap
