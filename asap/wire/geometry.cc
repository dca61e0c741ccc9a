#include "asap/wire/geometry.h"

namespace asap {

Status compare(const Geometry& front, const Geometry& peer, const std::string& who) {
  const struct {
    const char* name;
    int64_t front, peer;
  } fields[] = {
      {"protocol version", front.protocol, peer.protocol},
      {"data-parallel-size", front.groups, peer.groups},
      {"tensor-parallel-size", front.ranks, peer.ranks},
      {"num-moe-ranks", front.expert_ranks, peer.expert_ranks},
      {"stages", front.stages, peer.stages},
      {"regions", front.regions, peer.regions},
      {"max-num-batched-tokens", front.max_batch_tokens, peer.max_batch_tokens},
      {"max-num-seqs", front.max_batch_seqs, peer.max_batch_seqs},
      {"KV blocks of a sequence", front.max_seq_blocks, peer.max_seq_blocks},
      {"hidden size", front.hidden, peer.hidden},
      {"layers", front.layers, peer.layers},
      {"MoE layers", front.moe_layers, peer.moe_layers},
      {"experts", front.experts, peer.experts},
      {"top-k", front.top_k, peer.top_k},
      {"vocabulary", front.vocab, peer.vocab},
      {"all-gather width", front.gather_width, peer.gather_width},
      {"index top-k", front.index_topk, peer.index_topk},
      {"logits rows", front.logits_rows, peer.logits_rows},
      {"activation dtype", static_cast<int64_t>(front.activation),
       static_cast<int64_t>(peer.activation)},
      {"lockstep", front.lockstep ? 1 : 0, peer.lockstep ? 1 : 0},
  };
  for (const auto& field : fields) {
    if (field.front != field.peer) {
      return fail(Code::invalid,
                  "{} disagrees with the front about {}: the front has {}, it has {}; start all "
                  "roles from the same model directory and flags",
                  who, field.name, field.front, field.peer);
    }
  }
  return {};
}

std::string device_name(const Geometry& g, int device) {
  if (device == kFrontDevice) return "front";
  const int attention = device - 1;
  if (attention < g.groups * g.ranks) {
    return fmt::format("attention g{} t{}", attention / g.ranks, attention % g.ranks);
  }
  return fmt::format("moe e{}", attention - g.groups * g.ranks);
}

}  // namespace asap
