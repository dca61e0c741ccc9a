// SchedulerLimits: every bound and weight of the scheduling policies, with unit and default.
#pragma once

#include <cstdint>
#include <limits>

#include "asap/base/units.h"
#include "asap/policy/cost.h"

namespace asap {

// A prompt that is cut gets at least this many tokens of a batch (or half of a smaller one).
inline constexpr int kSmallestCut = 64;

enum class Pairing : uint8_t {
  refill,  // a freed stage gets its next batch at once
  paper,   // all stages of a group start together, long prompts have the group for themselves
};

struct SchedulerLimits {
  int groups = 1;               // D
  int stages = 2;               // R
  int max_batch_tokens = 2048;  // S
  int max_batch_seqs = 64;
  int kv_blocks = 0;    // per group
  int knee_tokens = 0;  // batches below it wait for more while their group is busy
  Duration max_wait = Duration::millis(30);
  Duration partner_wait{0};  // Pairing::paper: a batch of the knee waits so long for its partners'
  int max_queued = 4096;     // sequences waiting for a group; more are refused
  int64_t max_queued_tokens = std::numeric_limits<int64_t>::max();  // their prompts
  CostModel cost;
  double kappa_ns = 0;  // nanoseconds of age that one unit of cost weighs in the queue order
  // How long others may pass the first of the queue while it finds no KV blocks. After that one
  // group takes nobody in until it has room.
  Duration pass_bound = Duration::seconds(1);
  Pairing pairing = Pairing::refill;
  int exclusive_tokens = 0;  // Pairing::paper: longer prompts run alone in their group; 0: none
  // Prompts share a batch up to so many tokens; a longer one has it for itself, up to
  // max_batch_tokens of it.
  int max_shared_tokens = std::numeric_limits<int>::max();
  // A batch leaves its share of the backlog to other free stages; else it takes all that fits.
  bool share_backlog = true;
  // Parts of a prompt run on several stages of a group at once, each following the one before it
  // through the layers.
  bool chain = false;
  // A prompt of at least so many tokens that nobody else waits beside is spread over the free
  // stages of its group; 0: never. Needs `chain`.
  int split_lone_tokens = 0;

  // The synchronous engines (lockstep.h).
  bool lockstep = false;
  bool cut_to_share = false;  // a prompt is cut to fill what others left of max_shared_tokens
};

}  // namespace asap
