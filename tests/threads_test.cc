// Every agent on a thread of its own, over shared-memory windows, as in worker processes with a
// core per agent: the triple stream of the expert ranks runs for real. Bits are those of the
// one-thread driver. Run under ThreadSanitizer (preset tsan), this is the race test of the
// protocol.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "asap/runtime/clock.h"
#include "asap/runtime/runner.h"
#include "asap/transport/link_p2p.h"
#include "asap/transport/link_shm.h"
#include "asap/transport/shared_memory.h"
#include "tests/golden_support.h"

namespace asap::test {
namespace {

// Threads that run until the end of the scope.
class Drivers {
 public:
  void add(Agent& agent, Doorbell& bell, bool spin) {
    threads_.emplace_back([this, &agent, &bell, spin] {
      Agent* const agents[] = {&agent};
      RunOptions options;
      options.spin = spin;
      run_agents(agents, bell, stop_, options);
    });
  }
  ~Drivers() {
    stop_ = 1;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<uint32_t> stop_{0};
  std::vector<std::thread> threads_;
};

struct Windows {
  std::vector<int> fds;
  std::unique_ptr<Link> link;

  explicit Windows(const Geometry& g) {
    for (int device = 0; device < g.devices(); ++device) {
      fds.push_back(*create_shared_memory("asap-test", window_bytes(g, device)));
    }
    link = std::move(*make_link_shm(g, fds));
  }
  ~Windows() {
    link.reset();
    for (const int fd : fds) close(fd);
  }
};

// Submits all prompts and waits for their tokens.
std::vector<std::vector<int32_t>> answers(Scheduler& scheduler, Doorbell& bell,
                                          const std::vector<Prompt>& prompts) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<int32_t>> out(prompts.size());
  size_t finished = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EngineRequest request;
    request.prompt = prompts[i].tokens;
    request.sampling.max_tokens = prompts[i].max_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    const auto on_token = [&, i](const TokenEvent& event) {
      const std::lock_guard lock(mutex);
      out[i].push_back(event.token);
      finished += event.finish != Finish::none ? 1 : 0;
      changed.notify_one();
    };
    EXPECT_TRUE(scheduler.submit(std::move(request), on_token, monotonic_now()));
    bell.ring();
  }
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(120),
                               [&] { return finished == prompts.size(); }));
  return out;
}

std::vector<Prompt> mixed_prompts(int vocab) {
  Prng prng(5);
  std::vector<Prompt> out(24);
  for (Prompt& prompt : out) {
    const uint64_t length = 1 + prng.below(70);
    for (uint64_t i = 0; i < length; ++i) {
      prompt.tokens.push_back(static_cast<int32_t>(prng.below(static_cast<uint64_t>(vocab))));
    }
    prompt.max_tokens = 1 + static_cast<int>(prng.below(3));
  }
  return out;
}

struct How {
  const char* name;
  bool spin;
  bool blocking;  // over link_p2p
};

class ThreadsTest : public testing::TestWithParam<How> {};

TEST_P(ThreadsTest, AgentsOnThreadsGiveTheBitsOfOneThread) {
  const bool spin = GetParam().spin;
  EngineConfig config;
  config.model = golden_directory("deepseek_v32");
  config.data_parallel_size = 2;
  config.tensor_parallel_size = 2;
  config.num_moe_ranks = 2;
  config.max_num_batched_tokens = 64;
  config.kv_cache_tokens = 8192;
  const ModelSpec spec = *load_spec(config.model);
  const EnginePlan plan = *make_plan(config, spec, 1);
  const Geometry& g = plan.geometry;
  Windows windows(g);
  if (GetParam().blocking) windows.link = make_link_p2p(g, std::move(windows.link));
  Link& link = *windows.link;

  std::vector<std::unique_ptr<Team>> teams;
  std::vector<std::unique_ptr<Ops>> ops;
  for (int device = 1; device < g.devices(); ++device) {
    teams.push_back(std::make_unique<Team>(2, std::vector<int>{}, spin));
    ops.push_back(make_ops_cpu(*teams.back()));
    ops.back()->reserve(spec, plan.limits);
  }
  const LocalWeights weights = *load_local_weights(config, spec, *ops[0]);

  Scheduler scheduler(config, plan, spec, link.attach(kFrontDevice), {});
  std::vector<std::unique_ptr<AttentionAgent>> attention;
  std::vector<std::unique_ptr<ExpertRank>> experts;
  Drivers drivers;
  drivers.add(scheduler, link.doorbell(kFrontDevice), spin);
  for (int group = 0; group < g.groups; ++group) {
    for (int t = 0; t < g.ranks; ++t) {
      const int device = attention_device(g, group, t);
      attention.push_back(std::make_unique<AttentionAgent>(
          g, spec, group, t,
          std::make_unique<AttentionRows>(g, t, weights.attention[static_cast<size_t>(t)],
                                          plan.kv_blocks, *ops[static_cast<size_t>(device - 1)]),
          link.attach(device), Tracer{}));
      drivers.add(*attention.back(), link.doorbell(device), spin);
    }
  }
  for (int e = 0; e < g.expert_ranks; ++e) {
    const int device = expert_device(g, e);
    const Tracer none[3] = {};
    experts.push_back(std::make_unique<ExpertRank>(
        g, e,
        std::make_unique<ExpertRows>(g, weights.experts[static_cast<size_t>(e)],
                                     *ops[static_cast<size_t>(device - 1)]),
        link, plan.queue, none));
    drivers.add(experts.back()->receive(), link.doorbell(device), spin);
    drivers.add(experts.back()->compute(), experts.back()->compute_bell(), spin);
    drivers.add(experts.back()->send(), experts.back()->send_bell(), spin);
  }

  const std::vector<Prompt> prompts = mixed_prompts(spec.vocab);
  const auto got = answers(scheduler, link.doorbell(kFrontDevice), prompts);
  Bench bench({.model = config.model, .t = 2, .e = 2});
  const std::vector<Outcome> expected = bench.run(prompts, {});
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(got[i], expected[i].tokens) << i;
}

std::string name_of(const testing::TestParamInfo<How>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Idle, ThreadsTest,
                         testing::Values(How{"Spin", true, false}, How{"Sleep", false, false},
                                         How{"SleepBlocking", false, true}),
                         name_of);

}  // namespace
}  // namespace asap::test
