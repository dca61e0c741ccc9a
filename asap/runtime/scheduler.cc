#include "asap/runtime/scheduler.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "asap/base/check.h"
#include "asap/runtime/sampling.h"
#include "asap/runtime/scheduling.h"

namespace asap {

namespace {

constexpr const char* kDraining = "the server is draining and takes no new requests; ask another";

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

constexpr Duration kWatchInterval = Duration::millis(500);
// A fence without answer is announced again: an expert rank that dies takes answers with it.
constexpr Duration kFenceInterval = Duration::millis(1);
// Groups that a request may lose without a new token in between.
constexpr int kFruitlessRuns = 5;

}  // namespace

Scheduler::Scheduler(const EngineConfig& config, const EnginePlan& plan, const ModelSpec& spec,
                     std::unique_ptr<Port> port, Tracer tracer)
    : geometry_(plan.geometry),
      limits_(scheduler_limits(*resolve_scheduling(config), plan, spec.layers)),
      max_model_len_(plan.max_model_len),
      watchdog_(Duration::seconds(config.watchdog_timeout_s)),
      front_cost_(config.ops == "priced"
                      ? Duration::seconds(plan.profile.request * 1e-3 * config.time_scale)
                      : Duration{0}),
      eos_ids_(spec.eos_ids),
      attention_layout_(plan.geometry),
      layout_(plan.geometry),
      port_(std::move(port)),
      tracer_(tracer),
      expert_layout_(plan.geometry),
      policy_(make_scheduler_policy(limits_)),
      admission_(Duration::seconds(config.max_queued_s)),
      flights_(sz(geometry_.groups * geometry_.stages)),
      groups_(sz(geometry_.groups)) {
  static_assert(kKvBlockTokens == kKvBlock, "policy and kernels disagree on the KV block");
}

Status Scheduler::validate(const EngineRequest& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const SamplingParams& p = request.sampling;
  if (prompt == 0) return fail(Code::invalid, "the prompt is empty; give at least one token");
  if (p.max_tokens < 1) {
    return fail(Code::invalid, "max_tokens is {}; it must be at least 1", p.max_tokens);
  }
  if (prompt + p.max_tokens > max_model_len_) {
    return fail(Code::invalid,
                "the prompt has {} tokens and max_tokens is {}, together {}; this model's maximum "
                "context length is {} tokens",
                prompt, p.max_tokens, prompt + p.max_tokens, max_model_len_);
  }
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= geometry_.vocab) {
      return fail(Code::invalid, "token id {} is outside the vocabulary [0, {})", token,
                  geometry_.vocab);
    }
  }
  ASAP_TRY(check_sampling(p, geometry_.vocab));
  CHECK(!p.want_logits || geometry_.logits_rows > 0, "logits wanted, but no room for them");
  return {};
}

Result<uint64_t> Scheduler::submit(EngineRequest request, Engine::OnToken on_token, Instant now) {
  ASAP_TRY(validate(request));
  const std::lock_guard lock(mutex_);
  if (fault_) return tl::unexpected<Error>(*fault_);
  if (draining_) {
    return fail(Code::unavailable, "{}", kDraining);
  }
  const double cost = limits_.cost.piece(static_cast<int>(request.prompt.size()), 0);
  ASAP_TRY(admission_.check(policy_->book().queue(), cost,
                            queue_key(limits_, cost, request.priority, now), request.queue_timeout,
                            entering_cost_));
  const uint64_t handle = next_handle_;
  if (front_cost_.ns == 0) {
    ASAP_TRY(admit(handle, request, now));
  } else {
    entering_.push_back({handle, cost});
    entering_cost_ += cost;
  }
  ++next_handle_;
  if (request.queue_timeout.ns > 0) deadlines_.emplace(now + request.queue_timeout, handle);
  Live live;
  live.tokens = request.prompt;
  live.request = std::move(request);
  live.on_token = std::move(on_token);
  live.arrived = now;
  live.covered = now + front_cost_;
  live_.emplace(handle, std::move(live));
  return handle;
}

Status Scheduler::check_room(Instant now) const {
  const std::lock_guard lock(mutex_);
  if (fault_) return tl::unexpected<Error>(*fault_);
  if (draining_) return fail(Code::unavailable, "{}", kDraining);
  const WaitQueue& queue = policy_->book().queue();
  ASAP_TRY(policy_->book().check_room(1));
  return admission_.check(queue, 0, now.ns, {}, entering_cost_);
}

Status Scheduler::admit(uint64_t handle, const EngineRequest& request, Instant now) {
  return policy_->admit(handle, static_cast<int>(request.prompt.size()),
                        request.sampling.max_tokens, now, request.priority);
}

// Requests that no batch took in the time they were given.
void Scheduler::expire(Instant now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const uint64_t handle = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    const auto found = live_.find(handle);
    if (found == live_.end()) continue;
    const double waited = found->second.request.queue_timeout.to_seconds();
    policy_->on_cancel(handle);
    fail_sequences({handle},
                   {Code::deadline,
                    fmt::format("the request waited {:.1f} s without being started, the time it "
                                "was given (--queue-timeout-s, X-Queue-Timeout-S)",
                                waited)},
                   now);
  }
}

void Scheduler::cancel(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  policy_->on_cancel(handle);
  const auto found = live_.find(handle);
  if (found == live_.end()) return;
  drop_deadline(handle, found->second);
  live_.erase(found);
  cancelled_ = true;
}

void Scheduler::drop_deadline(uint64_t handle, const Live& live) {
  if (live.request.queue_timeout.ns <= 0) return;
  deadlines_.erase({live.arrived + live.request.queue_timeout, handle});
}

// Batches of which every sequence was cancelled end before their next layer. One that has mates
// goes on for them; its blocks are free when the batch is done.
void Scheduler::abandon_unwanted() {
  if (!cancelled_ || geometry_.lockstep) return;
  cancelled_ = false;
  for (size_t i = 0; i < flights_.size(); ++i) {
    const Flight& f = flights_[i];
    if (!f.running) continue;
    const auto& pieces = f.plan->pieces;
    if (std::any_of(pieces.begin(), pieces.end(),
                    [&](const BatchPiece& piece) { return live_.contains(piece.sequence); })) {
      continue;
    }
    port_->put_flag(attention_device(geometry_, f.plan->group, 0),
                    attention_layout_.abandon.flag(f.plan->stage),
                    make_flag(groups_[sz(f.plan->group)].epoch, f.batch));
  }
}

EngineStats Scheduler::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats out = totals_;
  out.running = policy_->running();
  out.waiting = policy_->waiting();
  out.waiting_tokens = policy_->waiting_tokens();
  out.kv_usage = policy_->kv_usage();
  out.waiting_seconds = admission_.waiting_seconds(policy_->book().queue());
  batch_tokens_.add_to(out.batch_tokens);
  out.groups.resize(sz(geometry_.groups));
  for (size_t i = 0; i < flights_.size(); ++i) {
    if (!flights_[i].running) continue;
    GroupLoad& load = out.groups[i / sz(geometry_.stages)];
    ++load.stages_live;
    load.tokens += flights_[i].plan->tokens;
    load.cost += limits_.cost.of(*flights_[i].plan);
  }
  return out;
}

int Scheduler::do_work(Instant now) {
  std::vector<Event> events;
  int done = 0;
  {
    const std::lock_guard lock(mutex_);
    done += rejoin(now);
    done += collect(now);
    abandon_unwanted();
    expire(now);
    done += launch(now);
    if (now - last_watch_ > kWatchInterval) watch(now);
    events.swap(events_);
  }
  for (Event& e : events) e.on_token(std::move(e.event));
  return done + static_cast<int>(events.size());
}

Instant Scheduler::wake_at() const {
  const std::lock_guard lock(mutex_);
  const auto next = entering_.empty() ? live_.end() : live_.find(entering_.front().handle);
  const Instant deadline = deadlines_.empty() ? Instant::never() : deadlines_.begin()->first;
  Instant at = std::min({policy_->wake_at(), deadline,
                         next == live_.end() ? Instant::never() : next->second.covered});
  for (const Group& group : groups_) {
    if (group.state == GroupState::fencing) at = std::min(at, group.fenced + kFenceInterval);
  }
  return at;
}

int Scheduler::collect(Instant now) {
  int done = 0;
  for (int group = 0; group < geometry_.groups; ++group) {
    for (int stage = 0; stage < geometry_.stages; ++stage) {
      const Flight& f = flight(group, stage);
      if (!f.running) continue;
      const uint64_t at = layout_.result.flag(layout_.slot(group, stage));
      if (load_flag(port_->window() + at) != make_flag(groups_[sz(group)].epoch, f.batch)) continue;
      read_result(group, stage, now);
      ++done;
    }
  }
  return done;
}

void Scheduler::read_result(int group, int stage, Instant now) {
  Flight& f = flight(group, stage);
  const std::byte* payload = port_->window() + layout_.result.payload(layout_.slot(group, stage));
  ResultHeader header;
  std::memcpy(&header, payload, sizeof(header));
  CHECK(header.magic == kResultMagic && header.batch == f.batch &&
            header.epoch == groups_[sz(group)].epoch && header.samples >= 0 &&
            header.samples <= geometry_.max_batch_seqs,
        "result of g{} stage {}: magic {:#x}, batch {}, {} samples; expected batch {}", group,
        stage, header.magic, header.batch, header.samples, f.batch);
  account(f, header.times, now);
  for (int i = 0; i < header.samples; ++i) {
    ResultEntry entry;
    std::memcpy(&entry, payload + layout_.entries_at + sz(i) * sizeof(entry), sizeof(entry));
    const float* logits = nullptr;
    if (entry.logits_row >= 0 && entry.logits_row < geometry_.logits_rows) {
      logits = reinterpret_cast<const float*>(payload + layout_.logits_at) +
               sz(entry.logits_row) * sz(geometry_.vocab);
    }
    on_token(entry, logits, now);
  }
  f.running = false;
  admission_.on_done(limits_.cost.of(*f.plan) - limits_.cost.batch, policy_->waiting() > 0, now);
  policy_->on_batch_done(group, stage);
  TraceEvent event;
  event.batch = f.trace_id;
  event.op = TraceOp::batch;
  event.group = static_cast<int16_t>(group);
  event.stage = static_cast<int16_t>(stage);
  tracer_.add(event, f.sent);
}

// Adds a batch's times to its requests'. Parts of a prompt that ran at the same time count once: of
// each batch only the share after what is covered already.
void Scheduler::account(const Flight& f, const BatchTimes& t, Instant now) {
  for (const BatchPiece& piece : f.plan->pieces) {
    const auto found = live_.find(piece.sequence);
    if (found == live_.end() || found->second.generated > 0) continue;
    Live& live = found->second;
    const Instant from = std::max(f.sent, live.covered);
    live.times.queueing_ns += (from - live.covered).ns;
    live.covered = now;
    if (now <= f.sent) continue;
    const double share =
        static_cast<double>((now - from).ns) / static_cast<double>((now - f.sent).ns);
    const auto add = [&](int64_t& to, int64_t ns) {
      to += static_cast<int64_t>(share * static_cast<double>(ns));
    };
    add(live.times.attention_ns, t.attention_ns);
    add(live.times.experts_ns, t.experts_ns);
    add(live.times.dispatch_ns, t.dispatch_ns);
    add(live.times.combine_ns, t.combine_ns);
    add(live.times.turn_ns, t.turn_ns);
    add(live.times.barrier_ns, t.barrier_ns);
  }
}

void Scheduler::on_token(const ResultEntry& entry, const float* logits, Instant now) {
  const auto found = live_.find(entry.sequence);
  if (found == live_.end()) return;  // cancelled in flight; the policy lets it go with the batch
  Live& live = found->second;
  const SamplingParams& p = live.request.sampling;
  CHECK(entry.token >= 0 && entry.token < geometry_.vocab && entry.tops >= 0 &&
        entry.tops <= kMaxLogprobs);
  live.tokens.push_back(entry.token);
  ++live.generated;
  live.fruitless = 0;
  TokenEvent event;
  event.token = entry.token;
  event.logprob = entry.logprob;
  for (int i = 0; i < entry.tops; ++i) {
    event.top_logprobs.emplace_back(entry.top_ids[i], entry.top_logprobs[i]);
  }
  if (logits != nullptr) event.logits.assign(logits, logits + geometry_.vocab);
  event.finish = ends_output(p, eos_ids_, entry.token) ? Finish::stop
                 : live.generated == p.max_tokens      ? Finish::length
                                                       : Finish::none;
  event.arrived = live.arrived;
  event.started = live.started;
  event.emitted = now;
  event.times = live.times;
  const bool finished = event.finish != Finish::none;
  if (live.generated == 1) {
    totals_.prompt_tokens += static_cast<int64_t>(live.request.prompt.size());
    TraceEvent span;
    span.batch = entry.sequence;
    span.op = TraceOp::request;
    tracer_.add(span, live.arrived);
  }
  ++totals_.generation_tokens;
  policy_->on_sampled(entry.sequence, finished);
  events_.push_back({live.on_token, std::move(event)});
  if (finished) live_.erase(found);
}

// What the front has done its part for.
void Scheduler::enter(Instant now) {
  while (!entering_.empty()) {
    const auto [handle, cost] = entering_.front();
    const auto found = live_.find(handle);
    if (found != live_.end()) {
      if (found->second.covered > now) return;
      const EngineRequest& request = found->second.request;
      const Status admitted = admit(handle, request, found->second.covered);
      if (!admitted) fail_sequences({handle}, admitted.error(), now);
    }
    entering_.pop_front();
    entering_cost_ = entering_.empty() ? 0 : entering_cost_ - cost;
  }
}

int Scheduler::launch(Instant now) {
  enter(now);
  int done = 0;
  while (const auto plan = policy_->next(now)) {
    Flight& f = flight(plan->group, plan->stage);
    ++f.batch;
    f.trace_id = next_trace_id_++;
    f.sent = now;
    f.watched = now;
    f.plan = plan;
    f.running = true;
    for (const BatchPiece& piece : plan->pieces) {
      Live& live = live_.at(piece.sequence);
      if (live.started.ns != 0) continue;
      live.started = now;
      drop_deadline(piece.sequence, live);
    }
    send_command(*plan, f);
    totals_.batches += plan->pieces.empty() ? 0 : 1;
    if (plan->tokens > 0) batch_tokens_.add(plan->tokens);
    ++done;
  }
  return done;
}

// The same bytes to every rank of the group.
void Scheduler::send_command(const BatchPlan& plan, Flight& f) {
  command_.clear();
  const auto append = [&](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    command_.insert(command_.end(), from, from + bytes);
  };
  const uint64_t epoch = groups_[sz(plan.group)].epoch;
  BatchCommand command{kCommandMagic,
                       static_cast<uint32_t>(epoch),
                       f.batch,
                       static_cast<int32_t>(plan.pieces.size()),
                       plan.tokens,
                       0,
                       0,
                       0,
                       0,
                       f.trace_id};
  for (const BatchPiece& piece : plan.pieces) {
    command.blocks += static_cast<int32_t>(policy_->blocks(piece.sequence).size());
    command.samples += piece.sample ? 1 : 0;
  }
  append(&command, sizeof(command));
  biases_.clear();
  int32_t logits_rows = 0;
  for (const BatchPiece& piece : plan.pieces) {
    const Live& live = live_.at(piece.sequence);
    const SamplingParams& p = live.request.sampling;
    SequenceCommand s{};
    s.sequence = piece.sequence;
    s.past = piece.past;
    s.tokens = piece.tokens;
    s.prompt = static_cast<int32_t>(live.request.prompt.size());
    s.blocks = static_cast<int32_t>(policy_->blocks(piece.sequence).size());
    s.sample = piece.sample ? 1 : 0;
    s.logits_row = piece.sample && p.want_logits && live.generated == 0 ? logits_rows++ : -1;
    put_sampling(p, eos_ids_, live.generated, &s, &biases_);
    s.follows = piece.follows;
    s.follows_batch = piece.follows < 0 ? 0 : flight(plan.group, piece.follows).batch;
    append(&s, sizeof(s));
  }
  for (const BatchPiece& piece : plan.pieces) {
    const auto blocks = policy_->blocks(piece.sequence);
    append(blocks.data(), blocks.size_bytes());
  }
  for (const BatchPiece& piece : plan.pieces) {
    const Live& live = live_.at(piece.sequence);
    append(live.tokens.data() + piece.past, sz(piece.tokens) * sizeof(int32_t));
  }
  command.biases = static_cast<int32_t>(biases_.size());
  std::memcpy(command_.data(), &command, sizeof(command));
  append(biases_.data(), biases_.size() * sizeof(LogitBias));
  const uint64_t at = attention_layout_.command.payload(plan.stage);
  CHECK(command_.size() <= attention_layout_.command.payload_bytes());
  for (int t = 0; t < geometry_.ranks; ++t) {
    const int device = attention_device(geometry_, plan.group, t);
    port_->put(device, at, command_.data(), command_.size());
    port_->put_flag(device, attention_layout_.command.flag(plan.stage), make_flag(epoch, f.batch));
  }
}

// A batch without answer for too long: say who waits for whom, and give its group up. A worker that
// hangs is found by the supervisor before that: a batch may take half as long again.
void Scheduler::watch(Instant now) {
  last_watch_ = now;
  if (experts_away_ > 0) return;
  const Duration limit = Duration{watchdog_.ns / 2 * 3};
  for (int group = 0; group < geometry_.groups; ++group) {
    for (int stage = 0; stage < geometry_.stages; ++stage) {
      Flight& f = flight(group, stage);
      if (!f.running || now - f.watched < limit) continue;
      f.watched = now;
      const Error error{Code::unavailable,
                        fmt::format("batch {} on g{} stage {} got no answer for {:.0f} s "
                                    "(--watchdog-timeout); {}",
                                    f.batch, group, stage, (now - f.sent).to_seconds(),
                                    describe_ ? describe_() : "")};
      spdlog::error("{}", error.message);
      if (give_up_) {
        give_up_(group, error.message);
      } else {
        give_up(group, error, now);
      }
    }
  }
}

void Scheduler::fail_sequences(const std::vector<uint64_t>& sequences, const Error& error,
                               Instant now) {
  for (const uint64_t id : sequences) {
    const auto found = live_.find(id);
    if (found == live_.end()) continue;
    TokenEvent event;
    event.finish = Finish::error;
    event.error = error;
    event.arrived = found->second.arrived;
    event.started = found->second.started;
    event.emitted = now;
    events_.push_back({std::move(found->second.on_token), std::move(event)});
    live_.erase(found);
  }
}

// In lockstep no group goes on without the others.
void Scheduler::give_up(int group, const Error& error, Instant now) {
  const int first = geometry_.lockstep ? 0 : group;
  const int last = geometry_.lockstep ? geometry_.groups - 1 : group;
  for (int g = first; g <= last; ++g) retire(g, error, now);
}

// What has lived in the group waits again, in the place that its arrival gives it.
int Scheduler::lose(int group, const std::string& cause, Instant now) {
  Group& state = groups_[sz(group)];
  if (state.state == GroupState::retired) return 0;
  state.state = GroupState::lost;
  for (int r = 0; r < geometry_.stages; ++r) flight(group, r) = {};
  int again = 0;
  for (const uint64_t id : policy_->on_group_lost(group)) {
    const auto found = live_.find(id);
    if (found == live_.end()) continue;
    Live& live = found->second;
    if (++live.fruitless > kFruitlessRuns) {
      fail_sequences({id},
                     {Code::unavailable,
                      fmt::format("its group was lost {} times while it worked on this request, "
                                  "which may be the reason; the last time {}",
                                  live.fruitless, cause)},
                     now);
      continue;
    }
    policy_->requeue(id, static_cast<int>(live.tokens.size()),
                     live.request.sampling.max_tokens - live.generated, live.arrived,
                     live.request.priority);
    ++again;
  }
  totals_.requests_rerun += again;
  return again;
}

void Scheduler::retire(int group, const Error& error, Instant now) {
  lose(group, error.message, now);
  groups_[sz(group)].state = GroupState::retired;
  const bool left = std::any_of(groups_.begin(), groups_.end(),
                                [](const Group& g) { return g.state != GroupState::retired; });
  if (!left) fail_all(error, now);
}

void Scheduler::fail_all(const Error& error, Instant now) {
  fault_ = error;
  std::vector<uint64_t> all;
  for (const auto& [id, live] : live_) all.push_back(id);
  std::sort(all.begin(), all.end());
  for (const uint64_t id : all) policy_->on_cancel(id);
  fail_sequences(all, error, now);
}

void Scheduler::end_all(const Error& error, Instant now) {
  const std::lock_guard lock(mutex_);
  fail_all(error, now);
  cancelled_ = true;
}

int Scheduler::lose_group(int group, const std::string& cause, Instant now) {
  const std::lock_guard lock(mutex_);
  return lose(group, cause, now);
}

void Scheduler::retire_group(int group, const Error& error, Instant now) {
  const std::lock_guard lock(mutex_);
  give_up(group, error, now);
}

void Scheduler::retire_instance(const Error& error, Instant now) {
  const std::lock_guard lock(mutex_);
  for (int group = 0; group < geometry_.groups; ++group) retire(group, error, now);
}

void Scheduler::restore_group(int group, uint64_t epoch, Instant now) {
  const std::lock_guard lock(mutex_);
  Group& state = groups_[sz(group)];
  if (state.state == GroupState::retired) return;
  CHECK(epoch > state.epoch && state.state != GroupState::up, "g{} returns at epoch {} after {}",
        group, epoch, state.epoch);
  state.epoch = epoch;
  state.state = GroupState::fencing;
  announce(group, now);
}

// To every expert rank, whether or not its process is there: its successor reads the window, too.
void Scheduler::announce(int group, Instant now) {
  groups_[sz(group)].fenced = now;
  const uint64_t flag = make_flag(groups_[sz(group)].epoch, ++fences_);
  for (int e = 0; e < geometry_.expert_ranks; ++e) {
    port_->put_flag(expert_device(geometry_, e), expert_layout_.fence.flag(group), flag);
  }
}

bool Scheduler::fenced(int group) const {
  for (int e = 0; e < geometry_.expert_ranks; ++e) {
    const uint64_t at = layout_.fenced.flag(layout_.fenced_slot(group, e));
    if (flag_epoch(load_flag(port_->window() + at)) != groups_[sz(group)].epoch) return false;
  }
  return true;
}

// Groups that all expert ranks have acknowledged.
int Scheduler::rejoin(Instant now) {
  int done = 0;
  // In lockstep a step needs all groups: none goes ahead of the others.
  bool together = true;
  for (int g = 0; geometry_.lockstep && g < geometry_.groups; ++g) {
    together = together && groups_[sz(g)].state == GroupState::fencing && fenced(g);
  }
  for (int g = 0; g < geometry_.groups; ++g) {
    Group& group = groups_[sz(g)];
    if (group.state != GroupState::fencing) continue;
    if (together && fenced(g)) {
      for (int t = 0; fence_ && t < geometry_.ranks; ++t) fence_(attention_device(geometry_, g, t));
      group.state = GroupState::up;
      policy_->on_group_back(g);
      ++done;
    } else if (now - group.fenced >= kFenceInterval) {
      announce(g, now);
    }
  }
  return done;
}

void Scheduler::on_expert_rank(bool up, Instant now) {
  const std::lock_guard lock(mutex_);
  experts_away_ += up ? -1 : 1;
  for (Flight& f : flights_) f.watched = now;
}

void Scheduler::drain(bool on) {
  const std::lock_guard lock(mutex_);
  draining_ = on;
}

bool Scheduler::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

bool Scheduler::drained() const {
  const std::lock_guard lock(mutex_);
  return draining_ && live_.empty() && events_.empty();
}

std::string Scheduler::in_flight() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (size_t i = 0; i < flights_.size(); ++i) {
    const Flight& f = flights_[i];
    if (!f.running) continue;
    out += fmt::format("g{} stage {} batch {} tokens {} sequences", i / sz(geometry_.stages),
                       i % sz(geometry_.stages), f.batch, f.plan->tokens);
    for (const BatchPiece& piece : f.plan->pieces) {
      const auto found = live_.find(piece.sequence);
      out += fmt::format(" {}[{}+{}]{}", piece.sequence, piece.past, piece.tokens,
                         found == live_.end() ? " cancelled" : "");
    }
    out += "\n";
  }
  return out;
}

}  // namespace asap
