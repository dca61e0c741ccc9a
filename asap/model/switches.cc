#include "asap/model/switches.h"

#include <cmath>

#include "asap/base/result.h"

namespace asap {

namespace {

const char* layout(const RopeSpec& rope) {
  return rope.interleaved ? "interleaved" : "half-split";
}

void add_latent(const ModelSpec& spec, std::vector<Switch>& out) {
  out.push_back({"RoPE layout", layout(spec.rope), "rope_interleave"});
  out.push_back({"fp8 round trip of the latent", spec.latent_fp8 ? "yes" : "no", "kv_latent_fp8"});
  out.push_back(
      {"eps of the latents' norms", fmt::format("{:g}", spec.mla_norm_eps), "mla_norm_eps"});
  const double factor = spec.attention_scale * std::sqrt(static_cast<double>(spec.qk_head()));
  out.push_back({"YaRN factor on attention logits", fmt::format("{:.4f}", factor),
                 "rope_scaling.mscale_all_dim"});
}

void add_indexer(const ModelSpec& spec, std::vector<Switch>& out) {
  out.push_back({"indexer RoPE layout", layout(spec.index_rope), "indexer_rope_interleave"});
  out.push_back(
      {"indexer Hadamard and fp8 rounding", spec.index_fp8 ? "both" : "neither", "indexer_fp8"});
  out.push_back({"indexer scores and head weights", "float32", ""});
}

void add_router(const RouterSpec& router, std::vector<Switch>& out) {
  if (router.has_bias) out.push_back({"selection bias", "added for the selection only", ""});
  if (router.groups > 1) {
    const bool sum = router.group_score == GroupScore::top2_sum;
    out.push_back({"score of a group", sum ? "its two best experts" : "its best expert", ""});
    out.push_back({"experts of losing groups", "-inf", ""});
  }
  if (router.normalize && router.score == RouterScore::sigmoid) {
    out.push_back({"sum that divides expert weights", "plus 1e-20", "norm_topk_prob"});
  } else if (router.score != RouterScore::softmax_selected) {
    out.push_back({"expert weights", router.normalize ? "divided by their sum" : "as scored",
                   "norm_topk_prob"});
  }
  if (router.scale != 1) {
    out.push_back({"routed_scaling_factor", fmt::format("{:g}, always applied", router.scale),
                   "routed_scaling_factor"});
  }
}

}  // namespace

std::vector<Switch> switches_of(const ModelSpec& spec) {
  std::vector<Switch> out;
  if (spec.attention == AttentionKind::mla) add_latent(spec, out);
  if (spec.index_topk > 0) add_indexer(spec, out);
  add_router(spec.router, out);
  out.push_back({"RoPE, attention scores, softmax, router", "float32", ""});
  return out;
}

}  // namespace asap
