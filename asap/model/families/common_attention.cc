// The attention part of config.json: grouped-query, latent, sparse.
#include <algorithm>
#include <bit>
#include <cmath>

#include "asap/model/families/common.h"

namespace asap {

namespace {

// The rotary share of a head: rotary_dim in elements, or partial_rotary_factor, which newer files
// keep in rope_parameters.
int read_rotary_width(JsonReader& config, int head_dim, double default_factor) {
  double factor = config.number_or("partial_rotary_factor", default_factor, 1e-3, 1.0);
  if (config.has("rope_parameters") && config.raw("rope_parameters").is_object()) {
    JsonReader rope(config.raw("rope_parameters"), config.file() + ": rope_parameters");
    factor = rope.number_or("partial_rotary_factor", factor, 1e-3, 1.0);
    config.adopt(rope.status());
  }
  const int width = config.integer_or("rotary_dim", static_cast<int>(head_dim * factor), 2,
                                      std::max(2, head_dim));
  if (width < 2 || width % 2 != 0) {
    config.problem("partial_rotary_factor",
                   fmt::format("gives {} rotary elements per head of {}; the number must be even "
                               "and at least 2",
                               width, head_dim));
    return 2;
  }
  return width;
}

void read_biases(JsonReader& config, const GqaDefaults& defaults, ModelSpec* spec) {
  if (defaults.bias == BiasKind::none) {
    refuse_if_true(config, defaults.bias_key);
    return;
  }
  spec->qkv_bias = config.boolean_or(defaults.bias_key, defaults.bias_default);
  spec->o_bias = spec->qkv_bias && defaults.bias == BiasKind::qkvo;
}

// Layers with an indexer of their own: a list, a word of F and S, or every index_topk_freq-th layer
// from index_skip_topk_offset - 1 on, and those before.
void read_index_layers(JsonReader& config, ModelSpec* spec) {
  const char* key = "indexer_types";
  const int every = config.integer_or("index_topk_freq", 1, 1, kMaxLayers);
  const int offset = config.integer_or("index_skip_topk_offset", 2, 0, kMaxLayers);
  const std::string pattern = config.string_or("index_topk_pattern", "");
  if (config.has(key)) {
    spec->index_layer = read_choices(config, key, spec->layers, "shared", "full");
  } else if (!pattern.empty()) {
    key = "index_topk_pattern";
    const std::string word = pattern.substr(0, static_cast<size_t>(spec->layers));
    if (word.size() < static_cast<size_t>(spec->layers) ||
        word.find_first_not_of("FS") != std::string::npos) {
      config.problem(key, fmt::format("is {}; it must have one of the letters F (full) and S "
                                      "(shared) for each of {} layers",
                                      shown(pattern), spec->layers));
    }
    for (const char letter : word) spec->index_layer.push_back(letter == 'F' ? 1 : 0);
  } else if (every > 1) {
    key = "index_topk_freq";
    for (int layer = 0; layer < spec->layers; ++layer) {
      spec->index_layer.push_back(std::max(layer - offset + 1, 0) % every == 0 ? 1 : 0);
    }
  }
  if (!spec->index_layer.empty() && spec->index_layer[0] == 0) {
    config.problem(key,
                   "begins with a shared layer, which has nothing to share; the first layer "
                   "must be full");
  }
}

}  // namespace

void read_gqa(JsonReader& config, const GqaDefaults& defaults, ModelSpec* spec) {
  spec->attention = AttentionKind::gqa;
  spec->qk_norm = defaults.qk_norm;
  spec->kv_heads = config.integer_or("num_key_value_heads", spec->heads, 1, spec->heads);
  if (spec->heads % spec->kv_heads != 0) {
    config.problem("num_key_value_heads", fmt::format("is {}; it must divide num_attention_heads, "
                                                      "{}",
                                                      spec->kv_heads, spec->heads));
  }
  const int fallback = defaults.head_dim > 0 ? defaults.head_dim : spec->hidden / spec->heads;
  spec->head_dim = config.integer_or("head_dim", fallback, 2, kMaxHeadWidth);
  if (spec->head_dim < 2 || spec->head_dim % 2 != 0) {
    config.problem("head_dim",
                   fmt::format("is {}; it must be even and at least 2", spec->head_dim));
    spec->head_dim = 2;
  }
  read_biases(config, defaults, spec);
  read_rope(config, defaults.theta, spec->max_positions, &spec->rope);
  spec->rope.dim = read_rotary_width(config, spec->head_dim, defaults.partial_rotary);
  spec->attention_scale = 1.0 / std::sqrt(static_cast<double>(spec->head_dim));
}

void read_windows(JsonReader& config, const std::vector<uint8_t>& sliding, ModelSpec* spec) {
  const std::vector<uint8_t> slides =
      config.has("layer_types")
          ? read_choices(config, "layer_types", spec->layers, "full_attention", "sliding_attention")
          : sliding;
  if (std::find(slides.begin(), slides.end(), 1) == slides.end()) return;
  const int window = config.integer("sliding_window", 1, kMaxPositions);
  for (const uint8_t s : slides) spec->window.push_back(s != 0 ? window : 0);
}

void read_mla(JsonReader& config, const MlaDefaults& defaults, ModelSpec* spec) {
  spec->attention = AttentionKind::mla;
  // null means one undivided q_proj; a missing key means the default.
  spec->q_lora = config.is_null("q_lora_rank")
                     ? 0
                     : config.integer_or("q_lora_rank", defaults.q_lora, 1, kMaxHidden);
  spec->kv_lora = config.integer_or("kv_lora_rank", 512, 1, kMaxHidden);
  spec->qk_nope = config.integer_or("qk_nope_head_dim", defaults.qk_nope, 1, kMaxHeadWidth);
  spec->qk_rope = config.integer_or("qk_rope_head_dim", 64, 2, kMaxHeadWidth);
  spec->v_head = config.integer_or("v_head_dim", defaults.v_head, 1, kMaxHeadWidth);
  if (spec->qk_rope % 2 != 0) {
    config.problem("qk_rope_head_dim", fmt::format("is {}; it must be even", spec->qk_rope));
  }
  spec->qkv_bias = spec->o_bias = config.boolean_or("attention_bias", false);
  spec->mla_norm_eps = config.number_or("mla_norm_eps", 1e-6, 1e-12, 1e-2);
  spec->latent_fp8 = config.boolean_or("kv_latent_fp8", false);
  const double factor = read_rope(config, defaults.theta, spec->max_positions, &spec->rope);
  spec->rope.dim = spec->qk_rope;
  spec->rope.interleaved = config.boolean_or("rope_interleave", true);
  spec->attention_scale = factor / std::sqrt(static_cast<double>(spec->qk_head()));
}

void read_indexer(JsonReader& config, int default_heads, bool default_interleaved,
                  ModelSpec* spec) {
  spec->index_heads = config.integer_or("index_n_heads", default_heads, 1, kMaxHeads);
  spec->index_dim = config.integer_or("index_head_dim", 128, 2, kMaxHeadWidth);
  spec->index_topk = config.integer_or("index_topk", 2048, 1, kMaxPositions);
  spec->index_rope = spec->rope;
  spec->index_rope.interleaved = config.boolean_or("indexer_rope_interleave", default_interleaved);
  spec->index_rope.amplitude = 1.0;
  spec->index_fp8 = config.boolean_or("indexer_fp8", false);
  read_index_layers(config, spec);
  if (spec->q_lora == 0) {
    config.problem("q_lora_rank", "is null; the sparse-attention indexer needs the query latent",
                   Code::unsupported);
  }
  if (spec->index_dim < spec->qk_rope) {
    config.problem("index_head_dim", fmt::format("is {}; it must be at least qk_rope_head_dim, {}",
                                                 spec->index_dim, spec->qk_rope));
  }
  if (spec->index_fp8 && !std::has_single_bit(static_cast<unsigned>(spec->index_dim))) {
    config.problem("indexer_fp8", fmt::format("is true, but index_head_dim {} is no power of two, "
                                              "which its Hadamard transform needs",
                                              spec->index_dim));
  }
}

}  // namespace asap
