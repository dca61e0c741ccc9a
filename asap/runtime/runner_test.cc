// The driver of agents: it keeps appointments that nobody rings for.
#include "asap/runtime/runner.h"

#include <gtest/gtest.h>

#include "asap/runtime/clock.h"

namespace asap {
namespace {

// Has work once, at a time of its own.
struct Appointment final : Agent {
  explicit Appointment(Instant when) : due(when) {}
  int do_work(Instant now) override {
    if (now < due) return 0;
    kept = now;
    stop = 1;
    return 1;
  }
  Instant wake_at() const override { return due; }
  std::string name() const override { return "appointment"; }
  Instant due;
  Instant kept{0};
  std::atomic<uint32_t> stop{0};
};

// A batch that waits for more tokens starts when its patience ends (--batch-wait-ms), although no
// doorbell rings; the driver's own tick is 100 ms.
TEST(Runner, WakesWhenAnAgentAsksForIt) {
  Doorbell bell;
  Appointment agent(monotonic_now() + Duration::millis(15));
  Agent* const agents[] = {&agent};
  run_agents(agents, bell, agent.stop, {});
  EXPECT_GE(agent.kept, agent.due);
  EXPECT_LT((agent.kept - agent.due).to_millis(), 60);
}

}  // namespace
}  // namespace asap
