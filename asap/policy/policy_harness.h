// For tests: drives a SchedulerPolicy as the runtime does, with books of its own. Every plan is
// checked against them: nothing runs twice, skips or repeats a token, changes its group or exceeds
// its KV blocks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asap/policy/scheduler_policy.h"

namespace asap {

class PolicyHarness {
 public:
  struct Request {
    int prompt = 0;
    int max_tokens = 0;
    int computed = 0;
    int sampled = 0;
    int group = -1;
    int running = 0;         // batches with a part of it
    int last_stage = -1;     // where its newest part runs
    bool cancelled = false;  // or finished: leaves with its last running batch
    Instant started = Instant::never();
  };

  explicit PolicyHarness(const SchedulerLimits& limits);

  Status arrive(uint64_t id, int prompt, int max_tokens, Instant now);
  void cancel(uint64_t id);
  // Starts all batches that can start now.
  std::vector<BatchPlan> start(Instant now);
  // Ends the batch: every `sample` piece gets its token; a sequence ends at max_tokens.
  void finish(int group, int stage);
  std::vector<uint64_t> lose(int group);
  // One that was lost waits again, its sampled tokens as part of the prompt.
  void requeue(uint64_t id, Instant arrival);
  void bring_back(int group) { policy_->on_group_back(group); }

  SchedulerPolicy& policy() { return *policy_; }
  const std::map<uint64_t, Request>& live() const { return live_; }
  // (group, stage) of every running batch.
  std::vector<std::pair<int, int>> running() const;
  // Batches with an exclusive sequence have no neighbours, and other facts that hold at any time.
  void check() const;

  int64_t finished = 0;
  int64_t tokens_computed = 0;

 private:
  void take(const BatchPlan& plan, Instant now);

  const SchedulerLimits limits_;
  std::unique_ptr<SchedulerPolicy> policy_;
  std::map<uint64_t, Request> live_;
  std::map<uint64_t, Request> lost_;  // with their groups, the last time
  std::map<std::pair<int, int>, BatchPlan> plans_;
};

// Runs a table of events and returns it with what the policy did, in the same form:
//
//   <ms> <event>       | <action> ...
//   0 +1:1000/1        | g0s0[1:0+1000*]
//   30 .               |
//   40 done g0s0       | g0s0[1:1000+1*] wake@70
//
// Events: +id:prompt/max_tokens, -id (cancel), done g<G>s<R>, lost g<G>, back g<G>, "." (time
// passes). Actions: batches with pieces id:past+tokens, "*" where a token is sampled, "<s0" where
// the part before it still runs on stage 0;
// refused(code); lost(ids); wake@ms. What stands behind "|" in the input is ignored.
std::string run_table(const SchedulerLimits& limits, const std::string& table);

// `table` without indentation and doubled spaces, to compare with run_table's answer.
std::string tidy_table(const std::string& table);

}  // namespace asap
