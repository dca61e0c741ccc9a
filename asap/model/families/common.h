// Pieces of config.json that families share, in both generations of its keys. A family file names
// its defaults and calls these; what differs between two families is data here, never a copy.
#pragma once

#include <vector>

#include "asap/model/json_reader.h"
#include "asap/model/spec.h"

namespace asap {

// Bounds on what a configuration may claim; far above any real model, low enough that no product of
// two overflows.
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxHidden = 1 << 16;
inline constexpr int kMaxHeads = 4096;
inline constexpr int kMaxHeadWidth = 4096;
inline constexpr int kMaxVocab = 1 << 24;
inline constexpr int kMaxExperts = 4096;
inline constexpr int kMaxTopK = 64;
inline constexpr int kMaxIntermediate = 1 << 20;
inline constexpr int kMaxPositions = 1 << 24;

// Hidden size, layers, heads, vocabulary, norms, dtype, special ids; refuses unknown activations
// and quantisations.
void read_sizes(JsonReader& config, ModelSpec* spec, double default_rms_eps = 1e-6);

// Refuses a quantization_config of compressed-tensors that is not W8A8 in int8 (model/int8.h).
void check_int_quantized(JsonReader& quantization);

// rope_theta and rope_scaling, or rope_parameters; sets `rope` except its width and layout. YaRN
// without a factor takes max_positions / original_max_position_embeddings. Returns M(factor,
// mscale_all_dim)², which multiplies the attention scale of MLA (1 without it).
double read_rope(JsonReader& config, double default_theta, int max_positions, RopeSpec* rope);

// Where a family's attention has biases if its key says so.
enum class BiasKind : uint8_t { none, qkv, qkvo };

struct GqaDefaults {
  QkNorm qk_norm = QkNorm::none;
  double theta = 1e4;
  int head_dim = 0;  // 0: hidden_size / num_attention_heads
  double partial_rotary = 1.0;
  BiasKind bias = BiasKind::none;
  const char* bias_key = "attention_bias";
  bool bias_default = false;
};
// Grouped-query attention: heads, widths, biases, rotary embedding over all or part of a head.
void read_gqa(JsonReader& config, const GqaDefaults& defaults, ModelSpec* spec);

// Layers that see the last `sliding_window` keys only: those that layer_types calls
// "sliding_attention"; without that key, those marked in `sliding` ([layers]).
void read_windows(JsonReader& config, const std::vector<uint8_t>& sliding, ModelSpec* spec);

struct MlaDefaults {
  int q_lora = 1536;
  int qk_nope = 128;
  int v_head = 128;
  double theta = 1e4;
};
// Multi-head latent attention; of its roundings, mla_norm_eps and kv_latent_fp8 are switches of
// ours.
void read_mla(JsonReader& config, const MlaDefaults& defaults, ModelSpec* spec);

// DeepSeek sparse attention, after read_mla: sizes, layout, the layers that have an indexer
// (indexer_types); indexer_fp8 is a switch of ours.
void read_indexer(JsonReader& config, int default_heads, bool default_interleaved, ModelSpec* spec);

// Number, selection and width of the routed experts, under the family's names; the number also
// under those of other families.
void read_experts(JsonReader& config, const char* count_key, const char* width_key,
                  ModelSpec* spec);
// Shared experts of the DeepSeek kind: n_shared_experts times the width of a routed one.
void read_shared_experts(JsonReader& config, ModelSpec* spec);

struct GroupedRouterDefaults {
  int groups = 1;
  int top_groups = 1;
  double scale = 1.0;
};
// The router that DeepSeek-V3 calls noaux_tc: sigmoid scores, a selection bias, groups judged by
// their two best experts.
void read_grouped_router(JsonReader& config, const GroupedRouterDefaults& defaults,
                         ModelSpec* spec);
// n_group and topk_group.
void read_groups(JsonReader& config, const GroupedRouterDefaults& defaults, ModelSpec* spec);

// A list with one of two words for each of `count` layers: 1 where it says `one`. Longer lists are
// fine: a model may be run at reduced depth. Only if config.has(key).
std::vector<uint8_t> read_choices(JsonReader& config, const char* key, int count, const char* zero,
                                  const char* one);

// Which layers have experts. mlp_layer_types, if present, decides; else the family's older keys.
void read_leading_dense_layers(JsonReader& config, int default_first, ModelSpec* spec);
void read_sparse_step(JsonReader& config, ModelSpec* spec);
void all_layers_sparse(ModelSpec* spec);

// Refuses a true `key` that the family does not implement.
void refuse_if_true(JsonReader& config, const char* key);
// Refuses a `key` that says anything but `value`; a missing key is taken as `value`.
void require_string(JsonReader& config, const char* key, const char* value);

}  // namespace asap
