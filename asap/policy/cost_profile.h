// CostProfile: what each step of a layer costs on some machine, as a few coefficients. `ops_priced`
// takes its times from it, the virtual driver its clock, the scheduler its cost model. A profile is
// a TOML file (runtime/profile.h): one of a known machine, or measured here by `asap calibrate`.
//
// Units: milliseconds, and kilo-tokens (1 k = 1024), both per layer; `t` is a batch's tokens, `w`
// its Σ new·(new + 2·past) over the sequences in k². A group of T ranks divides a batch, E expert
// ranks divide an item; the coefficients hold for T = ref_tp and E = ref_ep.
//
//   attention  a0 + collectives + ((b - tpc)·t + g·w)·ref_tp/T
//   collectives  tpc·t·((T-1)/T) / ((ref_tp-1)/ref_tp), nothing at T = 1
//   experts    m0 + m·max(tau, t)·ref_ep/E          tau: the knee
//   dispatch   c0 + c1·t·ref_tp/T                   on the attention rank
//   receive    r0 + r1·t·ref_ep/E                   on the expert rank
//   combine    d0 + d1·t·ref_tp/T                   expert rank, per item
//   add        q0 + q1·t·ref_tp/T                   attention rank
//   all-to-all of a lockstep engine, dispatch and combine together:
//              sync0 + syncf·(c1 + d1 + q1)·t_max·ref_tp/T, t_max of the largest group
#pragma once

#include <string>

#include "asap/base/units.h"
#include "asap/policy/cost.h"

namespace asap {

struct CostProfile {
  std::string name;
  std::string source;        // where the numbers come from, one line
  std::string preset;        // model the coefficients hold for; may be empty
  std::string hf_overrides;  // on top of the preset
  int ref_tp = 1, ref_ep = 1;
  double a0 = 0, b = 0, g = 0, tpc = 0;
  double m0 = 0, m = 0, tau = 0;
  double c0 = 0, c1 = 0, r0 = 0, r1 = 0;
  double d0 = 0, d1 = 0, q0 = 0, q1 = 0;
  double sync0 = 0, syncf = 1;
  double launch = 0;          // host dispatch of a layer's expert kernels without the super kernel
  double request = 0;         // fixed per request, outside the instance's devices
  double batch = 0;           // fixed per batch: embedding, head, sampling
  double latency = 0;         // of a message
  double expert_skew_cv = 0;  // of the load of expert ranks, lognormal, per (step, layer, rank)
  bool skew_async = false;    // apply it to asynchronous engines too

  // Of the whole batch on one rank of a group, without collectives. `pairs`: w in tokens².
  Duration attention(int tokens, double pairs, int ranks) const;
  Duration collectives(int tokens, int ranks) const;
  Duration experts(int tokens, int expert_ranks) const;
  Duration dispatch(int tokens, int ranks) const;
  Duration receive(int tokens, int expert_ranks) const;
  Duration combine(int tokens, int ranks) const;
  Duration add(int tokens, int ranks) const;
  Duration all_to_all(int largest_tokens, int ranks) const;

  // What the scheduler needs of it, in seconds per layer.
  CostModel cost_model(int ranks) const;
  // Tokens from which an item's time grows.
  int knee_tokens() const;
};

inline constexpr double kKiloTokens = 1024;

}  // namespace asap
