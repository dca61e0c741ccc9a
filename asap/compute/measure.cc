#include "asap/compute/measure.h"

#include <algorithm>

#include "asap/base/check.h"
#include "asap/compute/isa.h"
#include "asap/compute/kernels/table.h"

namespace asap {

namespace {

const KernelTable& kernels_of(std::string_view isa) {
  const KernelTable* table = find_kernels(isa);
  CHECK(table != nullptr, "no kernels for {}", isa);
  return *table;
}

double at_share(const std::vector<double>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(share * last + 0.5)];
}

}  // namespace

FmaCeiling::FmaCeiling(Team& team, std::string_view isa, Clock clock)
    : kernels_(kernels_of(isa)), team_(team), clock_(clock) {}

double FmaCeiling::flops_per_second() {
  constexpr int64_t kSteps = 1 << 20;
  const Instant begin = clock_();
  team_.parallel_for(team_.threads(), [&](int, int) {
    // The result is used, so that the loop stays.
    CHECK(kernels_.fma_loop(kSteps) >= 0);
  });
  const double seconds = (clock_() - begin).to_seconds();
  return 2.0 * kFmaChains * kSteps * kernels_.width * team_.threads() / seconds;
}

double median(std::vector<double> values) {
  CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Spread spread_of(std::vector<double> values) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return {at_share(values, 0.5), at_share(values, 0.25), at_share(values, 0.75)};
}

}  // namespace asap
