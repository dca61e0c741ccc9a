#include "asap/compute/team.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace asap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Every way to make a team: its size, and whether it spins.
class TeamTest : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  Team team_{std::get<0>(GetParam()), {}, std::get<1>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(All, TeamTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5), ::testing::Bool()));

TEST_P(TeamTest, CallsEveryItemOnce) {
  EXPECT_EQ(team_.threads(), size());
  for (const int items : {0, -1, 1, 2, 7, 1000}) {
    // Plain ints: what the items wrote must be visible after the call (ThreadSanitizer watches).
    std::vector<int> calls(static_cast<size_t>(std::max(items, 0)));
    team_.parallel_for(items, [&](int item, int thread) {
      ++calls[static_cast<size_t>(item)];
      EXPECT_TRUE(thread >= 0 && thread < size());
    });
    for (const int n : calls) EXPECT_EQ(n, 1);
  }
}

TEST_P(TeamTest, EachThreadTakesItemsInAscendingOrderAndOneAtATime) {
  std::vector<int> last(static_cast<size_t>(size()), -1);  // by thread; a race if shared
  std::vector<std::atomic<int>> inside(static_cast<size_t>(size()));
  team_.parallel_for(2000, [&](int item, int thread) {
    const auto t = static_cast<size_t>(thread);
    EXPECT_EQ(inside[t].fetch_add(1), 0);
    EXPECT_GT(item, last[t]);
    last[t] = item;
    inside[t].fetch_sub(1);
  });
}

TEST_P(TeamTest, ManyShortRoundsOneAfterAnother) {
  int64_t sum = 0;
  std::vector<int> values(8);
  for (int round = 0; round < 3000; ++round) {
    const int items = round % 9;
    // The second call of a round reads what other threads wrote in the first.
    team_.parallel_for(items, [&](int item, int) { values[static_cast<size_t>(item)] = round; });
    std::vector<int> copies(values.size());
    team_.parallel_for(items, [&](int item, int) {
      const auto from = static_cast<size_t>(items - 1 - item);
      copies[from] = values[from];
    });
    for (int i = 0; i < items; ++i) {
      ASSERT_EQ(copies[static_cast<size_t>(i)], round);
      ++sum;
    }
  }
  EXPECT_GT(sum, 0);
}

TEST_P(TeamTest, WaitsForTheSlowestItem) {
  for (const int slow : {0, 5, 9}) {
    std::vector<int> done(10);
    team_.parallel_for(10, [&](int item, int) {
      if (item == slow) std::this_thread::sleep_for(milliseconds(5));
      done[static_cast<size_t>(item)] = 1;
    });
    EXPECT_EQ(done, std::vector<int>(10, 1));
  }
}

// As many items as threads, each of which waits for all the others: passes only if every thread
// takes part, also after the helpers have gone to sleep.
TEST_P(TeamTest, WakesEveryHelper) {
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(milliseconds(round));
    std::atomic<int> arrived{0};
    const auto deadline = steady_clock::now() + std::chrono::seconds(20);
    team_.parallel_for(size(), [&](int, int) {
      arrived.fetch_add(1);
      while (arrived.load() < size() && steady_clock::now() < deadline) std::this_thread::yield();
    });
    ASSERT_EQ(arrived.load(), size());
    ASSERT_LT(steady_clock::now(), deadline) << "a helper slept on";
  }
}

TEST_P(TeamTest, ThreadsMayLeadInTurn) {
  int sum = 0;
  for (int i = 0; i < 20; ++i) {
    std::thread leader([&] {
      std::vector<int> parts(50);
      team_.parallel_for(50, [&](int item, int) { parts[static_cast<size_t>(item)] = item; });
      for (const int part : parts) sum += part;
    });
    leader.join();
  }
  EXPECT_EQ(sum, 20 * 49 * 50 / 2);
}

TEST_P(TeamTest, ConstAndMutableFunctionsAreCalledInPlace) {
  std::atomic<int> calls{0};
  const auto constant = [&calls](int, int) { calls.fetch_add(1); };
  team_.parallel_for(10, constant);
  struct Counter {
    std::atomic<int> calls{0};
    void operator()(int, int) { calls.fetch_add(1); }
  } counter;
  team_.parallel_for(10, counter);
  EXPECT_EQ(calls.load(), 10);
  EXPECT_EQ(counter.calls.load(), 10);
}

TEST(Team, DiesAtOnceWhateverItDid) {
  for (int i = 0; i < 200; ++i) {
    Team team(1 + i % 4, {}, i % 8 >= 4);
    std::atomic<int> calls{0};
    for (int round = 0; round < i % 3; ++round) {
      team.parallel_for(5, [&](int, int) { calls.fetch_add(1); });
    }
    EXPECT_EQ(calls.load(), 5 * (i % 3));
  }
}

// The round numbers of the gate wrap after 2^14 rounds; a team outlives that.
TEST(Team, OutlivesTheRoundCounter) {
  Team team(2, {}, true);
  std::atomic<int> calls{0};
  for (int round = 0; round < 40000; ++round) {
    team.parallel_for(2, [&](int, int) { calls.fetch_add(1, std::memory_order_relaxed); });
  }
  EXPECT_EQ(calls.load(), 80000);
}

TEST(Team, NamesAndPinsItsHelpers) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  Team team(3, {cpu}, false);
  std::atomic<int> arrived{0};
  std::mutex mutex;
  std::multiset<std::string> helpers;
  team.parallel_for(3, [&](int, int thread) {
    arrived.fetch_add(1);
    while (arrived.load() < 3) std::this_thread::yield();
    if (thread == 0) return;
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    const int at = sched_getcpu();
    const std::lock_guard lock(mutex);
    helpers.insert(name);
    EXPECT_EQ(at, cpu);
  });
  EXPECT_EQ(helpers, (std::multiset<std::string>{"asap-team", "asap-team"}));
}

TEST(TeamDeathTest, NestedUseIsABug) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Team team(2);
        team.parallel_for(2, [&](int, int) { team.parallel_for(2, [](int, int) {}); });
      },
      "parallel_for inside parallel_for");
}

}  // namespace
}  // namespace asap
