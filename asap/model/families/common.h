// Pieces of config.json that families share, in both generations of its keys.
#pragma once

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
void read_sizes(JsonReader& config, ModelSpec* spec);

// rope_theta and rope_scaling, or rope_parameters; sets `rope` except its width and layout. YaRN
// without a factor takes max_positions / original_max_position_embeddings. Returns M(factor,
// mscale_all_dim)², which multiplies the attention scale of MLA (1 without it).
double read_rope(JsonReader& config, double default_theta, int max_positions, RopeSpec* rope);

// mlp_layer_types of the newer key style. False if the key is missing: then the family's older keys
// decide.
bool read_mlp_layer_types(JsonReader& config, ModelSpec* spec);

// Refuses a true `key` that the family does not implement.
void refuse_if_true(JsonReader& config, const char* key);

}  // namespace asap
