#include "asap/runtime/profile_transfer.h"

#include "asap/base/check.h"
#include "asap/model/inspect.h"
#include "asap/model/model_source.h"

namespace asap {

namespace {

// Per MoE layer and token; only their ratios between two models matter.
struct LayerWork {
  double linear = 0;         // parameters that every token meets on the attention side
  double pair = 0;           // of a (query, key) pair
  double token_experts = 0;  // parameters of a token's experts
  double all_experts = 0;
};

LayerWork work_of(const ModelSpec& spec) {
  CHECK(spec.layers > 0 && spec.moe_layers() > 0);
  const ParameterCount count = count_parameters(spec);
  int windowed = 0;
  for (int layer = 0; layer < spec.layers; ++layer) windowed += spec.window_of(layer) > 0 ? 1 : 0;
  const double expert = 3.0 * spec.hidden * spec.moe_intermediate;
  LayerWork out;
  out.linear = static_cast<double>(count.attention) / spec.layers +
               static_cast<double>(count.shared + count.router) / spec.moe_layers();
  out.pair = 1.0 * spec.heads * (spec.qk_head() + spec.v_head_width()) *
             (1.0 - static_cast<double>(windowed) / (spec.layers + 1));
  out.token_experts = expert * spec.top_k;
  out.all_experts = expert * spec.experts;
  return out;
}

}  // namespace

CostProfile transfer_profile(CostProfile p, const ModelSpec& from, const ModelSpec& to) {
  const LayerWork a = work_of(from), b = work_of(to);
  const double hidden = static_cast<double>(to.hidden) / from.hidden;
  const double slope = b.token_experts / a.token_experts;
  // b holds the collectives of the reference too. Written as what is added: nothing for equal work.
  p.b += (p.b - p.tpc) * (b.linear / a.linear - 1) + p.tpc * (hidden - 1);
  p.tpc *= hidden;
  p.g *= b.pair / a.pair;
  p.m *= slope;
  p.tau *= b.all_experts / a.all_experts / slope;
  for (double* per_token : {&p.c1, &p.r1, &p.d1, &p.q1}) *per_token *= hidden;
  p.launch *= static_cast<double>(to.experts) / from.experts;
  return p;
}

Result<CostProfile> profile_for(const CostProfile& profile, const ModelSpec& spec) {
  if (profile.preset.empty() || spec.moe_layers() == 0) return profile;
  ModelSource source;
  source.preset = profile.preset;
  source.hf_overrides = profile.hf_overrides;
  ASAP_ASSIGN(const ModelSpec measured, load_spec(source));
  return transfer_profile(profile, measured, spec);
}

}  // namespace asap
