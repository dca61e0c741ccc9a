// Priced kernels: they take the time that a cost profile says and do no maths, so that an instance
// of any size can be driven on a few cores, in virtual time (sim/) or slowed down (--time-scale).
// Protocol, policies and agents are the engine's own; only rows do not exist.
#pragma once

#include <memory>

#include "asap/policy/cost_profile.h"
#include "asap/runtime/attention_compute.h"
#include "asap/runtime/expert_compute.h"

namespace asap {

// Takes time: sleeps, or moves a virtual clock.
class Meter {
 public:
  virtual ~Meter() = default;
  virtual void spend(Duration time) = 0;
};

// Sleeps `scale` times what is spent. One per thread. A sleep that lasted too long shortens the
// next one, so that errors of the operating system's timer do not add up.
std::unique_ptr<Meter> make_sleep_meter(double scale);

class PricedAttention final : public AttentionCompute {
 public:
  PricedAttention(const Geometry& geometry, const CostProfile& profile, Meter& meter);

  void begin(const StageBatch& b) override;
  Payload project(const StageBatch& b) override;
  void store(const StageBatch&) override {}
  Payload select(const StageBatch&) override { return {}; }
  void attend(const StageBatch& b) override;
  Payload partial(const StageBatch&, int) override { return {}; }
  void reduce(const StageBatch&) override {}
  void dense(const StageBatch&) override {}
  void route(const StageBatch&) override {}
  DispatchShare share(const StageBatch& b, int e) override;
  void shared(const StageBatch&) override {}
  void combine(const StageBatch& b) override;
  Payload last_rows(const StageBatch&) override { return {}; }
  Payload logits(const StageBatch&) override { return {}; }
  void sample(const StageBatch& b, int i, const SequenceCommand& c, ResultEntry* out) override;
  Payload row_logits() const override { return {}; }

 private:
  // In lockstep one blocking all-to-all for dispatch and combine, as long as the largest group's.
  Duration half_all_to_all(const StageBatch& b) const;

  const Geometry geometry_;
  const AttentionLayout layout_;
  const CostProfile profile_;
  Meter& meter_;
};

class PricedExperts final : public ExpertCompute {
 public:
  // A meter for each of the three agents; they may be one. `seed`: of the ranks' uneven load.
  PricedExperts(const Geometry& geometry, int rank, const CostProfile& profile, bool super_kernel,
                uint64_t seed, Meter& receive, Meter& compute, Meter& send);

  int piece_tokens() const override { return geometry_.max_batch_tokens * geometry_.groups; }
  void reserve(ExpertItem&) const override {}
  void reserve(ExpertPiece&) const override {}
  void index(std::span<const DispatchView> views, ExpertItem& item) override;
  void experts(ExpertPiece& piece) override;
  void narrow(const ExpertPiece& piece) override;
  const std::byte* rows(const ExpertPiece&, int) const override { return nullptr; }

 private:
  double load(const ItemId& item) const;

  const Geometry geometry_;
  const int rank_;
  const CostProfile profile_;
  const bool super_kernel_;
  const uint64_t seed_;
  Meter &receive_, &compute_, &send_;
};

}  // namespace asap
