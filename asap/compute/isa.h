// The tables of kernels that this build has, which of them this machine can run, and the choice.
//
// Results differ between tables, so all processes of an instance use the one that its front chose.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/compute/measure.h"

namespace asap {

struct KernelTable;

// Null if this build or this machine has no such table. "" is the one that no measurement is needed
// for: the widest of those that multiply in float32.
const KernelTable* find_kernels(std::string_view isa);

// What this machine can run, the narrowest first.
std::vector<std::string> machine_isas();

// How many times the speed of float32 multiply-adds the bf16 dot instruction (vdpbf16ps) has here;
// 0 without one. Takes two milliseconds.
double bf16_dot_speedup(Clock clock);

// From how many on it is chosen: it is half as fast on some cores and twice on others, so a noisy
// measurement does not change the choice.
inline constexpr double kChooseBf16Dot = 1.3;

// The table for `wanted`: a name; "auto", the widest that multiplies in float32; or "measure": the
// same, but with `bf16_rows`, where rows of activations may be rounded to bf16, avx512bf16 if its
// instruction is fast here. Tables that round rows are not taken unasked: no whole model has been
// compared with its reference on them yet.
Result<std::string> choose_isa(std::string_view wanted, bool bf16_rows, Clock clock);

}  // namespace asap
