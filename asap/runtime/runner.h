// The real driver of agents: a thread that steps some agents until told to stop, and how it idles.
//
// With a core per agent it polls with `pause` for 50 microseconds before it sleeps: a flag costs a
// tenth of a microsecond, a futex wake twenty. Where cores are short it sleeps at once, so that
// idle agents cost nothing.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "asap/runtime/agent.h"
#include "asap/transport/doorbell.h"

namespace asap {

struct RunOptions {
  bool spin = false;
  std::vector<int> cpus;                   // pin the thread to these cores; empty: not pinned
  std::atomic<uint64_t>* beats = nullptr;  // grows with every turn; may be null
  // Called about ten times a second while idle and at least once a second otherwise; may be null.
  std::function<void()> on_tick;
};

// Returns when `stop` is non-zero. `bell` is rung by whoever feeds one of the agents.
void run_agents(std::span<Agent* const> agents, Doorbell& bell, const std::atomic<uint32_t>& stop,
                const RunOptions& options);

// The cores that this process may use.
std::vector<int> available_cpus();
// False if the system refused; the thread then runs where it did.
bool pin_thread(std::span<const int> cpus);

}  // namespace asap
