// The verbs of the protocol, written once on the one-sided writes of a Link: dispatch and combine
// between a group and the expert ranks, and the two collectives inside a group. None of them
// blocks: a send returns when its writes are issued, a recv says whether everything has arrived.
//
// What a peer wrote is checked before use: a header that contradicts its flag, or a count that
// leaves its slot, is a bug of the peer and ends this process with a message that names the peer,
// the field and both values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asap/transport/link.h"
#include "asap/wire/messages.h"

namespace asap {

// Who sends what: one stage of one group at one layer.
struct ItemId {
  int group = 0;
  int stage = 0;
  int layer = 0;
  uint64_t epoch = 1;
  uint64_t seq = 0;       // item number of (group, stage), from 1
  uint64_t trace_id = 0;  // batch number in the instance
};

// dispatch_send: writes rank `rank`'s share of an item to expert rank `expert_rank`.
//   counts  [local experts] rows per local expert
//   rows    sorted by expert, ascending token within one
//   tokens  the slice rows to send, in the order that `rows` refers to
//   hidden  [slice, H] rows of the activation type
struct DispatchShare {
  std::span<const int32_t> counts;
  std::span<const RowEntry> rows;
  std::span<const int32_t> tokens;
  const std::byte* hidden = nullptr;
  int32_t unsent = 0;  // tokens that a priced kernel counts but does not send
};
void dispatch_send(Port& port, const Geometry& g, const ExpertLayout& layout, int expert_rank,
                   int rank, const ItemId& item, const DispatchShare& share);

// One rank's share as the expert rank reads it in its own window; valid until the item is answered.
struct DispatchView {
  const DispatchHeader* header = nullptr;
  const int32_t* counts = nullptr;    // [local experts]
  const RowEntry* rows = nullptr;     // [header->rows]
  const std::byte* hidden = nullptr;  // [header->tokens, H]
};
// The flag that all T ranks of (group, stage) show; 0 while they differ.
uint64_t dispatch_announced(const std::byte* window, const Geometry& g, const ExpertLayout& layout,
                            int group, int stage);
// dispatch_recv: whether all T ranks of (group, stage) have written item `seq`; fills views[T] if
// so.
bool dispatch_recv(const std::byte* window, const Geometry& g, const ExpertLayout& layout,
                   int local_experts, const ItemId& expected, std::span<DispatchView> views);

// combine_send in two steps, so that an item larger than the sender's memory is answered in pieces:
// rows [first, first + count) of the answer to (group, rank), then the header and flag.
void combine_put_rows(Port& port, const Geometry& g, const AttentionLayout& layout,
                      const ItemId& item, int rank, int expert_rank, int first, int count,
                      const std::byte* rows);
void combine_finish(Port& port, const Geometry& g, const AttentionLayout& layout,
                    const ItemId& item, int rank, int expert_rank, int rows);

// combine_recv: whether all E expert ranks have answered `item` in this rank's window.
bool combine_recv(const std::byte* window, const Geometry& g, const AttentionLayout& layout,
                  const ItemId& item);
// Partial results of expert rank `expert_rank`: [rows, H]; `rows` is what this rank dispatched to
// it.
const std::byte* combine_rows(const std::byte* window, const AttentionLayout& layout,
                              const ItemId& item, int expert_rank, int rows);

// Collectives of a group. A part of `area` (gather, select, reduce, rows or logits of
// AttentionLayout) is written to the slot of (stage, own rank) in the window of rank `to`, then its
// flag.
struct GroupSend {
  int group = 0;
  int rank = 0;
  int stage = 0;
  uint64_t flag = 0;
};
void group_put(Port& port, const Geometry& g, const AttentionLayout& layout, const Area& area,
               const GroupSend& send, int to, const void* data, uint64_t bytes);
// Whether every rank's flag of (area, stage) shows `flag`.
bool group_ready(const std::byte* window, const AttentionLayout& layout, const Area& area,
                 int ranks, int stage, uint64_t flag);
// Whether every rank's flag shows it or a later one.
bool group_passed(const std::byte* window, const AttentionLayout& layout, const Area& area,
                  int ranks, int stage, uint64_t flag);

// Barriers of a lockstep instance: rank `from` (of D·T, by group) tells every attention rank that
// it is there, and how many tokens its group's batch has.
void barrier_send(Port& port, const Geometry& g, const Area& area, int from, uint64_t flag,
                  int32_t tokens);
// Whether every attention rank's flag shows `flag`.
bool barrier_ready(const std::byte* window, const Geometry& g, const Area& area, uint64_t flag);
// Tokens of the largest batch, once the area `enter` is ready.
int32_t barrier_largest(const std::byte* window, const Geometry& g, const Area& area);

}  // namespace asap
