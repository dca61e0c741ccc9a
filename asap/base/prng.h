// A small seeded generator (SplitMix64). Every random choice of tests, links and samplers comes
// from one of these, so a printed seed replays a run. A counter-based draw (`mix`) needs no state:
// the sampler uses it so that a token depends on (seed, position) alone.
#pragma once

#include <cstdint>

namespace asap {

constexpr uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class Prng {
 public:
  explicit constexpr Prng(uint64_t seed) : state_(mix(seed)) {}

  constexpr uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ull;
    return mix(state_);
  }
  // Uniform in [0, bound); bound > 0. The bias of the modulo is below 2^-32 for the bounds used
  // here.
  constexpr uint64_t below(uint64_t bound) { return next() % bound; }
  // Uniform in [0, 1).
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  constexpr bool chance(double p) { return uniform() < p; }

 private:
  uint64_t state_;
};

}  // namespace asap
