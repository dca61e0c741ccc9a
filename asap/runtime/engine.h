// Engine: what the HTTP front and the CLI see of an instance. One implementation runs worker
// processes, one runs everything in this process; both are the same scheduler and agents.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "asap/base/result.h"
#include "asap/base/units.h"
#include "asap/runtime/row_histogram.h"

namespace asap {

// The order in which they apply to the logits: logit_bias and min_tokens; repetition, frequency and
// presence penalty; temperature; min_p, top_k, top_p.
struct SamplingParams {
  int max_tokens = 16;           // >= 1; 1 is pure prefill
  int min_tokens = 0;            // no end by <eos> or stop_token_ids before so many
  double temperature = 1.0;      // 0 = greedy
  double top_p = 1.0;            // (0, 1]: the likeliest tokens that together have this probability
  int top_k = 0;                 // the likeliest k; 0: all
  double min_p = 0;              // at least this share of the likeliest one's probability
  double presence_penalty = 0;   // [-2, 2], for tokens that the output holds
  double frequency_penalty = 0;  // [-2, 2], for each time
  double repetition_penalty = 1;  // > 0; divides the logits of tokens of prompt and output
  std::vector<std::pair<int32_t, float>> logit_bias;  // added; ids in [0, vocab)
  std::vector<int32_t> stop_token_ids;                // end the output as <eos> does
  uint64_t seed = 0;  // a token depends on (seed, position, logits) alone
  int logprobs = -1;  // -1: none; 0..20: the token's own and that many best alternatives
  bool ignore_eos = false;
  bool want_logits = false;  // full logits of the last prompt position come with the first token
};

struct EngineRequest {
  std::string id;               // for logs and traces
  std::vector<int32_t> prompt;  // token ids in [0, vocab); at least one
  SamplingParams sampling;
  int priority = 0;           // lower starts earlier: one step weighs as a second of waiting
  Duration queue_timeout{0};  // ends with Code::deadline if no batch took it by then; 0: none
};

enum class Finish : uint8_t { none, stop, length, error };

// Where a request's time to its first token went, in nanoseconds; what is missing to the whole is
// the host's: commands, results, HTTP.
struct RequestTimes {
  int64_t queueing_ns = 0;   // not in a batch
  int64_t attention_ns = 0;  // its group computed, and exchanged within
  int64_t experts_ns = 0;    // answers of the expert ranks were awaited
  int64_t dispatch_ns = 0;   // tokens were written to the expert ranks
  int64_t combine_ns = 0;    // their answers were added
  int64_t turn_ns = 0;       // its batch could go on, but its rank was busy with another stage
  int64_t barrier_ns = 0;    // lockstep engines: other groups were awaited
};

struct TokenEvent {
  int32_t token = -1;  // -1 when finish == error
  float logprob = 0;   // natural log, of `token`, at temperature 1; valid if logprobs >= 0
  std::vector<std::pair<int32_t, float>> top_logprobs;  // best first
  Finish finish = Finish::none;
  Error error;                        // finish == error
  std::vector<float> logits;          // [vocab] if want_logits, first token only
  Instant arrived, started, emitted;  // submit; first batch dispatched to a group; this token
  RequestTimes times;                 // of the first token
};

// One row of GET /admin/peers.
struct PeerStatus {
  std::string role;                             // "attention" | "moe"
  int group = -1, tp_rank = -1, moe_rank = -1;  // -1: does not apply
  int pid = 0;
  uint64_t epoch = 0;  // 1, and one more with each restart of what it is part of
  // "starting" | "loading" | "ready" | "failed" | "dead": being restarted | "retired": died too
  // often and stays out of service
  std::string state;
  int restarts = 0;        // of its group, or of the expert rank
  std::string last_death;  // how it ended the last time; "" if it never did
};

// A worker, or its whole group, that was lost and came back, or did not.
struct RecoveryEvent {
  double unix_time = 0;  // seconds; when the loss was noticed
  std::string who;       // "attention g1 t0", "moe e2"
  std::string cause;     // "pid 123 was killed by signal 9 (Killed)"
  uint64_t epoch = 0;    // of what took its place; 0: nothing did
  double seconds = 0;    // from notice to service; negative: still under way, or given up
  int requests = 0;      // that were run again
};

// How much of an instance serves; one state, in words fit for GET /v1/fault_tolerance/status.
//   serving     everything is there
//   recovering  a part is being restarted; requests are taken and wait or run elsewhere
//   degraded    a part died too often and stays away; the rest serves
//   failed      no group is left, or an expert rank is: requests are refused (unavailable)
struct FaultStatus {
  std::string state = "serving";
  std::string reason;  // "" while serving
  bool draining = false;
  int groups = 0, groups_up = 0;              // attention groups
  int expert_ranks = 0, expert_ranks_up = 0;  // devices with experts
  int64_t recoveries = 0;                     // since the start
  int64_t requests_rerun = 0;
  std::vector<RecoveryEvent> recent;  // oldest first, a bounded number

  bool can_serve() const { return state != "failed"; }  // GET /health: 200, else 503
};

// What a group has in flight.
struct GroupLoad {
  int stages_live = 0;
  int64_t tokens = 0;  // of those batches
  double cost = 0;     // in the unit of the cost model
};

// What an expert rank did since its start, and has before it.
struct ExpertLoad {
  double idle_seconds = 0;
  int64_t items = 0;
  int ready_items = 0;
};

struct EngineStats {
  std::string kernels;  // the table in use: an ISA, "ref" or "priced"
  int running = 0;      // sequences in a group
  int waiting = 0;      // sequences in the queue
  int64_t waiting_tokens = 0;
  double waiting_seconds = 0;  // their work at the measured speed; 0: that is not known yet
  int64_t prompt_tokens = 0, generation_tokens = 0;  // totals of finished steps
  int64_t batches = 0;
  double kv_usage = 0;    // used share of KV blocks, all groups, 0..1
  RowCounts expert_rows;  // per expert and item
  int64_t recoveries = 0, requests_rerun = 0;
  RowCounts batch_tokens;
  std::vector<GroupLoad> groups;    // [D]
  std::vector<ExpertLoad> experts;  // [E]; empty where they are not counted
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Thread-safe. `on_token` is called from the engine's thread, once per token, the last call
  // carrying finish != none; it must not block. Errors: invalid (empty or too long prompt,
  // max_tokens out of range), overloaded, unavailable.
  using OnToken = std::function<void(TokenEvent)>;
  virtual Result<uint64_t> submit(EngineRequest request, OnToken on_token) = 0;
  // Thread-safe. What submit() would say now to the smallest request: asked before a body is
  // parsed, so that under overload refusals cost nothing.
  virtual Status check_room() const { return {}; }
  // Thread-safe; the request ends without further events. Unknown handles are ignored.
  virtual void cancel(uint64_t handle) = 0;

  // Thread-safe. From drain() until resume() submit() refuses (unavailable) and ready() is false;
  // what was taken before goes on. Drained: draining, and nothing waits or runs any more.
  virtual void drain() {}
  virtual void resume() {}
  virtual bool drained() const { return false; }
  // Thread-safe. What waits or runs ends with `error`; submit() refuses with it from then on.
  virtual void end_all(const Error&) {}
  virtual FaultStatus fault_status() const { return {}; }

  // Thread-safe. Between the two, work is recorded; stop_profile() names the trace file that holds
  // it. Errors: unsupported (nothing is recorded by this engine), invalid (not started).
  virtual Status start_profile() {
    return fail(Code::unsupported, "nothing is recorded: start the server with --trace FILE");
  }
  virtual Result<std::string> stop_profile() {
    return fail(Code::unsupported, "nothing is recorded: start the server with --trace FILE");
  }

  // Stops, and writes the trace if one was asked for. The destructor does what was left undone, but
  // can only log an error.
  virtual Status close() { return {}; }

  // Requests are taken and can run now: a group and all expert ranks are up, and nobody drains.
  virtual bool ready() const = 0;
  virtual std::string not_ready_reason() const = 0;  // "" if ready
  virtual EngineStats stats() const = 0;
  virtual std::vector<PeerStatus> peers() const = 0;
  virtual int max_model_len() const = 0;
  virtual int vocab() const = 0;
};

}  // namespace asap
