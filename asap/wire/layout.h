// The three windows, described once: offsets, sizes and the printed picture come from the same
// list.
//
// A window is memory of the receiver that its peers write one-sidedly. Every message is payload
// first, then a flag: one 8-byte word (epoch, seq) on its own cache line with one writer. All areas
// are per stage, and a stage's area is rewritten only after what it carried was answered or
// consumed; the layer order guarantees it:
//   - dispatch(l+1) of a stage follows the combine of l, which answers dispatch(l);
//   - gather(l+1) to a peer follows that peer's reduce(l), sent after it consumed gather(l);
//   likewise the others; but a peer may end a batch that nobody wants a layer, or a batch, ahead of
//   us: its reduce flag is then ahead too, and no payload is overwritten;
//   - a turn follows the combine of the stage's last item, which needed every rank's dispatch;
//   - a command follows the result of the stage's previous batch;
//   - enter(l+1) of a lockstep rank follows everybody's leave(l), sent after they had seen
//   enter(l);
//   - a group that was restarted gets its first command once all expert ranks have let go of its
//   last epoch (fence, fenced).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "asap/wire/geometry.h"

namespace asap {

inline constexpr uint64_t kLine = 64;

// The word of a flag. Epoch 0 and seq 0 never occur in a message, so zeroed memory means "nothing
// yet".
// Flags of one slot only grow: a later epoch is larger whatever its numbers are.
constexpr uint64_t make_flag(uint64_t epoch, uint64_t seq) {
  return epoch << 48 | seq;
}
// Set in the flag of rank 0's gather: the batch ends here, in all ranks.
inline constexpr uint64_t kAbandoned = uint64_t{1} << 47;
constexpr uint64_t flag_epoch(uint64_t flag) {
  return flag >> 48;
}
constexpr uint64_t flag_seq(uint64_t flag) {
  return flag & ((uint64_t{1} << 48) - 1);
}

inline uint64_t load_flag(const std::byte* at) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(const_cast<std::byte*>(at)))
      .load(std::memory_order_acquire);
}
inline void store_flag(std::byte* at, uint64_t value) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at))
      .store(value, std::memory_order_release);
}

// An array of equal slots in a window; each slot starts with its flag's line, payload follows.
struct Area {
  const char* name = "";
  uint64_t offset = 0;
  uint64_t slot_bytes = 0;  // flag line and payload, a multiple of kLine
  int slots = 0;
  uint64_t flag(int slot) const { return offset + slot_bytes * static_cast<uint64_t>(slot); }
  uint64_t payload(int slot) const { return flag(slot) + kLine; }
  uint64_t payload_bytes() const { return slot_bytes - kLine; }
};

class Layout {
 public:
  uint64_t bytes() const { return bytes_; }
  const std::vector<Area>& areas() const { return areas_; }
  // One line per area: offset, slots × slot size, name.
  std::string picture() const;

  // Words of the handshake of a blocking link (transport/link_p2p.h), flags alone: peer p's
  // requests in slot p, its grants in slot devices + p. Other links leave it alone.
  Area rendezvous;

 protected:
  // `copies` lets several areas of one shape follow each other (one per stage).
  Area add(const char* name, uint64_t payload_bytes, int slots);
  void add_rendezvous(const Geometry& g);  // last
  uint64_t bytes_ = 0;
  std::vector<Area> areas_;
};

// A window opens with the doorbell on which its owner sleeps (transport/doorbell.h).
inline constexpr uint64_t kDoorbellBytes = kLine;

// Window of expert rank e. Slot of (group, stage, rank).
class ExpertLayout : public Layout {
 public:
  explicit ExpertLayout(const Geometry& g);
  int slot(int group, int stage, int rank) const {
    return (group * stages_ + stage) * ranks_ + rank;
  }
  // Payload of a dispatch slot: DispatchHeader · counts[local_experts] · RowEntry[rows] · hidden
  // states[tokens].
  Area dispatch;
  uint64_t counts_at, rows_at, tokens_at;  // offsets inside the payload
  // [D] flags alone, from the front: the epoch of a group from which items are accepted.
  Area fence;

 private:
  int stages_, ranks_;
};

// Window of attention rank (g, t). Slots are numbered stage-major.
class AttentionLayout : public Layout {
 public:
  explicit AttentionLayout(const Geometry& g);
  int peer_slot(int stage, int rank) const { return stage * ranks_ + rank; }
  int expert_slot(int stage, int expert_rank) const { return stage * expert_ranks_ + expert_rank; }
  Area command;  // [stages] BatchCommand, from the front
  // [stages] flags alone, from the front to rank 0: the number of a batch that nobody wants any
  // more.
  Area abandon;
  // [stages] flags alone, from rank 0: the item that the group dispatches next from the stage. Used
  // with fewer regions than stages.
  Area turn;
  Area gather;  // [stages·T] latents (or normed hidden states) of a peer's slice, float32
  Area select;  // [stages·T] DSA selections of a peer's slice (one empty payload line without DSA)
  Area reduce;  // [stages·T] a peer's partial o_proj sums for this rank's slice, float32
  Area rows;    // [stages·T] final-norm rows of the sampled sequences that a peer owns
  Area logits;  // [stages·T] a peer's vocabulary slice of the logits (used in rank 0's window)
  Area combine;  // [stages·E] CombineHeader · partial results[slice], in the order of the dispatch
  uint64_t combine_rows_at;
  // Lockstep only. [D·T] a rank of the instance is about to dispatch: int32 tokens of its group's
  // batch; and has added the experts' answers.
  Area enter, leave;

 private:
  int ranks_, expert_ranks_;
};

// Window of the front: one result slot per (group, stage), written by rank 0 of the group.
class FrontLayout : public Layout {
 public:
  explicit FrontLayout(const Geometry& g);
  int slot(int group, int stage) const { return group * stages_ + stage; }
  int fenced_slot(int group, int expert_rank) const { return group * expert_ranks_ + expert_rank; }
  Area result;  // ResultHeader · ResultEntry[max_batch_seqs] · logits[logits_rows, V]
  uint64_t entries_at, logits_at;
  // [D·E] flags alone, from the expert ranks: nothing of the group's earlier epochs is held or
  // accepted any more.
  Area fenced;

 private:
  int stages_, expert_ranks_;
};

// Bytes of the window of `device`, and its rendezvous.
uint64_t window_bytes(const Geometry& g, int device);
Area rendezvous_area(const Geometry& g, int device);

}  // namespace asap
