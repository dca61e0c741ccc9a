// asap bench load: how fast a checkpoint becomes packed weights, and how much memory that takes:
// one attention rank and one expert rank, one after the other in this process, as their workers do
// it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/rig_flags.h"
#include "asap/compute/arena.h"
#include "asap/compute/team.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/local_instance.h"
#include "asap/runtime/memory_plan.h"
#include "asap/runtime/runner.h"
#include "asap/runtime/scheduling.h"

namespace asap {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e-9;

struct LoadFlags {
  EngineConfig config;
  int rounds = 3;
  bool cold = false;
  std::string output_file;
};

struct Loaded {
  double seconds = 0, cpu_seconds = 0;
  double memory_seconds = 0;  // of the system, for as much zeroed memory: what no packing beats
  double disk_seconds = 0;    // --cold: of reading the files alone
  double peak_bytes = 0;      // of this process, since it began to load
  double huge_bytes = 0;      // in huge pages, of the packed ones
  double packed_bytes = 0;
};

// A number of kB from a file of /proc, 0 without it.
double kilobytes_of(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string word;
  while (in >> word) {
    double value = 0;
    if (word == key + ":" && in >> value) return 1024 * value;
  }
  return 0;
}

// Drops the files from the system's cache, so that they come from the disk.
void forget(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

double read_seconds(const std::vector<std::string>& files) {
  std::vector<char> buffer(size_t{8} << 20);
  const Instant begin = monotonic_now();
  for (const std::string& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    while (::read(fd, buffer.data(), buffer.size()) > 0) {
    }
    ::close(fd);
  }
  return (monotonic_now() - begin).to_seconds();
}

// Takes `bytes` of memory as weights do, and touches them with all threads.
double memory_seconds(uint64_t bytes, Team& team) {
  constexpr uint64_t kStep = 4096;
  constexpr uint64_t kItem = uint64_t{2} << 20;
  const Instant begin = monotonic_now();
  Arena arena;
  std::byte* data = arena.allocate(bytes);
  team.parallel_for(static_cast<int>((bytes + kItem - 1) / kItem), [&](int item, int) {
    const uint64_t first = static_cast<uint64_t>(item) * kItem;
    for (uint64_t at = first; at < std::min(bytes, first + kItem); at += kStep) {
      std::atomic_ref(data[at]).store(std::byte{1}, std::memory_order_relaxed);
    }
  });
  return (monotonic_now() - begin).to_seconds();
}

Result<Loaded> load_once(const LoadFlags& flags, const ModelSpec& spec, Ops& ops) {
  Loaded out;
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(flags.config), spec));
  if (flags.cold) {
    forget(weights.checkpoint.files());
    out.disk_seconds = read_seconds(weights.checkpoint.files());
    forget(weights.checkpoint.files());
  }
  std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM starts again from what is used now
  const double before = kilobytes_of("/proc/self/status", "VmRSS");
  const Instant begin = monotonic_now();
  const Instant cpu_begin = cpu_now();
  const auto show = show_loading();
  const auto progress = [&, done = 0](int) mutable {
    weights.checkpoint.release();
    show(++done, 2 * spec.layers);
  };
  const auto attention = load_attention_weights(spec, weights.checkpoint, weights.views, 0,
                                                flags.config.tensor_parallel_size, ops, progress);
  const auto experts = load_expert_weights(spec, weights.checkpoint, weights.views, 0,
                                           flags.config.num_moe_ranks, ops, progress);
  out.seconds = (monotonic_now() - begin).to_seconds();
  out.cpu_seconds = (cpu_now() - cpu_begin).to_seconds();
  out.packed_bytes = static_cast<double>(attention->arena.used() + experts->arena.used());
  out.peak_bytes = kilobytes_of("/proc/self/status", "VmHWM") - before;
  out.huge_bytes = kilobytes_of("/proc/self/smaps_rollup", "AnonHugePages");
  return out;
}

double median_of(const std::vector<Loaded>& rounds, double Loaded::*field) {
  std::vector<double> values;
  for (const Loaded& round : rounds) values.push_back(round.*field);
  return median(values);
}

Json report(const LoadFlags& flags, const std::vector<Loaded>& rounds) {
  const double packed = rounds.front().packed_bytes;
  const double seconds = median_of(rounds, &Loaded::seconds);
  const double cpu = median_of(rounds, &Loaded::cpu_seconds);
  const double disk = median_of(rounds, &Loaded::disk_seconds);
  const double memory = median_of(rounds, &Loaded::memory_seconds);
  const double peak = median_of(rounds, &Loaded::peak_bytes) / packed;
  const double huge = median_of(rounds, &Loaded::huge_bytes) / packed;
  const std::string model = source_of(flags.config).name();
  std::printf(
      "%s, T=%d, E=%d, quantization %s, %d thread(s), files %s, median of %d\n"
      "packed %.2f GB in %.2f s: %.2f GB/s, %.2f GB/s per core's second; peak memory %.3f of it, "
      "in huge pages %.2f\n"
      "as much zeroed memory from the system, by the same threads: %.2f s\n",
      model.c_str(), flags.config.tensor_parallel_size, flags.config.num_moe_ranks,
      flags.config.quantization.c_str(), flags.config.threads_per_device,
      flags.cold ? "from disk" : "as cached", flags.rounds, kGiga * packed, seconds,
      kGiga * packed / seconds, kGiga * packed / cpu, peak, huge, memory);
  Json out = {{"model", model},
              {"tensor_parallel_size", flags.config.tensor_parallel_size},
              {"num_moe_ranks", flags.config.num_moe_ranks},
              {"quantization", flags.config.quantization},
              {"threads", flags.config.threads_per_device},
              {"rounds", flags.rounds},
              {"packed_bytes", packed},
              {"seconds", seconds},
              {"cpu_seconds", cpu},
              {"memory_seconds", memory},
              {"peak_over_packed", peak},
              {"huge_over_packed", huge}};
  if (flags.cold) {
    std::printf("reading the files and nothing else: %.2f s\n", disk);
    out["read_seconds"] = disk;
  }
  return out;
}

// Of the two ranks that are loaded, their weights alone.
Status check_weights_fit(const EngineConfig& config, const ModelSpec& spec) {
  ASAP_ASSIGN(const EngineConfig resolved, resolve_scheduling(config));
  ASAP_ASSIGN(const EnginePlan plan, make_plan(resolved, spec, config.threads_per_device));
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(config), spec));
  MemoryPlan memory = memory_plan(resolved, spec, plan, kept_type(resolved, spec, &weights.views));
  memory.attention_ranks = memory.expert_ranks = 1;
  memory.attention = {.weights = memory.attention.weights};
  memory.expert = {.weights = memory.expert.weights};
  memory.front = 0;
  return check_memory(memory, machine_memory());
}

Status bench(LoadFlags flags, const Platform& platform) {
  ASAP_TRY(check_model(flags.config));
  ASAP_TRY(check_config(flags.config));
  if (flags.config.threads_per_device == 0) {
    flags.config.threads_per_device = static_cast<int>(available_cpus().size());
  }
  ASAP_ASSIGN(const ModelSpec spec, load_engine_spec(flags.config));
  ASAP_TRY(check_tensor_parallel(spec, flags.config.tensor_parallel_size));
  ASAP_TRY(resolve_isa(spec, &flags.config));
  ASAP_TRY(check_weights_fit(flags.config, spec));
  catch_interrupts();
  Team team(flags.config.threads_per_device);
  const auto ops = platform.make_ops(flags.config.ops, flags.config.isa, team);
  std::vector<Loaded> rounds;
  for (int round = 0; round < flags.rounds; ++round) {
    ASAP_ASSIGN(Loaded loaded, load_once(flags, spec, *ops));
    loaded.memory_seconds = memory_seconds(static_cast<uint64_t>(loaded.packed_bytes), team);
    rounds.push_back(loaded);
    if (interrupted()) return fail(Code::unavailable, "interrupted");
  }
  return write_figures(flags.output_file, report(flags, rounds));
}

}  // namespace

std::function<int()> add_bench_load(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<LoadFlags>();
  EngineConfig& config = flags->config;
  config.num_moe_ranks = 1;
  add_model_flags(app, config);
  app.add_option("--tensor-parallel-size,--tp", config.tensor_parallel_size,
                 "T: ranks of a group; rank 0 is loaded")
      ->capture_default_str();
  app.add_option("--num-moe-ranks,--num-ffn-ranks", config.num_moe_ranks,
                 "E: devices that share the experts; rank 0 is loaded")
      ->capture_default_str();
  add_kernel_flags(app, config);
  app.add_flag("--cold", flags->cold,
               "Drop the files from the system's cache before each round, and read them once "
               "without packing, to compare");
  add_result_flags(app, flags->rounds, flags->output_file);
  return [flags, &platform] {
    const Status status = bench(*flags, platform);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
