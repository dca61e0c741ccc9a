#include "asap/wire/layout.h"

#include <algorithm>

#include "asap/wire/messages.h"

namespace asap {

namespace {

constexpr uint64_t align(uint64_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}
uint64_t u(int64_t value) {
  return static_cast<uint64_t>(value);
}

}  // namespace

Area Layout::add(const char* name, uint64_t payload_bytes, int slots) {
  if (bytes_ == 0) bytes_ = kDoorbellBytes;
  const Area area{name, bytes_, kLine + align(payload_bytes), slots};
  bytes_ += area.slot_bytes * u(slots);
  areas_.push_back(area);
  return area;
}

void Layout::add_rendezvous(const Geometry& g) {
  rendezvous = add("rendezvous", 0, 2 * g.devices());
}

std::string Layout::picture() const {
  std::string out = fmt::format("  {:>14} {:>6} x {:>12}  {}\n", 0, 1, kDoorbellBytes, "doorbell");
  for (const Area& area : areas_) {
    out += fmt::format("  {:>14} {:>6} x {:>12}  {}\n", area.offset, area.slots, area.slot_bytes,
                       area.name);
  }
  return out + fmt::format("  {:>14} bytes in all\n", bytes_);
}

ExpertLayout::ExpertLayout(const Geometry& g) : stages_(g.stages), ranks_(g.ranks) {
  const uint64_t tokens = u(g.slice_tokens());
  counts_at = align(sizeof(DispatchHeader));
  rows_at = counts_at + align(u(g.local_experts()) * sizeof(int32_t));
  tokens_at = rows_at + align(tokens * u(g.local_top_k()) * sizeof(RowEntry));
  dispatch = add("dispatch", tokens_at + tokens * g.row_bytes(), g.groups * g.stages * g.ranks);
  fence = add("fence", 0, g.groups);
  add_rendezvous(g);
}

AttentionLayout::AttentionLayout(const Geometry& g)
    : ranks_(g.ranks), expert_ranks_(g.expert_ranks) {
  const uint64_t slice = u(g.slice_tokens());
  const uint64_t seqs = u(g.max_batch_seqs);
  const int peers = g.stages * g.ranks;
  command = add("command",
                sizeof(BatchCommand) +
                    seqs * (sizeof(SequenceCommand) + u(g.max_seq_blocks) * sizeof(int32_t) +
                            kMaxLogitBiases * sizeof(LogitBias)) +
                    u(g.max_batch_tokens) * sizeof(int32_t),
                g.stages);
  abandon = add("abandon", 0, g.stages);
  turn = add("turn", 0, g.stages);
  gather = add("gather", slice * u(g.gather_width) * sizeof(float), peers);
  select = add("select", slice * u(g.index_topk) * sizeof(int32_t), peers);
  reduce = add("reduce", slice * u(g.hidden) * sizeof(float), peers);
  rows = add("rows", seqs * u(g.hidden) * sizeof(float), peers);
  logits = add("logits", seqs * u(g.vocab_slice()) * sizeof(float), peers);
  combine_rows_at = align(sizeof(CombineHeader));
  combine = add("combine", combine_rows_at + slice * g.row_bytes(), g.stages * g.expert_ranks);
  if (g.lockstep) {
    enter = add("enter", sizeof(int32_t), g.groups * g.ranks);
    leave = add("leave", 0, g.groups * g.ranks);
  }
  add_rendezvous(g);
}

FrontLayout::FrontLayout(const Geometry& g) : stages_(g.stages), expert_ranks_(g.expert_ranks) {
  entries_at = align(sizeof(ResultHeader));
  logits_at = entries_at + align(u(g.max_batch_seqs) * sizeof(ResultEntry));
  result =
      add("result", logits_at + u(g.logits_rows) * u(g.vocab) * sizeof(float), g.groups * g.stages);
  fenced = add("fenced", 0, g.groups * g.expert_ranks);
  add_rendezvous(g);
}

namespace {

template <typename Get>
auto of_layout(const Geometry& g, int device, Get&& get) {
  if (device == kFrontDevice) return get(FrontLayout(g));
  if (device < expert_device(g, 0)) return get(AttentionLayout(g));
  return get(ExpertLayout(g));
}

}  // namespace

uint64_t window_bytes(const Geometry& g, int device) {
  return of_layout(g, device, [](const Layout& layout) { return layout.bytes(); });
}

Area rendezvous_area(const Geometry& g, int device) {
  return of_layout(g, device, [](const Layout& layout) { return layout.rendezvous; });
}

}  // namespace asap
