// Team: the persistent threads of one device. The leader (the thread that calls parallel_for) takes
// part in the work; helpers spin briefly and then sleep on a futex, so a team of one costs nothing
// and an idle team gives its cores away.
//
// The leader never waits for a helper that has not started: a helper joins a round while it is
// open, and the leader, out of items, closes it and waits for those that joined. Where cores are
// short a helper that the system has not scheduled yet therefore delays nobody.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

namespace asap {

class Team {
 public:
  // `threads` >= 1 in all, the leader included. `cpus`: cores to pin helper i (1..threads-1) to,
  // modulo its size; empty = not pinned. Pinning to a core that this process may not use is
  // ignored. spin: whether threads spin before sleeping (false where cores are short).
  explicit Team(int threads, std::vector<int> cpus = {}, bool spin = false);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const;
  // Calls fn(item, thread) for every item in [0, items), each once; items are taken in ascending
  // order from one shared counter, `thread` in [0, threads()) is never used twice at a time.
  // Returns when all are done; what the items wrote is visible to the caller. Only one thread at a
  // time may lead, and fn may not call parallel_for of the same team. No allocation, no lock.
  template <typename Fn>
  void parallel_for(int items, Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    run(
        items,
        [](void* context, int item, int thread) { (*static_cast<F*>(context))(item, thread); },
        const_cast<std::remove_const_t<F>*>(&fn));
  }

 private:
  void run(int items, void (*fn)(void*, int, int), void* context);
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace asap
