#include "asap/compute/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <thread>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr int kSpins = 2000;  // about 50 microseconds of `pause`
constexpr int kYields = 4;    // of a leader that may not spin, before it sleeps

// The gate word: round number (wraps) | stop | open | helpers that joined the round. Helpers change
// it only while it is open, the leader alone opens and closes it. A helper that sleeps through a
// whole lap of round numbers may take a new round for an old one: it misses work, nothing else.
constexpr uint32_t kJoinedMask = 0xFFFF;
constexpr uint32_t kOpen = 1u << 16;
constexpr uint32_t kStop = 1u << 17;
constexpr uint32_t kRound = 1u << 18;  // unit of the round number

constexpr uint32_t round_of(uint32_t gate) {
  return gate / kRound;
}
// Whether a helper that knows of round `seen` has something to do.
constexpr bool news(uint32_t gate, uint32_t seen) {
  return (gate & kStop) != 0 || ((gate & kOpen) != 0 && round_of(gate) != seen);
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Both may return early or wake nobody: callers look at the word again.
void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr,
          nullptr, 0);
}
void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

void name_and_pin(std::thread& thread, const std::vector<int>& cpus, int index) {
  pthread_setname_np(thread.native_handle(), "asap-team");
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpus[static_cast<size_t>(index) % cpus.size()], &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

}  // namespace

struct Team::Shared {
  // The work of a round: written by the leader while the gate is closed and nobody is inside.
  void (*fn)(void*, int, int) = nullptr;
  void* context = nullptr;
  int items = 0;
  bool spin = false;
  std::vector<std::thread> helpers;

  alignas(64) std::atomic<uint32_t> gate{0};
  std::atomic<uint32_t> sleepers{0};           // helpers that sleep on the gate, or are about to
  alignas(64) std::atomic<int> next{0};        // next item
  alignas(64) std::atomic<uint32_t> left{0};   // helpers that joined the round and are through
  std::atomic<uint32_t> leader_sleeps_for{0};  // value of `left` that the leader sleeps for, or 0

  void work(int thread) {
    for (int item = next.fetch_add(1, std::memory_order_relaxed); item < items;
         item = next.fetch_add(1, std::memory_order_relaxed)) {
      fn(context, item, thread);
    }
  }

  // Helper: waits for news.
  void await_news(uint32_t seen) {
    for (int i = 0; spin && i < kSpins; ++i) {
      if (news(gate.load(std::memory_order_relaxed), seen)) return;
      relax();
    }
    while (!news(gate.load(std::memory_order_relaxed), seen)) {
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      const uint32_t value = gate.load(std::memory_order_seq_cst);
      if (!news(value, seen)) sleep_while(gate, value);
      sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  // Helper: joins the open round, if it still is one that `seen` has not.
  bool join(uint32_t* seen) {
    uint32_t value = gate.load(std::memory_order_relaxed);
    while ((value & kStop) == 0 && news(value, *seen)) {
      if (gate.compare_exchange_weak(value, value + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
        *seen = round_of(value);
        return true;
      }
    }
    return false;
  }

  void help(int thread) {
    uint32_t seen = 0;
    while ((gate.load(std::memory_order_relaxed) & kStop) == 0) {
      await_news(seen);
      if (!join(&seen)) continue;
      work(thread);
      const uint32_t through = left.fetch_add(1, std::memory_order_seq_cst) + 1;
      if (through == leader_sleeps_for.load(std::memory_order_seq_cst)) wake_all(left);
    }
  }

  // Leader: a new value of the gate, seen by all.
  void set_gate(uint32_t value) {
    gate.store(value, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake_all(gate);
  }

  // Leader: waits until the `joined` helpers of the closed round are through.
  void await_helpers(uint32_t joined) {
    for (int i = 0; i < (spin ? kSpins : kYields); ++i) {
      if (left.load(std::memory_order_acquire) == joined) return;
      if (spin) {
        relax();
      } else {
        sched_yield();
      }
    }
    leader_sleeps_for.store(joined, std::memory_order_seq_cst);
    for (uint32_t now = left.load(std::memory_order_seq_cst); now != joined;
         now = left.load(std::memory_order_seq_cst)) {
      sleep_while(left, now);
    }
    leader_sleeps_for.store(0, std::memory_order_relaxed);
  }
};

Team::Team(int threads, std::vector<int> cpus, bool spin) : shared_(std::make_unique<Shared>()) {
  CHECK(threads >= 1 && threads <= static_cast<int>(kJoinedMask), "a team of {}", threads);
  shared_->spin = spin;
  for (int i = 1; i < threads; ++i) {
    shared_->helpers.emplace_back([shared = shared_.get(), i] { shared->help(i); });
    name_and_pin(shared_->helpers.back(), cpus, i);
  }
}

Team::~Team() {
  shared_->set_gate(kStop);
  for (std::thread& helper : shared_->helpers) helper.join();
}

int Team::threads() const {
  return 1 + static_cast<int>(shared_->helpers.size());
}

void Team::run(int items, void (*fn)(void*, int, int), void* context) {
  Shared& s = *shared_;
  if (s.helpers.empty() || items <= 1) {
    for (int item = 0; item < items; ++item) fn(context, item, 0);
    return;
  }
  const uint32_t gate = s.gate.load(std::memory_order_relaxed);
  CHECK((gate & kOpen) == 0, "a team with two leaders, or parallel_for inside parallel_for");
  s.fn = fn;
  s.context = context;
  s.items = items;
  s.next.store(0, std::memory_order_relaxed);
  s.left.store(0, std::memory_order_relaxed);
  s.set_gate((round_of(gate) + 1) * kRound | kOpen);
  s.work(0);
  s.await_helpers(s.gate.fetch_and(~kOpen, std::memory_order_relaxed) & kJoinedMask);
}

}  // namespace asap
