#include "asap/runtime/priced.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "asap/base/check.h"
#include "asap/base/prng.h"
#include "asap/runtime/clock.h"

namespace asap {

namespace {

class SleepMeter final : public Meter {
 public:
  explicit SleepMeter(double scale) : scale_(scale) {}

  void spend(Duration time) override {
    if (time.ns == 0) return;
    const Instant now = monotonic_now();
    const Instant from = now - busy_until_ < kCatchUp ? busy_until_ : now;
    busy_until_ = from + Duration{static_cast<int64_t>(static_cast<double>(time.ns) * scale_)};
    if (busy_until_ <= now) return;
    const timespec until{busy_until_.ns / 1'000'000'000, busy_until_.ns % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }

 private:
  // A thread that was idle for longer starts afresh.
  static constexpr Duration kCatchUp = Duration::micros(300);

  const double scale_;
  Instant busy_until_{0};
};

// Mean 1, coefficient of variation `cv`, a function of `key` alone.
double lognormal(uint64_t key, double cv) {
  Prng prng(key);
  const double sigma = std::sqrt(std::log1p(cv * cv));
  const double u = std::max(prng.uniform(), 1e-12);
  const double v = prng.uniform();
  const double normal = std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * M_PI * v);
  return std::exp(sigma * normal - sigma * sigma / 2.0);
}

Duration half(Duration time) {
  return {time.ns / 2};
}

}  // namespace

std::unique_ptr<Meter> make_sleep_meter(double scale) {
  return std::make_unique<SleepMeter>(scale);
}

// ---------------------------------------------------------------- attention

PricedAttention::PricedAttention(const Geometry& geometry, const CostProfile& profile, Meter& meter)
    : geometry_(geometry), layout_(geometry), profile_(profile), meter_(meter) {}

void PricedAttention::begin(const StageBatch&) {
  meter_.spend(Duration::seconds(profile_.batch * 1e-3));
}

Payload PricedAttention::project(const StageBatch& b) {
  meter_.spend(half(profile_.collectives(b.tokens, geometry_.ranks)));
  return {};
}

void PricedAttention::attend(const StageBatch& b) {
  meter_.spend(profile_.attention(b.tokens, b.pairs, geometry_.ranks) +
               half(profile_.collectives(b.tokens, geometry_.ranks)));
}

Duration PricedAttention::half_all_to_all(const StageBatch& b) const {
  return half(profile_.all_to_all(b.largest_tokens, geometry_.ranks));
}

DispatchShare PricedAttention::share(const StageBatch& b, int e) {
  if (e == 0) {
    meter_.spend(geometry_.lockstep ? half_all_to_all(b)
                                    : profile_.dispatch(b.tokens, geometry_.ranks));
  }
  DispatchShare share;
  share.unsent = b.slice.size();
  return share;
}

void PricedAttention::combine(const StageBatch& b) {
  for (int e = 0; e < geometry_.expert_ranks; ++e) {
    combine_rows(b.window, layout_, b.item, e, b.slice.size());  // checks the answer
  }
  meter_.spend(geometry_.lockstep ? half_all_to_all(b) : profile_.add(b.tokens, geometry_.ranks));
}

void PricedAttention::sample(const StageBatch&, int, const SequenceCommand&, ResultEntry* out) {
  out->token = 0;
}

// ---------------------------------------------------------------- experts

PricedExperts::PricedExperts(const Geometry& geometry, int rank, const CostProfile& profile,
                             bool super_kernel, uint64_t seed, Meter& receive, Meter& compute,
                             Meter& send)
    : geometry_(geometry),
      rank_(rank),
      profile_(profile),
      super_kernel_(super_kernel),
      seed_(seed),
      receive_(receive),
      compute_(compute),
      send_(send) {}

void PricedExperts::index(std::span<const DispatchView> views, ExpertItem& item) {
  item.rank_begin.assign(1, 0);
  for (const DispatchView& view : views) {
    item.rank_begin.push_back(item.rank_begin.back() + view.header->tokens);
  }
  item.tokens = item.rank_begin.back();
  if (!geometry_.lockstep) {
    receive_.spend(profile_.receive(item.tokens, geometry_.expert_ranks));
  }
}

// How much more or less than its share of the item's rows falls on this rank's experts.
double PricedExperts::load(const ItemId& item) const {
  const bool uneven = geometry_.lockstep || profile_.skew_async;
  if (profile_.expert_skew_cv <= 0 || geometry_.expert_ranks == 1 || !uneven) return 1;
  uint64_t key = seed_;
  for (const uint64_t part : {item.seq, static_cast<uint64_t>(item.group * 64 + item.stage),
                              static_cast<uint64_t>(rank_)}) {
    key = (key ^ part) * 0x9E3779B97F4A7C15u;
    key ^= key >> 29;
  }
  return lognormal(key, profile_.expert_skew_cv);
}

void PricedExperts::experts(ExpertPiece& piece) {
  Duration time = profile_.experts(piece.tokens, geometry_.expert_ranks);
  time.ns = static_cast<int64_t>(static_cast<double>(time.ns) * load(piece.segments[0].item->id));
  if (!super_kernel_ && !geometry_.lockstep)
    time = time + Duration::seconds(profile_.launch * 1e-3);
  compute_.spend(time);
}

void PricedExperts::narrow(const ExpertPiece& piece) {
  if (geometry_.lockstep) return;
  for (const ExpertSegment& segment : piece.segments) {
    send_.spend(profile_.combine(segment.count, geometry_.ranks));
  }
}

}  // namespace asap
