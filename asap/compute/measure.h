// What op benchmarks measure with: the ceiling of the machine, and statistics of repetitions.
//
// Absolute times move with the clock frequency and the neighbours. A loop of fused multiply-adds
// that runs between the repetitions of an op, on the same threads, moves with them; the ratio
// stays.
#pragma once

#include <string_view>
#include <vector>

#include "asap/base/units.h"
#include "asap/compute/team.h"

namespace asap {

struct KernelTable;

using Clock = Instant (*)();  // the caller's: wall time, or CPU time of the process

class FmaCeiling {
 public:
  // `isa` as Ops::isa() has it. `team` must outlive this.
  FmaCeiling(Team& team, std::string_view isa, Clock clock);
  // Operations per second of one pass over all threads, a few milliseconds; the seconds are those
  // of the clock.
  double flops_per_second();

 private:
  const KernelTable& kernels_;
  Team& team_;
  const Clock clock_;
};

// Of an odd number of values the middle one, of an even number the upper of the two.
double median(std::vector<double> values);

// Median and quartiles.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> values);

}  // namespace asap
