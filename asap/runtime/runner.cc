#include "asap/runtime/runner.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "asap/runtime/clock.h"

namespace asap {

namespace {

constexpr Duration kSpin = Duration::micros(50);
constexpr Duration kSleep = Duration::millis(100);
constexpr Duration kTick = Duration::seconds(1);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

int step(std::span<Agent* const> agents, Instant now) {
  int done = 0;
  for (Agent* agent : agents) done += agent->do_work(now);
  return done;
}

// Until the earliest time that an agent waits for, but no longer than a tick.
Duration sleep_time(std::span<Agent* const> agents, Instant now) {
  Instant until = now + kSleep;
  for (const Agent* agent : agents) until = std::min(until, agent->wake_at());
  return std::max(until - now, Duration{0});
}

}  // namespace

void run_agents(std::span<Agent* const> agents, Doorbell& bell, const std::atomic<uint32_t>& stop,
                const RunOptions& options) {
  pin_thread(options.cpus);
  Instant last_work = monotonic_now();
  Instant last_tick = last_work;
  const auto tick = [&](Instant now) {
    last_tick = now;
    if (options.on_tick) options.on_tick();
  };
  while (stop.load(std::memory_order_relaxed) == 0) {
    const Instant now = monotonic_now();
    if (options.beats != nullptr) {  // its only writer: no read-modify-write needed
      options.beats->store(options.beats->load(std::memory_order_relaxed) + 1,
                           std::memory_order_relaxed);
    }
    if (step(agents, now) > 0) {
      last_work = now;
      if (now - last_tick > kTick) tick(now);
      continue;
    }
    if (options.spin && now - last_work < kSpin) {
      relax();
      continue;
    }
    const uint32_t ticket = bell.prepare();
    if (step(agents, now) > 0 || stop.load(std::memory_order_relaxed) != 0) {
      bell.abandon();
      continue;
    }
    bell.sleep(ticket, sleep_time(agents, now));
    last_work = monotonic_now();  // spin a little after a wake: more is likely to come
    if (last_work - last_tick > kSleep) tick(last_work);
  }
}

std::vector<int> available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

bool pin_thread(std::span<const int> cpus) {
  if (cpus.empty()) return true;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

}  // namespace asap
