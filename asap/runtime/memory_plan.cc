#include "asap/runtime/memory_plan.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "asap/compute/attention_side.h"
#include "asap/model/inspect.h"
#include "asap/wire/layout.h"

namespace asap {

namespace {

namespace fs = std::filesystem;

constexpr const char* kRemedy =
    "take fewer --data-parallel-size (each group has its own copy of the attention weights), a "
    "smaller --kv-cache-tokens or --max-model-len, --quantization int8, or a larger machine";

// The number behind `key` in a file of lines "key number"; an empty key: the file's first. -1:
// none.
int64_t number_in(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t value = -1;
    if (!key.empty() && !(words >> name)) continue;
    if (name == key && words >> value) return value;
  }
  return -1;
}

// A control group's files, in either of the two hierarchies that systems have.
struct GroupFiles {
  const char* line;  // in /proc/self/cgroup, before the path
  const char* root;
  const char *limit, *used, *cached;  // `cached`: key in memory.stat
};
constexpr GroupFiles kGroupFiles[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "file"},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_cache"},
};

void narrow_to_group(const GroupFiles& files, const fs::path& group, MachineMemory* out) {
  const int64_t most = number_in(group / files.limit, "");
  const int64_t used = number_in(group / files.used, "");
  if (most <= 0 || used < 0 || static_cast<uint64_t>(most) >= out->total) return;
  // Pages of files leave when somebody needs the room.
  const int64_t cached = std::max<int64_t>(0, number_in(group / "memory.stat", files.cached));
  const auto free =
      static_cast<uint64_t>(std::max<int64_t>(0, most - std::max<int64_t>(0, used - cached)));
  out->total = static_cast<uint64_t>(most);
  out->available = std::min(out->available, free);
  out->owner = fmt::format("this control group ({})", (group / files.limit).string());
}

// The groups above one's own bind too.
void narrow_to_groups(MachineMemory* out) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    for (const GroupFiles& files : kGroupFiles) {
      const size_t at = line.find(files.line);
      if (at == line.npos) continue;
      const fs::path path = line.substr(at + std::strlen(files.line));
      const fs::path root = files.root;
      for (fs::path group = root / path.relative_path(); group != root;
           group = group.parent_path()) {
        narrow_to_group(files, group, out);
      }
      narrow_to_group(files, root, out);
      break;
    }
  }
}

std::string ranks_text(int count, const char* kind, const DeviceMemory& m) {
  return fmt::format("{} {} rank{} of {} (weights {}{}, windows {})", count, kind,
                     count == 1 ? "" : "s", bytes_text(m.total()), bytes_text(m.weights),
                     m.cache > 0 ? ", KV cache " + bytes_text(m.cache) : "", bytes_text(m.windows));
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
}

uint64_t MemoryPlan::total() const {
  return front + static_cast<uint64_t>(attention_ranks) * attention.total() +
         static_cast<uint64_t>(expert_ranks) * expert.total();
}

std::string MemoryPlan::text() const {
  return fmt::format("{}, {}", ranks_text(attention_ranks, "attention", attention),
                     ranks_text(expert_ranks, "expert", expert));
}

DType kept_type(const EngineConfig& config, const ModelSpec& spec, const ModelWeights* views) {
  if (config.ops == "ref") return DType::f32;
  if (config.quantization == "int8") return DType::i8;
  if (views == nullptr) return spec.stored_dtype == DType::bf16 ? DType::bf16 : DType::f32;
  for (const LayerViews& layer : views->layers) {
    if (layer.experts.empty()) continue;
    const TensorView& gate = layer.experts[0].gate;
    return gate.as_int8 ? DType::i8 : gate.fits_bf16() ? DType::bf16 : DType::f32;
  }
  return DType::bf16;
}

MemoryPlan memory_plan(const EngineConfig& config, const ModelSpec& spec, const EnginePlan& plan,
                       DType kept) {
  const Geometry& g = plan.geometry;
  MemoryPlan out;
  out.weights = kept;
  out.attention_ranks = g.groups * g.ranks;
  out.expert_ranks = g.expert_ranks;
  out.front = window_bytes(g, kFrontDevice);
  out.attention.windows = window_bytes(g, attention_device(g, 0, 0));
  out.expert.windows = window_bytes(g, expert_device(g, 0));
  if (config.ops == "priced") return out;  // neither weights nor cache
  const AttentionRankBytes attention = attention_rank_bytes(spec, g.ranks, kept);
  out.attention.weights = attention.total() - attention.embedding;
  out.attention.cache = static_cast<uint64_t>(plan.kv_blocks) * kKvBlock *
                        cache_bytes_per_token(spec, g.ranks, g.activation);
  out.expert.weights = expert_rank_bytes(spec, g.expert_ranks, kept);
  return out;
}

MachineMemory machine_memory() {
  const auto kilobytes = [](const char* key) {
    return static_cast<uint64_t>(std::max<int64_t>(0, number_in("/proc/meminfo", key))) << 10;
  };
  MachineMemory out;
  out.total = kilobytes("MemTotal:") + kilobytes("SwapTotal:");
  out.available = kilobytes("MemAvailable:") + kilobytes("SwapFree:");
  out.owner = "this machine";
  narrow_to_groups(&out);
  return out;
}

Status check_memory(const MemoryPlan& plan, const MachineMemory& machine) {
  if (machine.total == 0) return {};  // not known here
  const uint64_t all = plan.total();
  const std::string has = fmt::format("{} has {}, {} of it available", machine.owner,
                                      bytes_text(machine.total), bytes_text(machine.available));
  if (all > machine.total || all - plan.cache() > machine.available) {
    return fail(Code::invalid, "not enough memory: the instance needs {}: {}; {}; {}",
                bytes_text(all), plan.text(), has, kRemedy);
  }
  if (all > machine.available) {
    spdlog::warn("memory may run out: the instance needs up to {}: {}; {}; {}", bytes_text(all),
                 plan.text(), has, kRemedy);
  }
  return {};
}

int64_t out_of_memory_kills() {
  return number_in("/proc/vmstat", "oom_kill");
}

}  // namespace asap
