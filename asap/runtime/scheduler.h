// Scheduler: the front's agent. It turns submitted requests into batches
// (policy/scheduler_policy.h), writes commands to the ranks of a group, reads results, and hands
// tokens to whoever asked.
//
// What a lost group was working on waits again, its generated tokens as part of the prompt; a token
// depends on (seed, position, logits) alone, so the continuation is what it would have been, and
// what was handed out is not handed out again. A group that comes back has a later epoch. It gets
// batches once every expert rank has acknowledged that epoch (wire/layout.h: fence).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "asap/policy/admission.h"
#include "asap/policy/scheduler_policy.h"
#include "asap/runtime/agent.h"
#include "asap/runtime/config.h"
#include "asap/runtime/engine.h"
#include "asap/transport/verbs.h"

namespace asap {

class Scheduler final : public Agent {
 public:
  Scheduler(const EngineConfig& config, const EnginePlan& plan, const ModelSpec& spec,
            std::unique_ptr<Port> port, Tracer tracer);

  // Any thread. As Engine's; callbacks run on the thread that calls do_work.
  // Refusals take no longer than a look at the queue.
  Result<uint64_t> submit(EngineRequest request, Engine::OnToken on_token, Instant now);
  Status check_room(Instant now) const;
  void cancel(uint64_t handle);
  EngineStats stats() const;
  // The processes of a group are gone or given up: its requests wait again. Those that lost their
  // group too often without a new token in between end with an error: it may be their doing. How
  // many run again.
  int lose_group(int group, const std::string& cause, Instant now);
  // Their successors are ready, at `epoch`; nothing of the earlier ones is on its way any more.
  void restore_group(int group, uint64_t epoch, Instant now);
  // The group stays away; with the last one, as with retire_instance, all requests end with
  // `error`, and no more are taken.
  void retire_group(int group, const Error& error, Instant now);
  void retire_instance(const Error& error, Instant now);
  // Batches wait for an expert rank that is being restarted: no reason to call them stuck.
  void on_expert_rank(bool up, Instant now);
  // Words about who waits for whom, for the message about a batch without answer.
  void on_stuck(std::function<std::string()> describe) { describe_ = std::move(describe); }
  // What happens to the group of such a batch; without it the group is retired. Called with the
  // scheduler's lock held.
  void on_group_stuck(std::function<void(int group, const std::string& why)> give_up) {
    give_up_ = std::move(give_up);
  }
  // Called before a group's first batch of an epoch, with each of its devices: nothing that was
  // sent there earlier may become visible later (Link::fence).
  void on_rejoin(std::function<void(int device)> fence) { fence_ = std::move(fence); }
  // All requests end with `error`, and no more are taken.
  void end_all(const Error& error, Instant now);
  // Takes no requests, or takes them again.
  void drain(bool on);
  bool draining() const;
  bool drained() const;
  // Every live batch and its requests, a line each: for crash reports.
  std::string in_flight() const;

  int do_work(Instant now) override;
  Instant wake_at() const override;
  std::string name() const override { return "front scheduler"; }

 private:
  struct Live {
    EngineRequest request;
    Engine::OnToken on_token;
    std::vector<int32_t> tokens;  // prompt and generated
    int generated = 0;
    Instant arrived, started;
    Instant covered;  // up to here its time is in `times`
    RequestTimes times;
    int fruitless = 0;  // groups lost since its last token
  };
  struct Flight {        // a batch on a stage of a group
    uint64_t batch = 0;  // last number used on this stage
    uint64_t trace_id = 0;
    Instant sent;
    Instant watched;  // the watchdog counts from here
    const BatchPlan* plan = nullptr;
    bool running = false;
  };
  enum class GroupState : uint8_t { up, fencing, lost, retired };
  struct Group {
    uint64_t epoch = 1;
    GroupState state = GroupState::up;
    Instant fenced{0};  // fencing: when it was announced last
  };
  struct Event {
    Engine::OnToken on_token;
    TokenEvent event;
  };

  Flight& flight(int group, int stage) {
    return flights_[static_cast<size_t>(group * geometry_.stages + stage)];
  }
  int collect(Instant now);
  void read_result(int group, int stage, Instant now);
  void account(const Flight& flight, const BatchTimes& times, Instant now);
  Status admit(uint64_t handle, const EngineRequest& request, Instant now);
  void expire(Instant now);
  void drop_deadline(uint64_t handle, const Live& live);
  void on_token(const ResultEntry& entry, const float* logits, Instant now);
  void enter(Instant now);
  int launch(Instant now);
  void send_command(const BatchPlan& plan, Flight& flight);
  void watch(Instant now);
  void fail_sequences(const std::vector<uint64_t>& sequences, const Error& error, Instant now);
  void fail_all(const Error& error, Instant now);
  void give_up(int group, const Error& error, Instant now);
  int lose(int group, const std::string& cause, Instant now);
  void retire(int group, const Error& error, Instant now);
  int rejoin(Instant now);
  void abandon_unwanted();
  bool fenced(int group) const;
  void announce(int group, Instant now);
  Status validate(const EngineRequest& request) const;

  const Geometry geometry_;
  const SchedulerLimits limits_;
  const int max_model_len_;
  const Duration watchdog_;
  const Duration front_cost_;  // priced kernels: what the front does before a request can run
  const std::vector<int> eos_ids_;
  const AttentionLayout attention_layout_;
  const FrontLayout layout_;
  std::unique_ptr<Port> port_;
  Tracer tracer_;
  const ExpertLayout expert_layout_;
  std::function<std::string()> describe_;
  std::function<void(int, const std::string&)> give_up_;
  std::function<void(int)> fence_;

  mutable std::mutex mutex_;  // guards what follows
  std::unique_ptr<SchedulerPolicy> policy_;
  Admission admission_;
  std::set<std::pair<Instant, uint64_t>> deadlines_;  // of requests that may not have started yet
  std::unordered_map<uint64_t, Live> live_;
  struct Entering {
    uint64_t handle;
    double cost;
  };
  std::deque<Entering> entering_;  // in the front's hands, by arrival (priced kernels)
  double entering_cost_ = 0;
  std::vector<Flight> flights_;  // [D·R]
  std::vector<Group> groups_;    // [D]
  int experts_away_ = 0;         // expert ranks that are being restarted
  uint64_t fences_ = 0;          // announced so far
  bool draining_ = false;
  bool cancelled_ = false;      // since abandon_unwanted() looked
  std::optional<Error> fault_;  // nothing can be served any more
  std::vector<Event> events_;   // to be delivered once the mutex is free
  uint64_t next_handle_ = 1;
  uint64_t next_trace_id_ = 1;
  Instant last_watch_{0};
  EngineStats totals_;
  RowHistogram batch_tokens_;
  std::vector<std::byte> command_;  // scratch
  std::vector<LogitBias> biases_;   // scratch
};

}  // namespace asap
