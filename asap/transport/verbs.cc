#include "asap/transport/verbs.h"

#include <algorithm>
#include <cstring>

#include "asap/base/check.h"

namespace asap {

namespace {

const std::byte* at(const std::byte* window, uint64_t offset) {
  return window + offset;
}

}  // namespace

void dispatch_send(Port& port, const Geometry& g, const ExpertLayout& layout, int expert_rank,
                   int rank, const ItemId& item, const DispatchShare& share) {
  const int device = expert_device(g, expert_rank);
  const int slot = layout.slot(item.group, item.stage, rank);
  const uint64_t base = layout.dispatch.payload(slot);
  const uint64_t row_bytes = g.row_bytes();
  const DispatchHeader header{kDispatchMagic,
                              static_cast<uint32_t>(item.epoch),
                              item.seq,
                              item.trace_id,
                              item.layer,
                              static_cast<int32_t>(share.tokens.size()) + share.unsent,
                              static_cast<int32_t>(share.rows.size()),
                              0};
  CHECK(header.tokens <= g.slice_tokens() && header.rows <= g.slice_tokens() * g.local_top_k(),
        "an item of {} tokens and {} rows exceeds its slot", header.tokens, header.rows);
  port.put(device, base, &header, sizeof(header));
  port.put(device, base + layout.counts_at, share.counts.data(), share.counts.size_bytes());
  port.put(device, base + layout.rows_at, share.rows.data(), share.rows.size_bytes());
  for (size_t i = 0; i < share.tokens.size(); ++i) {
    port.put(device, base + layout.tokens_at + i * row_bytes,
             share.hidden + static_cast<uint64_t>(share.tokens[i]) * row_bytes, row_bytes);
  }
  port.put_flag(device, layout.dispatch.flag(slot), make_flag(item.epoch, item.seq));
}

namespace {

// Everything that the receiver will index by is checked here, once.
DispatchView checked_view(const std::byte* payload, const Geometry& g, const ExpertLayout& layout,
                          int local_experts, const ItemId& expected, int rank) {
  DispatchView view;
  view.header = reinterpret_cast<const DispatchHeader*>(payload);
  view.counts = reinterpret_cast<const int32_t*>(at(payload, layout.counts_at));
  view.rows = reinterpret_cast<const RowEntry*>(at(payload, layout.rows_at));
  view.hidden = at(payload, layout.tokens_at);
  const DispatchHeader& h = *view.header;
  CHECK(h.magic == kDispatchMagic && h.epoch == expected.epoch && h.seq == expected.seq,
        "dispatch of g{} t{} stage {}: magic {:#x}, epoch {}, item {}; expected epoch {}, item {}",
        expected.group, rank, expected.stage, h.magic, h.epoch, h.seq, expected.epoch,
        expected.seq);
  CHECK(h.layer >= 0 && h.layer < g.layers, "dispatch of g{} t{} names layer {} of {}",
        expected.group, rank, h.layer, g.layers);
  CHECK(h.tokens >= 0 && h.tokens <= g.slice_tokens() && h.rows >= 0 &&
            h.rows <= g.slice_tokens() * g.local_top_k(),
        "dispatch of g{} t{} holds {} tokens and {} rows; a slot holds {} and {}", expected.group,
        rank, h.tokens, h.rows, g.slice_tokens(), g.slice_tokens() * g.local_top_k());
  int64_t rows = 0;
  for (int expert = 0; expert < local_experts; ++expert) {
    CHECK(view.counts[expert] >= 0 && view.counts[expert] <= h.rows);
    rows += view.counts[expert];
  }
  CHECK(rows == h.rows, "dispatch of g{} t{}: counts add up to {}, the header says {} rows",
        expected.group, rank, rows, h.rows);
  for (int32_t row = 0; row < h.rows; ++row) {
    CHECK(view.rows[row].token >= 0 && view.rows[row].token < h.tokens,
          "dispatch of g{} t{}: row {} names token {} of {}", expected.group, rank, row,
          view.rows[row].token, h.tokens);
  }
  return view;
}

}  // namespace

uint64_t dispatch_announced(const std::byte* window, const Geometry& g, const ExpertLayout& layout,
                            int group, int stage) {
  const uint64_t flag = load_flag(at(window, layout.dispatch.flag(layout.slot(group, stage, 0))));
  for (int rank = 1; rank < g.ranks; ++rank) {
    const int slot = layout.slot(group, stage, rank);
    if (load_flag(at(window, layout.dispatch.flag(slot))) != flag) return 0;
  }
  return flag;
}

bool dispatch_recv(const std::byte* window, const Geometry& g, const ExpertLayout& layout,
                   int local_experts, const ItemId& expected, std::span<DispatchView> views) {
  const uint64_t flag = make_flag(expected.epoch, expected.seq);
  for (int rank = 0; rank < g.ranks; ++rank) {
    const int slot = layout.slot(expected.group, expected.stage, rank);
    if (load_flag(at(window, layout.dispatch.flag(slot))) != flag) return false;
  }
  for (int rank = 0; rank < g.ranks; ++rank) {
    const int slot = layout.slot(expected.group, expected.stage, rank);
    views[static_cast<size_t>(rank)] = checked_view(at(window, layout.dispatch.payload(slot)), g,
                                                    layout, local_experts, expected, rank);
    CHECK(views[static_cast<size_t>(rank)].header->layer == views[0].header->layer,
          "ranks of g{} stage {} disagree on the layer of item {}: t0 {}, t{} {}", expected.group,
          expected.stage, expected.seq, views[0].header->layer, rank,
          views[static_cast<size_t>(rank)].header->layer);
  }
  return true;
}

void combine_put_rows(Port& port, const Geometry& g, const AttentionLayout& layout,
                      const ItemId& item, int rank, int expert_rank, int first, int count,
                      const std::byte* rows) {
  CHECK(first >= 0 && count >= 0 && first + count <= g.slice_tokens());
  const int slot = layout.expert_slot(item.stage, expert_rank);
  port.put(attention_device(g, item.group, rank),
           layout.combine.payload(slot) + layout.combine_rows_at +
               static_cast<uint64_t>(first) * g.row_bytes(),
           rows, static_cast<uint64_t>(count) * g.row_bytes());
}

void combine_finish(Port& port, const Geometry& g, const AttentionLayout& layout,
                    const ItemId& item, int rank, int expert_rank, int rows) {
  const int device = attention_device(g, item.group, rank);
  const int slot = layout.expert_slot(item.stage, expert_rank);
  const CombineHeader header{kCombineMagic, static_cast<uint32_t>(item.epoch), item.seq, item.layer,
                             rows};
  port.put(device, layout.combine.payload(slot), &header, sizeof(header));
  port.put_flag(device, layout.combine.flag(slot), make_flag(item.epoch, item.seq));
}

bool combine_recv(const std::byte* window, const Geometry& g, const AttentionLayout& layout,
                  const ItemId& item) {
  const uint64_t flag = make_flag(item.epoch, item.seq);
  for (int e = 0; e < g.expert_ranks; ++e) {
    const int slot = layout.expert_slot(item.stage, e);
    if (load_flag(at(window, layout.combine.flag(slot))) != flag) return false;
  }
  return true;
}

const std::byte* combine_rows(const std::byte* window, const AttentionLayout& layout,
                              const ItemId& item, int expert_rank, int rows) {
  const int slot = layout.expert_slot(item.stage, expert_rank);
  const std::byte* payload = at(window, layout.combine.payload(slot));
  const auto& h = *reinterpret_cast<const CombineHeader*>(payload);
  CHECK(h.magic == kCombineMagic && h.epoch == item.epoch && h.seq == item.seq &&
            h.layer == item.layer && h.rows == rows,
        "answer of e{} to g{} stage {}: magic {:#x}, epoch {}, item {}, layer {}, {} rows; "
        "expected epoch {}, item {}, layer {}, {} rows",
        expert_rank, item.group, item.stage, h.magic, h.epoch, h.seq, h.layer, h.rows, item.epoch,
        item.seq, item.layer, rows);
  return at(payload, layout.combine_rows_at);
}

void group_put(Port& port, const Geometry& g, const AttentionLayout& layout, const Area& area,
               const GroupSend& send, int to, const void* data, uint64_t bytes) {
  CHECK(bytes <= area.payload_bytes(), "{} bytes exceed a {} slot of {}", bytes, area.name,
        area.payload_bytes());
  const int device = attention_device(g, send.group, to);
  const int slot = layout.peer_slot(send.stage, send.rank);
  port.put(device, area.payload(slot), data, bytes);
  port.put_flag(device, area.flag(slot), send.flag);
}

bool group_ready(const std::byte* window, const AttentionLayout& layout, const Area& area,
                 int ranks, int stage, uint64_t flag) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (load_flag(at(window, area.flag(layout.peer_slot(stage, rank)))) != flag) return false;
  }
  return true;
}

bool group_passed(const std::byte* window, const AttentionLayout& layout, const Area& area,
                  int ranks, int stage, uint64_t flag) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (load_flag(at(window, area.flag(layout.peer_slot(stage, rank)))) < flag) return false;
  }
  return true;
}

void barrier_send(Port& port, const Geometry& g, const Area& area, int from, uint64_t flag,
                  int32_t tokens) {
  for (int to = 0; to < g.groups * g.ranks; ++to) {
    const int device = attention_device(g, 0, 0) + to;
    if (area.payload_bytes() > 0) port.put(device, area.payload(from), &tokens, sizeof(tokens));
    port.put_flag(device, area.flag(from), flag);
  }
}

bool barrier_ready(const std::byte* window, const Geometry& g, const Area& area, uint64_t flag) {
  for (int from = 0; from < g.groups * g.ranks; ++from) {
    if (load_flag(at(window, area.flag(from))) != flag) return false;
  }
  return true;
}

int32_t barrier_largest(const std::byte* window, const Geometry& g, const Area& area) {
  int32_t largest = 0;
  for (int from = 0; from < g.groups * g.ranks; ++from) {
    int32_t tokens = 0;
    std::memcpy(&tokens, at(window, area.payload(from)), sizeof(tokens));
    CHECK(tokens >= 0 && tokens <= g.max_batch_tokens, "rank {} enters with {} tokens", from,
          tokens);
    largest = std::max(largest, tokens);
  }
  return largest;
}

}  // namespace asap
