// Random arrivals, cancellations, losses and delays: whatever happens, the books agree and
// everything that was admitted finishes. A failure names its seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "asap/base/prng.h"
#include "asap/policy/policy_harness.h"

namespace asap {
namespace {

SchedulerLimits random_limits(Prng& prng) {
  SchedulerLimits limits;
  limits.groups = 1 + static_cast<int>(prng.below(3));
  limits.stages = 1 + static_cast<int>(prng.below(3));
  limits.max_batch_tokens = prng.chance(0.1) ? 1 + static_cast<int>(prng.below(3))
                                             : 64 + static_cast<int>(prng.below(1000));
  limits.max_batch_seqs = 1 + static_cast<int>(prng.below(12));
  limits.kv_blocks = 10 + static_cast<int>(prng.below(60));
  limits.knee_tokens = static_cast<int>(prng.below(400));
  limits.max_queued = 1 + static_cast<int>(prng.below(40));
  limits.max_queued_tokens = 500 + static_cast<int64_t>(prng.below(20'000));
  limits.cost = {prng.uniform() * 1e-3, 1, prng.uniform() * 50};
  limits.kappa_ns = prng.chance(0.3) ? 0 : prng.uniform() * 1e6;
  limits.pass_bound = Duration::millis(static_cast<int64_t>(prng.below(500)));
  limits.pairing = prng.chance(0.3) ? Pairing::paper : Pairing::refill;
  limits.exclusive_tokens = 50 + static_cast<int>(prng.below(1000));
  limits.partner_wait = Duration::millis(static_cast<int64_t>(prng.below(40)));
  if (prng.chance(0.3)) limits.max_shared_tokens = 20 + static_cast<int>(prng.below(500));
  limits.share_backlog = prng.chance(0.8);
  limits.chain = limits.pairing == Pairing::refill && prng.chance(0.6);
  if (limits.chain && prng.chance(0.7)) {
    limits.split_lone_tokens = 2 + static_cast<int>(prng.below(600));
  }
  return limits;
}

// Of the synchronous engines.
SchedulerLimits random_lockstep(Prng& prng) {
  SchedulerLimits limits = random_limits(prng);
  limits.lockstep = true;
  limits.stages = 1;
  limits.cut_to_share = prng.chance(0.5);
  limits.max_shared_tokens = limits.max_batch_tokens;
  if (!limits.cut_to_share) limits.max_batch_tokens += static_cast<int>(prng.below(5000));
  return limits;
}

class Fuzz {
 public:
  explicit Fuzz(uint64_t seed, bool lockstep = false)
      : prng_(seed),
        limits_(lockstep ? random_lockstep(prng_) : random_limits(prng_)),
        harness_(limits_),
        lost_(groups(), false) {}

  void step() {
    now_ = now_ + Duration::micros(static_cast<int64_t>(prng_.below(3000)));
    const double dice = prng_.uniform();
    if (dice < 0.35) {
      arrive();
    } else if (dice < 0.38) {
      harness_.cancel(prng_.below(next_id_));
    } else if (dice < 0.382) {
      toggle_group(static_cast<int>(prng_.below(groups())));
    } else {
      finish_one();
    }
    harness_.start(now_);
    harness_.check();
  }

  // Nothing more arrives. True if all that is left finishes, with no more steps than its tokens.
  bool drain() {
    for (int g = 0; g < limits_.groups; ++g) {
      if (lost_[static_cast<size_t>(g)]) toggle_group(g);
    }
    for (int64_t round = 0; !harness_.live().empty() && round < 1'000'000; ++round) {
      harness_.start(now_);
      if (harness_.running().empty()) {
        const Instant wake = harness_.policy().wake_at();
        if (wake == Instant::never()) return false;  // work waits, and nothing will ever start it
        now_ = wake;
        continue;
      }
      now_ = now_ + Duration::millis(1);
      finish_one();
      if (round % 64 == 0) harness_.check();
    }
    harness_.check();
    return harness_.live().empty() && harness_.policy().kv_usage() == 0;
  }

  const PolicyHarness& harness() const { return harness_; }
  int64_t admitted() const { return admitted_; }

 private:
  size_t groups() const { return static_cast<size_t>(limits_.groups); }

  void arrive() {
    const int s = limits_.max_batch_tokens;
    int prompt = 1 + static_cast<int>(prng_.below(200));
    if (prng_.chance(0.1)) prompt = s + static_cast<int>(prng_.below(3)) - 1;  // S-1, S, S+1
    if (prng_.chance(0.1)) prompt = 1 + static_cast<int>(prng_.below(4000));
    const int max_tokens = prng_.chance(0.5) ? 1 : 1 + static_cast<int>(prng_.below(30));
    if (harness_.arrive(next_id_++, std::max(prompt, 1), max_tokens, now_)) ++admitted_;
  }

  void finish_one() {
    const auto running = harness_.running();
    if (running.empty()) return;
    const auto [group, stage] = running[prng_.below(running.size())];
    harness_.finish(group, stage);
  }

  void toggle_group(int group) {
    const size_t g = static_cast<size_t>(group);
    if (lost_[g]) {
      harness_.bring_back(group);
    } else {
      for (const uint64_t id : harness_.lose(group)) {
        if (prng_.chance(0.7)) harness_.requeue(id, now_);
      }
    }
    lost_[g] = !lost_[g];
  }

  Prng prng_;
  const SchedulerLimits limits_;
  PolicyHarness harness_;
  std::vector<bool> lost_;  // [D]
  Instant now_{0};
  uint64_t next_id_ = 1;
  int64_t admitted_ = 0;
};

class SchedulerPropertyTest : public testing::TestWithParam<bool> {};  // lockstep

TEST_P(SchedulerPropertyTest, BooksAgreeAndEverythingFinishes) {
  int64_t admitted = 0;
  int64_t finished = 0;
  int64_t tokens = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Fuzz fuzz(seed, GetParam());
    for (int step = 0; step < 10'000; ++step) fuzz.step();
    ASSERT_TRUE(fuzz.drain());
    admitted += fuzz.admitted();
    finished += fuzz.harness().finished;
    tokens += fuzz.harness().tokens_computed;
  }
  fmt::print("{} admitted, {} finished, {} tokens computed\n", admitted, finished, tokens);
  EXPECT_GT(finished, admitted / 2);
}

// Equal seeds, equal runs.
TEST_P(SchedulerPropertyTest, IsDeterministic) {
  Fuzz a(7, GetParam());
  Fuzz b(7, GetParam());
  for (int step = 0; step < 5000; ++step) {
    a.step();
    b.step();
    ASSERT_EQ(a.harness().tokens_computed, b.harness().tokens_computed) << "step " << step;
  }
}

// Short prompts keep arriving as fast as they are served. A long one among them must start after at
// most kappa times its cost more waiting than they, whatever the pace.
TEST_P(SchedulerPropertyTest, LongPromptsDoNotStarve) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Prng prng(seed);
    SchedulerLimits limits;
    limits.stages = GetParam() ? 1 : 1 + static_cast<int>(prng.below(3));
    limits.lockstep = GetParam();
    limits.cut_to_share = prng.chance(0.5);
    limits.max_shared_tokens = 256;
    limits.max_batch_tokens = 256;
    limits.max_batch_seqs = 4;
    limits.kv_blocks = 64;
    limits.kappa_ns = 1e6;  // 3000 tokens weigh 3 s
    limits.max_queued = 64;
    limits.pass_bound = Duration::millis(200);
    PolicyHarness harness(limits);
    constexpr uint64_t kLong = 1'000'000;
    Instant now{0};
    Instant arrived = Instant::never();
    Instant started = Instant::never();
    for (uint64_t id = 1; started == Instant::never() && id < 60'000; ++id) {
      now = now + Duration::millis(1);
      if (id > 100 && arrived == Instant::never() && harness.arrive(kLong, 3000, 1, now)) {
        arrived = now;
      }
      (void)harness.arrive(id, 20 + static_cast<int>(prng.below(100)),
                           1 + static_cast<int>(prng.below(20)), now);
      const auto running = harness.running();
      if (!running.empty()) {
        const auto [group, stage] = running[prng.below(running.size())];
        harness.finish(group, stage);
      }
      harness.start(now);
      harness.check();
      const auto found = harness.live().find(kLong);
      if (found != harness.live().end()) started = found->second.started;
    }
    ASSERT_NE(started, Instant::never());
    // 3 s for its key, pass_bound, and the time to drain what lives in the group and the queue.
    EXPECT_LT(started - arrived, Duration::millis(3000 + 200 + 1500));
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, SchedulerPropertyTest, testing::Bool(), [](const auto& param) {
  return param.param ? "lockstep" : "asynchronous";
});

}  // namespace
}  // namespace asap
