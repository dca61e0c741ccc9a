// Trace: what each agent did and when, in rings of plain structs that any process may read.
//
// A ring has one writer. It may live in shared memory, so that the front can write the trace of a
// worker that died. The newest events win: a full ring overwrites its oldest ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/base/units.h"

namespace asap {

// Span names, one sorted list: the vocabulary of a trace in one screen.
enum class TraceOp : uint16_t {
  attention,     // o_proj and attention over all tokens of the batch, own heads
  batch,         // a batch from command to result, on the front's track
  combine,       // adding the experts' partial results
  combine_send,  // expert rank: writing partial results
  dense,         // FFN of a dense layer
  dispatch,      // writing own tokens to the expert ranks
  embed,         // token embedding
  experts,       // super kernel
  head,          // final norm, LM head, sampling
  indexer,       // DSA selection of the own slice
  project,       // norm and down-projections of the own slice
  receive,       // expert rank: validating and indexing an item
  request,       // a request from its arrival to its first token, on the front's track
  router,        // residual, post-attention norm, router
  shared,        // shared expert of the own slice
};
std::string_view trace_op_name(TraceOp op);

enum class TraceFlow : uint8_t { none, start, end };

struct TraceEvent {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t batch = 0;
  uint64_t flow_id = 0;  // joins a dispatch with its expert work and its combine
  TraceOp op = TraceOp::embed;
  int16_t layer = -1;  // -1: not of a layer
  int16_t group = -1;
  int16_t stage = -1;
  TraceFlow flow = TraceFlow::none;
};

// Header of a ring; `capacity` events follow it in memory.
class TraceRing {
 public:
  static constexpr uint64_t bytes(uint32_t capacity) {
    return sizeof(TraceRing) + sizeof(TraceEvent) * capacity;
  }
  // Makes a ring in zeroed memory of bytes(capacity).
  static TraceRing* create(std::byte* memory, uint32_t capacity);

  void add(const TraceEvent& event) {
    const uint64_t n = count_.load(std::memory_order_relaxed);
    events()[n % capacity_] = event;
    count_.store(n + 1, std::memory_order_release);
  }
  // The events still held, oldest first. A writer in another process may be at work: what it
  // overwrites meanwhile is left out. In this one it must be at rest.
  std::vector<TraceEvent> snapshot() const;
  uint64_t count() const { return count_.load(std::memory_order_acquire); }

 private:
  TraceEvent* events() { return reinterpret_cast<TraceEvent*>(this + 1); }
  const TraceEvent* events() const { return reinterpret_cast<const TraceEvent*>(this + 1); }
  alignas(64) std::atomic<uint64_t> count_{0};
  uint32_t capacity_ = 0;
};

struct TraceTrack {
  std::string process;  // "attention g0 t1"
  std::string thread;   // "compute"
  int pid = 0;          // a number per process track
  int tid = 0;
  const TraceRing* ring = nullptr;  // null: no events
};

// Chrome/Perfetto JSON ("traceEvents"): one track per ring, complete events named "batch/layer/op",
// flow arrows from dispatch to combine. Events that began before `since` are left out.
std::string trace_json(std::span<const TraceTrack> tracks, Instant since = {});
Status write_trace(const std::string& path, std::span<const TraceTrack> tracks, Instant since = {});

}  // namespace asap
