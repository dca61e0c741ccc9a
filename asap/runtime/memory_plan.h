// MemoryPlan: what an instance takes of the machine's memory, known before any of it is taken, and
// whether the machine has it. Without that a model that is too large would die while it loads, and
// its workers would be started again and again.
#pragma once

#include <cstdint>
#include <string>

#include "asap/base/result.h"
#include "asap/model/weights.h"
#include "asap/runtime/config.h"

namespace asap {

// Bytes of one device.
struct DeviceMemory {
  uint64_t weights = 0;  // packed; the embedding is read from the file
  uint64_t cache = 0;
  uint64_t windows = 0;
  uint64_t total() const { return weights + cache + windows; }
};

// At least this: scratch of kernels and agents comes on top.
struct MemoryPlan {
  DType weights = DType::bf16;     // how most matrices are kept
  DeviceMemory attention, expert;  // the largest rank of each kind
  int attention_ranks = 1, expert_ranks = 1;
  uint64_t front = 0;  // its window

  uint64_t total() const;
  uint64_t cache() const { return static_cast<uint64_t>(attention_ranks) * attention.cache; }
  // "2 attention ranks of 1.20 GB (weights 1.00 GB, ...), ..."
  std::string text() const;
};

// How the kernels keep most matrices of the model once loaded: as the views of its weights say;
// without those (null) as its configuration does.
DType kept_type(const EngineConfig& config, const ModelSpec& spec, const ModelWeights* views);
MemoryPlan memory_plan(const EngineConfig& config, const ModelSpec& spec, const EnginePlan& plan,
                       DType kept);

// What processes may use here.
struct MachineMemory {
  uint64_t total = 0;      // memory and swap, or less if a control group allows less
  uint64_t available = 0;  // of it now, without pushing others out
  std::string owner;       // "this machine", "this control group (memory.max)"
};
MachineMemory machine_memory();

// Refuses (invalid) what can never fit, and weights that do not fit now; warns of the rest, as
// cache is taken when it is used. The message has the sizes and what would make them smaller.
Status check_memory(const MemoryPlan& plan, const MachineMemory& machine);

// Processes that the kernel has ended for want of memory, on the whole machine; -1: not known.
int64_t out_of_memory_kills();

// "1.50 GB"
std::string bytes_text(uint64_t bytes);

}  // namespace asap
