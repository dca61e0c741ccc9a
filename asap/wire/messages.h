// The structs that cross a link: plain, sized, versioned by the geometry, checked by the receiver.
#pragma once

#include <cstdint>
#include <type_traits>

namespace asap {

inline constexpr uint32_t kCommandMagic = 0x43504153;   // "SAPC"
inline constexpr uint32_t kDispatchMagic = 0x44504153;  // "SAPD"
inline constexpr uint32_t kCombineMagic = 0x4D504153;   // "SAPM"
inline constexpr uint32_t kResultMagic = 0x52504153;    // "SAPR"
inline constexpr int kMaxLogprobs = 20;
// Of one sequence: what a client may ask for, its stop tokens and the model's ends.
inline constexpr int kMaxLogitBiases = 384;

// Front -> every rank of a group: run this batch on this stage. Followed by
// SequenceCommand[sequences], then in the same order the block tables, token ids [tokens] and
// LogitBias[biases].
struct BatchCommand {
  uint32_t magic;
  uint32_t epoch;
  uint64_t batch;  // the stage's batch number, from 1
  int32_t sequences;
  int32_t tokens;
  int32_t blocks;   // block ids of all sequences
  int32_t samples;  // sequences with `sample`
  int32_t biases;   // of all sequences
  int32_t reserved;
  uint64_t trace_id;  // number of the batch in the whole instance
};

struct SequenceCommand {
  uint64_t sequence;
  uint64_t seed;
  int32_t past;
  int32_t tokens;  // new tokens
  int32_t prompt;  // prompt length
  int32_t blocks;
  int32_t sample;      // 1: the last new token's logits give the next token
  int32_t logprobs;    // -1 or 0..kMaxLogprobs
  int32_t logits_row;  // -1, or the row of the result that gets the full logits
  float temperature;
  // The part of this prompt before `past`, if it runs at the same time: its stage in this group and
  // its batch number there. -1: it is done, or there is none.
  int32_t follows;
  int32_t top_k;  // 0: all
  uint64_t follows_batch;
  float top_p;
  float min_p;
  float presence_penalty;
  float frequency_penalty;
  float repetition_penalty;
  int32_t biases;  // LogitBias entries of this sequence
};

// Added to a token's logit; minus infinity forbids it.
struct LogitBias {
  int32_t token;
  float bias;
};

// Attention rank -> expert rank: one rank's tokens of one layer of one batch.
struct DispatchHeader {
  uint32_t magic;
  uint32_t epoch;
  uint64_t seq;  // item number of (group, stage), from 1
  uint64_t trace_id;
  int32_t layer;
  int32_t tokens;  // hidden states that follow: each token once
  int32_t rows;    // (token, expert) pairs
  int32_t reserved;
};

// One (token, expert) pair; the expert follows from the counts, `token` is the index into the
// slot's hidden states.
struct RowEntry {
  int32_t token;
  float weight;
};

// Expert rank -> attention rank: the answer to a dispatch, exactly one each, also for zero tokens.
struct CombineHeader {
  uint32_t magic;
  uint32_t epoch;
  uint64_t seq;
  int32_t layer;
  int32_t rows;  // partial results that follow, in the order of the dispatch's hidden states
};

// Where a batch's time went, as rank 0 of its group saw it, in nanoseconds.
struct BatchTimes {
  int64_t attention_ns;  // everything that the group computes, and its exchanges
  int64_t experts_ns;    // answers of the expert ranks were awaited
  int64_t dispatch_ns;   // tokens were written to the expert ranks
  int64_t combine_ns;    // their answers were added
  int64_t turn_ns;       // could go on, but the rank was busy with another stage
  int64_t barrier_ns;    // lockstep engines: waiting for the other groups
};

// Rank 0 of a group -> front: the batch is done; one entry per sampled sequence.
struct ResultHeader {
  uint32_t magic;
  uint32_t epoch;
  uint64_t batch;
  int32_t samples;
  int32_t reserved;
  BatchTimes times;
};

struct ResultEntry {
  uint64_t sequence;
  int32_t token;
  float logprob;
  int32_t tops;  // filled entries of the arrays
  int32_t logits_row;
  int32_t top_ids[kMaxLogprobs];
  float top_logprobs[kMaxLogprobs];
};

static_assert(std::is_trivially_copyable_v<BatchCommand> && sizeof(BatchCommand) == 48);
static_assert(std::is_trivially_copyable_v<SequenceCommand> && sizeof(SequenceCommand) == 88);
static_assert(std::is_trivially_copyable_v<LogitBias> && sizeof(LogitBias) == 8);
static_assert(std::is_trivially_copyable_v<DispatchHeader> && sizeof(DispatchHeader) == 40);
static_assert(std::is_trivially_copyable_v<RowEntry> && sizeof(RowEntry) == 8);
static_assert(std::is_trivially_copyable_v<CombineHeader> && sizeof(CombineHeader) == 24);
static_assert(std::is_trivially_copyable_v<ResultHeader> && sizeof(ResultHeader) == 72);
static_assert(std::is_trivially_copyable_v<ResultEntry> && sizeof(ResultEntry) == 184);

}  // namespace asap
