// The driver of agents: it keeps appointments that nobody rings for; and where devices run.
#include "asap/runtime/runner.h"

#include <gtest/gtest.h>

#include <thread>

#include "asap/runtime/clock.h"
#include "asap/runtime/placement.h"

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

Geometry devices(int groups, int ranks, int experts) {
  Geometry g{};
  g.groups = groups;
  g.ranks = ranks;
  g.expert_ranks = experts;
  return g;
}

Topology machine(const std::string& description) {
  auto topology = Topology::synthetic(description);
  EXPECT_TRUE(topology) << description;
  return *topology;
}

std::vector<int> nodes_by_device(const Placement& placement) {
  std::vector<int> out;
  for (const Placement::Device& device : placement.devices) {
    out.push_back(device.nodes.empty() ? -1 : device.nodes.front());
  }
  return out;
}

TEST(Placement, CountsCoresNotHardwareThreads) {
  const Topology smt = machine("numa:2 core:8 pu:2");
  EXPECT_EQ(smt.cores(), 16);
  ASSERT_EQ(smt.nodes().size(), 2u);
  EXPECT_EQ(smt.nodes()[1].cpus.size(), 16u);
  EXPECT_GE(Topology::system().cores(), 1);
  size_t cpus = 0;
  const Topology here = Topology::system();
  for (const Topology::Node& node : here.nodes()) cpus += node.cpus.size();
  EXPECT_EQ(cpus, available_cpus().size());
  EXPECT_FALSE(Topology::synthetic("nothing"));
}

TEST(Placement, BindsNothingOnOneNode) {
  const auto placement = place_devices("auto", machine("numa:1 core:8 pu:2"), devices(2, 1, 2));
  ASSERT_TRUE(placement);
  for (const Placement::Device& device : placement->devices) EXPECT_TRUE(device.cpus.empty());
  EXPECT_NE(placement->describe(devices(2, 1, 2)).find("not bound"), std::string::npos);
}

TEST(Placement, SpreadsDevicesOverNodes) {
  const Geometry g = devices(2, 1, 2);
  const auto placement = place_devices("auto", machine("numa:2 core:8 pu:2"), g);
  ASSERT_TRUE(placement);
  EXPECT_EQ(nodes_by_device(*placement), (std::vector<int>{-1, 0, 1, 0, 1}));
  for (size_t i = 1; i < placement->devices.size(); ++i) {
    EXPECT_EQ(placement->devices[i].cpus.size(), 16u);  // shared with the other device there
    EXPECT_EQ(placement->devices[i].threads, 8);        // twice an even share of 8 cores
    EXPECT_FALSE(placement->devices[i].own);
  }
  EXPECT_NE(placement->describe(g).find("cores 0-15 (node 0)"), std::string::npos)
      << placement->describe(g);
  const auto none = place_devices("nobind", machine("numa:2 core:8 pu:2"), g);
  ASSERT_TRUE(none);
  EXPECT_EQ(nodes_by_device(*none), (std::vector<int>{-1, -1, -1, -1, -1}));
}

TEST(Placement, KeepsRanksOfAGroupTogether) {
  const auto placement = place_devices("auto", machine("numa:2 core:8 pu:1"), devices(2, 2, 2));
  ASSERT_TRUE(placement);
  EXPECT_EQ(nodes_by_device(*placement), (std::vector<int>{-1, 0, 0, 1, 1, 0, 1}));
  // One group that a node has no room for is spread.
  const auto large = place_devices("auto", machine("numa:2 core:8 pu:1"), devices(1, 4, 2));
  ASSERT_TRUE(large);
  EXPECT_EQ(nodes_by_device(*large), (std::vector<int>{-1, 0, 1, 0, 1, 0, 1}));
}

TEST(Placement, GivesSeveralNodesToFewDevices) {
  const auto placement = place_devices("auto", machine("numa:4 core:4 pu:1"), devices(1, 1, 1));
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->devices[1].nodes, (std::vector<int>{0, 1}));
  EXPECT_EQ(placement->devices[2].nodes, (std::vector<int>{2, 3}));
  EXPECT_EQ(placement->devices[2].cpus.front(), 8);
  EXPECT_EQ(placement->devices[2].threads, 8);
}

TEST(Placement, TakesListsAsGiven) {
  const Geometry g = devices(1, 1, 1);
  const Topology two = machine("numa:2 core:4 pu:1");
  const auto placement = place_devices("0-2|4,6", two, g);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->devices[1].cpus, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(placement->devices[1].threads, 3);
  EXPECT_EQ(placement->devices[2].cpus, (std::vector<int>{4, 6}));
  EXPECT_EQ(placement->devices[2].nodes, (std::vector<int>{1}));
  EXPECT_TRUE(placement->devices[2].own);
  for (const char* wrong : {"", "0-", "3-1", "a", "0,|1", "0;1", "0|", "-1|2", "99999999999|0"}) {
    EXPECT_FALSE(check_cpu_bind(wrong)) << wrong;
  }
  const auto few = place_devices("0-3", two, g);
  ASSERT_FALSE(few);
  EXPECT_NE(few.error().message.find("1 lists of cores for 2 devices"), std::string::npos);
  const auto foreign = place_devices("0|8", two, g);
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("core 8"), std::string::npos);
}

// What a bound thread starts is bound too, so that a whole worker is.
TEST(Placement, BindsThreadsThatStartLater) {
  Placement::Device device;
  device.cpus = {available_cpus().back()};
  std::vector<int> seen;
  std::thread([&] {
    EXPECT_TRUE(bind_to(device));
    std::thread([&] { seen = available_cpus(); }).join();
  }).join();
  EXPECT_EQ(seen, device.cpus);
}

}  // namespace
}  // namespace asap
