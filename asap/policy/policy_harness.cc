#include "asap/policy/policy_harness.h"

#include <fmt/format.h>

#include <cstdio>
#include <sstream>

#include "asap/base/check.h"

namespace asap {

PolicyHarness::PolicyHarness(const SchedulerLimits& limits)
    : limits_(limits), policy_(make_scheduler_policy(limits)) {}

Status PolicyHarness::arrive(uint64_t id, int prompt, int max_tokens, Instant now) {
  ASAP_TRY(policy_->admit(id, prompt, max_tokens, now, 0));
  live_[id] = {prompt, max_tokens};
  return {};
}

void PolicyHarness::cancel(uint64_t id) {
  policy_->on_cancel(id);
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  found->second.cancelled = true;
  if (found->second.running == 0) live_.erase(found);
}

std::vector<BatchPlan> PolicyHarness::start(Instant now) {
  std::vector<BatchPlan> plans;
  while (const BatchPlan* plan = policy_->next(now)) {
    take(*plan, now);
    plans.push_back(*plan);
  }
  return plans;
}

void PolicyHarness::take(const BatchPlan& plan, Instant now) {
  const std::pair slot{plan.group, plan.stage};
  CHECK(!plans_.contains(slot), "g{} stage {} runs two batches", plan.group, plan.stage);
  CHECK((limits_.lockstep || !plan.pieces.empty()) && plan.tokens <= limits_.max_batch_tokens);
  for (const BatchPiece& piece : plan.pieces) {
    Request& r = live_.at(piece.sequence);
    CHECK((r.running == 0 || limits_.chain) && !r.cancelled, "sequence {} runs twice",
          piece.sequence);
    CHECK(piece.follows == r.last_stage && piece.follows != plan.stage,
          "sequence {}: a part on stage {} follows stage {}, the one before it is on {}",
          piece.sequence, plan.stage, piece.follows, r.last_stage);
    CHECK(r.group < 0 || r.group == plan.group, "sequence {} moved", piece.sequence);
    CHECK(piece.past == r.computed && piece.tokens > 0, "sequence {}", piece.sequence);
    const int end = piece.past + piece.tokens;
    CHECK(end <= r.prompt + r.sampled && piece.sample == (end == r.prompt + r.sampled));
    const auto blocks = policy_->blocks(piece.sequence);
    CHECK(static_cast<int64_t>(blocks.size()) >= KvBlocks::blocks_for(end));
    if (r.started == Instant::never()) r.started = now;
    r.computed = end;
    r.group = plan.group;
    ++r.running;
    r.last_stage = plan.stage;
    tokens_computed += piece.tokens;
  }
  plans_[slot] = plan;
}

void PolicyHarness::finish(int group, int stage) {
  const BatchPlan plan = plans_.at({group, stage});
  plans_.erase({group, stage});
  for (const BatchPiece& piece : plan.pieces) {
    Request& r = live_.at(piece.sequence);
    --r.running;
    if (r.last_stage == stage) r.last_stage = -1;
    if (r.cancelled) {
      if (r.running == 0) live_.erase(piece.sequence);
      continue;
    }
    if (!piece.sample) continue;
    ++r.sampled;
    const bool last = r.sampled == r.max_tokens;
    policy_->on_sampled(piece.sequence, last);
    if (!last) continue;
    CHECK(r.computed == r.prompt + r.max_tokens - 1, "sequence {}", piece.sequence);
    ++finished;
    r.cancelled = true;
    if (r.running == 0) live_.erase(piece.sequence);
  }
  policy_->on_batch_done(group, stage);
}

std::vector<uint64_t> PolicyHarness::lose(int group) {
  const std::vector<uint64_t> lost = policy_->on_group_lost(group);
  size_t expected = 0;
  for (const auto& [id, r] : live_) expected += r.group == group && !r.cancelled ? 1 : 0;
  CHECK(lost.size() == expected, "{} lost, {} lived in g{}", lost.size(), expected, group);
  lost_.clear();
  for (const uint64_t id : lost) lost_[id] = live_.at(id);
  std::erase_if(live_, [&](const auto& entry) { return entry.second.group == group; });
  std::erase_if(plans_, [&](const auto& entry) { return entry.first.first == group; });
  return lost;
}

void PolicyHarness::requeue(uint64_t id, Instant arrival) {
  const Request& r = lost_.at(id);
  policy_->requeue(id, r.prompt + r.sampled, r.max_tokens - r.sampled, arrival, 0);
  live_[id] = {r.prompt + r.sampled, r.max_tokens - r.sampled};
}

std::vector<std::pair<int, int>> PolicyHarness::running() const {
  std::vector<std::pair<int, int>> slots;
  for (const auto& [slot, plan] : plans_) slots.push_back(slot);
  return slots;
}

void PolicyHarness::check() const {
  policy_->check();
  size_t resident = 0;
  for (const auto& [id, r] : live_) resident += r.group >= 0 ? 1 : 0;
  CHECK(policy_->running() == static_cast<int>(resident));
  CHECK(policy_->waiting() == static_cast<int>(live_.size() - resident));
  std::map<int, int> batches;
  for (const auto& [slot, plan] : plans_) ++batches[slot.first];
  for (const auto& [slot, plan] : plans_) CHECK(!plan.exclusive || batches[slot.first] == 1);
}

namespace {

std::string show(const BatchPlan& plan) {
  std::string text = fmt::format("g{}s{}[", plan.group, plan.stage);
  for (size_t i = 0; i < plan.pieces.size(); ++i) {
    const BatchPiece& p = plan.pieces[i];
    text += fmt::format("{}{}:{}+{}{}", i == 0 ? "" : " ", p.sequence, p.past, p.tokens,
                        p.sample ? "*" : "");
    if (p.follows >= 0) text += fmt::format("<s{}", p.follows);
  }
  return text + "]";
}

// Applies one event; returns what it alone brought about.
std::string apply(PolicyHarness& harness, const std::string& event, Instant now) {
  unsigned long long id = 0;
  int a = 0;
  int b = 0;
  if (std::sscanf(event.c_str(), "+%llu:%d/%d", &id, &a, &b) == 3) {
    const Status status = harness.arrive(id, a, b, now);
    if (status) return "";
    return status.error().code == Code::overloaded ? " refused(overloaded)" : " refused(invalid)";
  }
  if (std::sscanf(event.c_str(), "-%llu", &id) == 1) {
    harness.cancel(id);
  } else if (std::sscanf(event.c_str(), "done g%ds%d", &a, &b) == 2) {
    harness.finish(a, b);
  } else if (std::sscanf(event.c_str(), "lost g%d", &a) == 1) {
    return fmt::format(" lost({})", fmt::join(harness.lose(a), " "));
  } else if (std::sscanf(event.c_str(), "back g%d", &a) == 1) {
    harness.bring_back(a);
  } else {
    CHECK(event == ".", "unknown event \"{}\"", event);
  }
  return "";
}

// Words of `text`, each after one space.
std::string words(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string word; in >> word;) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

}  // namespace

std::string tidy_table(const std::string& table) {
  std::istringstream lines(table);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (!words(line).empty()) out += words(line) + "\n";
  }
  return out;
}

std::string run_table(const SchedulerLimits& limits, const std::string& table) {
  PolicyHarness harness(limits);
  std::istringstream lines(tidy_table(table));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::string left = words(line.substr(0, line.find('|')));
    const size_t space = left.find(' ');
    CHECK(space != std::string::npos, "no event in \"{}\"", line);
    const Instant now = Instant{} + Duration::millis(std::stoll(left.substr(0, space)));
    out += left + " |";
    std::istringstream events(left.substr(space + 1));
    for (std::string event; std::getline(events, event, ',');) {
      out += apply(harness, words(event), now);
    }
    for (const BatchPlan& plan : harness.start(now)) {
      out += ' ';
      out += show(plan);
    }
    const Instant wake = harness.policy().wake_at();
    if (wake != Instant::never()) out += fmt::format(" wake@{}", wake.ns / 1'000'000);
    out += "\n";
    harness.check();
  }
  return out;
}

}  // namespace asap
