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
#include "asap/policy/cost_profile.h"
#include "asap/policy/expert_queue.h"
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
  int num_moe_ranks = 0;         // E; 0: 1, or D·T where experts share the attention devices
  int stages = 0;                // R: batches alive in a group at once; 0: as the scheduler has it
  int regions = 0;               // items of a group that may lie at the experts at once; 0: R

  // S: of one batch; longer prompts are cut over the cache. `default` scheduler: prompts share a
  // batch up to so many tokens, a longer one runs alone and whole. 0: 2048, there 3072.
  int max_num_batched_tokens = 0;
  int max_num_seqs = 64;    // sequences of one batch
  int max_model_len = 0;    // tokens of prompt and output; 0: the model's max_position_embeddings
  int kv_cache_tokens = 0;  // per group; 0: room for two of the longest sequences, or 2·R batches

  // Scheduling (scheduling.h). -1 and "": as the scheduler has it.
  std::string scheduler = "asap";     // "asap", "paper"; in lockstep: "default", "chunked"
  int chunked_prefill_size = 0;       // chunked: tokens of a group in a step; 0: 8192
  std::string pairing;                // "refill", "paper"
  std::string queue_order;            // "aged", "fcfs"
  double queue_kappa = -1;            // aged: seconds of age that a second of cost weighs
  std::string expert_order;           // "round_robin", "oldest", "merge": items of equal layer
  int batch_wait_ms = -1;             // longest wait of a small batch for more tokens
  int partner_wait_ms = -1;           // paper: of a large one for its partners'
  int exclusive_tokens = -1;          // paper: longer prompts are alone in their group
  int max_shared_batch_tokens = -1;   // of a batch of several prompts; 0: as max_num_batched_tokens
  int chain_prefill = -1;             // 1: parts of a prompt run on several stages at once
  int split_lone_tokens = -1;         // a longer prompt that is alone is spread over the stages
  bool length_aware_batching = true;  // false: first come, first served, until the batch is full

  int max_num_queued_reqs = 4096;  // waiting requests; more are refused
  // Their prompt tokens. 0: as 64 of the longest sequences for each group; -1: no limit.
  int max_num_queued_tokens = 0;
  double max_queued_s = 0;        // their work, in seconds at the measured speed; 0: no limit
  int threads_per_device = 0;     // 0: 2 · cores / devices, from 1 to all cores
  std::string cpu_bind = "auto";  // cores of the devices: "auto", "nobind" or lists (placement.h)
  // A worker that shows no sign of life for so long is killed and started again; so is the group of
  // a batch that takes half as long again.
  int watchdog_timeout_s = 300;
  int max_restarts = 5;  // of a group or an expert rank within the window; then it stays away
  int restart_window_s = 120;
  std::string crash_dir;  // crash reports go here; "": the runtime folder's

  std::string link = "onesided";  // or "p2p": blocking point-to-point messages, to compare with
  bool overlap = true;            // an expert rank receives, computes and sends at the same time
  bool super_kernel = true;       // one kernel call for all experts of an item; else one per expert

  // "cpu"; "ref": the scalar oracle, float32 throughout; "priced": no maths, only the time that
  // `profile` says, slowed down `time_scale` times.
  std::string ops = "cpu";
  std::string isa = "auto";  // kernels of "cpu": compute/isa.h; make_engine() puts the choice here
  std::string profile;       // cost profile: a built-in's name or a file; "": none
  double time_scale = 1;
  bool expert_skew = true;     // priced: expert ranks are as unevenly loaded as the profile says
  std::string dtype = "auto";  // activations: "auto" (the checkpoint's), "bfloat16", "float32"
  // Of weights at load: "none" (as stored), "int8" or "fp8" (W8A8).
  std::string quantization = "none";
  bool return_logits = false;  // results may carry full logits (asap run --dump-logits, tests)
  bool trace = false;
  int trace_events = 1 << 16;  // kept per agent, the newest
};

// "default" or "chunked": attention and experts on the same devices, all groups in step.
bool in_lockstep(const EngineConfig& config);
// The model that the configuration names.
ModelSource source_of(const EngineConfig& config);

// Ranges and combinations that need no model. Errors name the flag, the value and the remedy.
Status check_config(const EngineConfig& config);
// --max-model-len against what the model was trained for. Benchmarks of shapes go beyond it; who
// serves or runs prompts asks. Errors: invalid.
Status check_context(const EngineConfig& config, const ModelSpec& spec);

// config.quantization, which check_config has accepted.
Quantization quantization_of(const EngineConfig& config);

std::string config_to_json(const EngineConfig& config);
Result<EngineConfig> config_from_json(const std::string& text);

// The model as this instance runs it. Priced kernels select no keys, so DSA's exchange is off.
Result<ModelSpec> load_engine_spec(const EngineConfig& config);

// Everything fixed at start, derived from config and model alone.
struct EnginePlan {
  Geometry geometry;
  int max_model_len = 0;
  int kv_blocks = 0;    // per group
  int knee_tokens = 0;  // tokens of a batch from which an expert's GEMM is compute-bound
  CostModel cost;       // of a batch, for the scheduler: the profile's, or from the model's shape
  CostProfile profile;  // if config.profile names one
  ExpertQueueLimits queue;   // order of items on an expert rank
  int threads = 1;           // per device
  bool cores_short = false;  // fewer cores than busy threads: agents share a thread and never spin
  OpLimits limits;
};
// Puts the table of kernels that this machine is to use into `config->isa`, where it says "auto" or
// "measure". Errors: invalid (this machine lacks the one that is named).
Status resolve_isa(const ModelSpec& spec, EngineConfig* config);

// `cores`: cores of this machine. Errors: invalid (T does not divide the model, E exceeds the
// experts, ...).
Result<EnginePlan> make_plan(const EngineConfig& config, const ModelSpec& spec, int cores);

// Topology, window sizes and memory, as `--check-config` prints them.
std::string describe_plan(const EngineConfig& config, const ModelSpec& spec,
                          const EnginePlan& plan);

}  // namespace asap
