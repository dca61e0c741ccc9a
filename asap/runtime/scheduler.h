// Scheduler: the front's agent. It turns submitted requests into batches
// (policy/scheduler_policy.h), writes commands to the ranks of a group, reads results, and hands
// tokens to whoever asked.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

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
  Result<uint64_t> submit(EngineRequest request, Engine::OnToken on_token, Instant now);
  void cancel(uint64_t handle);
  EngineStats stats() const;
  // A group, or everything, is gone: requests that it touched end with `error`; waiting ones go to
  // other groups.
  void lose_group(int group, const Error& error, Instant now);
  void lose_instance(const Error& error, Instant now);
  // Words about who waits for whom, for the message about a batch without answer.
  void on_stuck(std::function<std::string()> describe) { describe_ = std::move(describe); }

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
  };
  struct Flight {        // a batch on a stage of a group
    uint64_t batch = 0;  // last number used on this stage
    uint64_t trace_id = 0;
    Instant sent;
    const BatchPlan* plan = nullptr;
    bool running = false;
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
  void on_token(const ResultEntry& entry, const float* logits, Instant now);
  void enter(Instant now);
  int launch(Instant now);
  void send_command(const BatchPlan& plan, Flight& flight);
  void watch(Instant now);
  void fail_sequences(const std::vector<uint64_t>& sequences, const Error& error, Instant now);
  void give_up(int group, const Error& error, Instant now);
  void lose(int group, const Error& error, Instant now);
  Status validate(const EngineRequest& request) const;

  const Geometry geometry_;
  const int max_model_len_;
  const Duration watchdog_;
  const Duration front_cost_;  // priced kernels: what the front does before a request can run
  const std::vector<int> eos_ids_;
  const AttentionLayout attention_layout_;
  const FrontLayout layout_;
  const uint64_t epoch_ = 1;
  std::unique_ptr<Port> port_;
  Tracer tracer_;
  std::function<std::string()> describe_;

  mutable std::mutex mutex_;  // guards what follows
  std::unique_ptr<SchedulerPolicy> policy_;
  std::unordered_map<uint64_t, Live> live_;
  std::deque<uint64_t> entering_;  // in the front's hands, by arrival (priced kernels)
  std::vector<Flight> flights_;    // [D·R]
  std::vector<uint8_t> lost_;      // [D]
  std::optional<Error> fault_;     // nothing can be served any more
  std::vector<Event> events_;      // to be delivered once the mutex is free
  uint64_t next_handle_ = 1;
  uint64_t next_trace_id_ = 1;
  Instant last_watch_{0};
  EngineStats totals_;
  std::vector<std::byte> command_;  // scratch
};

}  // namespace asap
