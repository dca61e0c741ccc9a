#include "asap/compute/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "asap/base/check.h"
#include "asap/compute/kernels/table.h"

namespace asap {

namespace {

struct Isa {
  const char* name;
  bool (*usable)();
  const KernelTable* (*table)();
};

#if defined(__x86_64__)

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_vnni() {
  return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
bool has_bf16() {
  return has_vnni() && __builtin_cpu_supports("avx512bf16");
}

// Linux gives the registers of AMX to a process that asks; its threads inherit them.
bool has_amx() {
  static const bool permitted = [] {
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return has_vnni() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
           __builtin_cpu_supports("amx-int8") && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  }();
  return permitted;
}

const KernelTable* avx512vnni() {
  static const KernelTable table = [] {
    KernelTable out = kernels_avx512;
    out.isa = "avx512vnni";
    out.int8 = int8_avx512vnni.form;
    out.gemm_int8 = int8_avx512vnni.gemm;
    out.quantize_int8 = int8_avx512vnni.quantize;
    return out;
  }();
  return &table;
}
const KernelTable* avx512bf16() {
  static const KernelTable table = [] {
    KernelTable out = *avx512vnni();
    out.isa = "avx512bf16";
    out.gemm_bf16 = gemm_avx512bf16;
    return out;
  }();
  return &table;
}
const KernelTable* amx() {
  static const KernelTable table = [] {
    KernelTable out = *avx512vnni();  // int8 rows of both have the same form
    out.isa = "amx";
    out.gemm_bf16 = gemm_amx;
    out.int8 = int8_amx.form;
    out.gemm_int8 = int8_amx.gemm;
    return out;
  }();
  return &table;
}

#endif

constexpr Isa kIsas[] = {
    {"scalar", [] { return true; }, [] { return &kernels_scalar; }},
#if defined(__x86_64__)
    {"avx2", has_avx2, [] { return &kernels_avx2; }},
    {"avx512", has_avx512, [] { return &kernels_avx512; }},
    {"avx512vnni", has_vnni, avx512vnni},
    {"avx512bf16", has_bf16, avx512bf16},
    {"amx", has_amx, amx},
#endif
};

// Operations per second of one pass of a loop, in any unit.
double rate_of(float (*loop)(int64_t), int operations, Clock clock) {
  constexpr int64_t kSteps = 4000;
  const Instant begin = clock();
  CHECK(loop(kSteps) >= 0);  // used, so that the loop stays
  return operations / (clock() - begin).to_seconds();
}

}  // namespace

const KernelTable* find_kernels(std::string_view isa) {
  const KernelTable* widest = nullptr;
  for (const Isa& i : kIsas) {
    if (isa == i.name) return i.usable() ? i.table() : nullptr;
    const std::string_view name = i.name;
    if (name != "avx512bf16" && name != "amx" && i.usable()) widest = i.table();
  }
  return isa.empty() ? widest : nullptr;
}

std::vector<std::string> machine_isas() {
  std::vector<std::string> out;
  for (const Isa& i : kIsas) {
    if (i.usable()) out.emplace_back(i.name);
  }
  return out;
}

double bf16_dot_speedup(Clock clock) {
#if defined(__x86_64__)
  if (!has_bf16()) return 0;
  double fma = 0, dot = 0;
  for (int i = 0; i < 30; ++i) {  // the best of each: what disturbs a pass makes it slower
    fma = std::max(fma, rate_of(kernels_avx512.fma_loop, 1, clock));
    dot = std::max(dot, rate_of(dot_loop_avx512bf16, 2, clock));
  }
  return dot / fma;
#else
  (void)clock;
  return 0;
#endif
}

Result<std::string> choose_isa(std::string_view wanted, bool bf16_rows, Clock clock) {
  if (wanted == "measure" && bf16_rows && bf16_dot_speedup(clock) >= kChooseBf16Dot) {
    return "avx512bf16";
  }
  if (wanted == "auto" || wanted == "measure") return find_kernels("")->isa;
  if (!wanted.empty() && find_kernels(wanted) != nullptr) return std::string(wanted);
  return fail(Code::invalid, "--isa is \"{}\"; this machine has auto, measure, {}", wanted,
              fmt::join(machine_isas(), ", "));
}

}  // namespace asap
