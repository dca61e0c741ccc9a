// config.json of released models, cut to the keys that matter, for tests.
#pragma once

namespace asap {

inline constexpr const char* kDeepseekV32Config = R"({
  "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
  "hidden_size": 7168, "num_hidden_layers": 61, "first_k_dense_replace": 3, "moe_layer_freq": 1,
  "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128,
  "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
  "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc",
  "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
  "vocab_size": 129280, "rms_norm_eps": 1e-06, "rope_theta": 10000,
  "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
  "max_position_embeddings": 163840, "attention_bias": false, "hidden_act": "silu",
  "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048, "torch_dtype": "bfloat16",
  "bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": false,
  "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0",
    "activation_scheme": "dynamic", "weight_block_size": [128, 128]}})";

inline constexpr const char* kDeepseekV3Config = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
  "hidden_size": 7168, "num_hidden_layers": 61, "first_k_dense_replace": 3, "moe_layer_freq": 1,
  "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128,
  "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
  "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
  "norm_topk_prob": true, "routed_scaling_factor": 2.5, "vocab_size": 129280,
  "rms_norm_eps": 1e-06, "rope_theta": 10000,
  "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
  "max_position_embeddings": 163840, "attention_bias": false, "hidden_act": "silu",
  "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1})";

inline constexpr const char* kQwen3Config = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 2048, "num_hidden_layers": 48, "intermediate_size": 6144,
  "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 4,
  "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "rope_scaling": null, "max_position_embeddings": 40960,
  "attention_bias": false, "use_sliding_window": false, "sliding_window": null,
  "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 151643,
  "eos_token_id": 151645, "tie_word_embeddings": false})";

}  // namespace asap
