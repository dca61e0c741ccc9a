// EngineConfig: every knob of an instance, as the command line gives it, and the geometry that
// follows from it and the model. The front hands the same text to every worker, which derives its
// own geometry and compares.
#pragma once

#include <string>

#include "asap/base/result.h"
#include "asap/compute/ops.h"
#include "asap/model/int8.h"
#include "asap/model/model_source.h"
#include "asap/model/spec.h"
#include "asap/wire/geometry.h"

namespace asap {

struct EngineConfig {
  // The model, as ModelSource (model/model_source.h) has it.
  std::string model;                        // checkpoint directory
  std::string config_file = "config.json";  // in that directory
  std::string preset;
  std::string hf_overrides;
  int num_hidden_layers = 0;
  std::string load_format = "auto";
  uint64_t seed = 0;

  int data_parallel_size = 1;    // D
  int tensor_parallel_size = 1;  // T
  int num_moe_ranks = 1;         // E
  int stages = 2;  // R: batches alive in a group at once; 2 is the paper's dual-batch interleaving

  int max_num_batched_tokens = 2048;  // S: of one batch; longer prompts are cut over the cache
  int max_num_seqs = 64;              // sequences of one batch
  int max_model_len = 0;    // tokens of prompt and output; 0: the model's max_position_embeddings
  int kv_cache_tokens = 0;  // per group; 0: room for two of the longest sequences, or 2·R batches
  int batch_wait_ms = 30;   // longest wait of a small batch for more tokens while its group is busy
  int max_num_queued_reqs = 4096;  // waiting requests; more are refused
  int threads_per_device = 0;      // 0: cores / devices, at least 1
  int watchdog_timeout_s = 300;    // a batch that takes longer is reported and its requests fail

  std::string ops = "cpu";     // "cpu", or "ref": the scalar oracle, float32 throughout
  std::string dtype = "auto";  // activations: "auto" (the checkpoint's), "bfloat16", "float32"
  // Of weights at load: "none" (as stored), "int8" or "fp8" (W8A8).
  std::string quantization = "none";
  bool return_logits = false;  // results may carry full logits (asap run --dump-logits, tests)
  bool trace = false;
  int trace_events = 1 << 16;  // kept per agent, the newest
};

// The model that the configuration names.
ModelSource source_of(const EngineConfig& config);

// Ranges and combinations that need no model. Errors name the flag, the value and the remedy.
Status check_config(const EngineConfig& config);

// config.quantization, which check_config has accepted.
Quantization quantization_of(const EngineConfig& config);

std::string config_to_json(const EngineConfig& config);
Result<EngineConfig> config_from_json(const std::string& text);

// Everything fixed at start, derived from config and model alone.
struct EnginePlan {
  Geometry geometry;
  int max_model_len = 0;
  int kv_blocks = 0;         // per group
  int knee_tokens = 0;       // tokens of a batch from which an expert's GEMM is compute-bound
  int threads = 1;           // per device
  bool cores_short = false;  // fewer cores than busy threads: agents share a thread and never spin
  OpLimits limits;
};
// `cores`: cores of this machine. Errors: invalid (T does not divide the model, E exceeds the
// experts, ...).
Result<EnginePlan> make_plan(const EngineConfig& config, const ModelSpec& spec, int cores);

// Topology, window sizes and memory, as `--check-config` prints them.
std::string describe_plan(const EngineConfig& config, const ModelSpec& spec,
                          const EnginePlan& plan);

}  // namespace asap
