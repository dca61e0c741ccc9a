#include "asap/runtime/scheduler.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "asap/base/check.h"
#include "asap/runtime/scheduling.h"

namespace asap {

namespace {

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

constexpr Duration kWatchInterval = Duration::seconds(1);

}  // namespace

Scheduler::Scheduler(const EngineConfig& config, const EnginePlan& plan, const ModelSpec& spec,
                     std::unique_ptr<Port> port, Tracer tracer)
    : geometry_(plan.geometry),
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
      policy_(
          make_scheduler_policy(scheduler_limits(*resolve_scheduling(config), plan, spec.layers))),
      flights_(sz(geometry_.groups * geometry_.stages)),
      lost_(sz(geometry_.groups), 0) {
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
  if (!std::isfinite(p.temperature) || p.temperature < 0) {
    return fail(Code::invalid, "temperature is {}; it must be a number of at least 0",
                p.temperature);
  }
  if (p.logprobs < -1 || p.logprobs > kMaxLogprobs) {
    return fail(Code::invalid, "logprobs is {}; it must be between 0 and {}", p.logprobs,
                kMaxLogprobs);
  }
  CHECK(!p.want_logits || geometry_.logits_rows > 0, "logits wanted, but no room for them");
  return {};
}

Result<uint64_t> Scheduler::submit(EngineRequest request, Engine::OnToken on_token, Instant now) {
  ASAP_TRY(validate(request));
  const std::lock_guard lock(mutex_);
  if (fault_) return tl::unexpected<Error>(*fault_);
  const uint64_t handle = next_handle_;
  if (front_cost_.ns == 0) {
    ASAP_TRY(policy_->admit(handle, static_cast<int>(request.prompt.size()),
                            request.sampling.max_tokens, now));
  } else {
    entering_.push_back(handle);
  }
  ++next_handle_;
  Live live;
  live.tokens = request.prompt;
  live.request = std::move(request);
  live.on_token = std::move(on_token);
  live.arrived = now;
  live.covered = now + front_cost_;
  live_.emplace(handle, std::move(live));
  return handle;
}

void Scheduler::cancel(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  policy_->on_cancel(handle);
  live_.erase(handle);
}

EngineStats Scheduler::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats out = totals_;
  out.running = policy_->running();
  out.waiting = policy_->waiting();
  out.waiting_tokens = policy_->waiting_tokens();
  out.kv_usage = policy_->kv_usage();
  return out;
}

int Scheduler::do_work(Instant now) {
  std::vector<Event> events;
  int done = 0;
  {
    const std::lock_guard lock(mutex_);
    done += collect(now);
    done += launch(now);
    if (now - last_watch_ > kWatchInterval) watch(now);
    events.swap(events_);
  }
  for (Event& e : events) e.on_token(std::move(e.event));
  return done + static_cast<int>(events.size());
}

Instant Scheduler::wake_at() const {
  const std::lock_guard lock(mutex_);
  const auto next = entering_.empty() ? live_.end() : live_.find(entering_.front());
  return std::min(policy_->wake_at(),
                  next == live_.end() ? Instant::never() : next->second.covered);
}

int Scheduler::collect(Instant now) {
  int done = 0;
  for (int group = 0; group < geometry_.groups; ++group) {
    for (int stage = 0; stage < geometry_.stages; ++stage) {
      const Flight& f = flight(group, stage);
      if (!f.running) continue;
      const uint64_t at = layout_.result.flag(layout_.slot(group, stage));
      if (load_flag(port_->window() + at) != make_flag(epoch_, f.batch)) continue;
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
  CHECK(header.magic == kResultMagic && header.batch == f.batch && header.epoch == epoch_ &&
            header.samples >= 0 && header.samples <= geometry_.max_batch_seqs,
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
  TokenEvent event;
  event.token = entry.token;
  event.logprob = entry.logprob;
  for (int i = 0; i < entry.tops; ++i) {
    event.top_logprobs.emplace_back(entry.top_ids[i], entry.top_logprobs[i]);
  }
  if (logits != nullptr) event.logits.assign(logits, logits + geometry_.vocab);
  const bool eos =
      !p.ignore_eos && std::find(eos_ids_.begin(), eos_ids_.end(), entry.token) != eos_ids_.end();
  event.finish = eos                              ? Finish::stop
                 : live.generated == p.max_tokens ? Finish::length
                                                  : Finish::none;
  event.arrived = live.arrived;
  event.started = live.started;
  event.emitted = now;
  event.times = live.times;
  const bool finished = event.finish != Finish::none;
  if (live.generated == 1)
    totals_.prompt_tokens += static_cast<int64_t>(live.request.prompt.size());
  ++totals_.generation_tokens;
  policy_->on_sampled(entry.sequence, finished);
  events_.push_back({live.on_token, std::move(event)});
  if (finished) live_.erase(found);
}

// What the front has done its part for.
void Scheduler::enter(Instant now) {
  while (!entering_.empty()) {
    const uint64_t handle = entering_.front();
    const auto found = live_.find(handle);
    if (found != live_.end()) {
      if (found->second.covered > now) return;
      const EngineRequest& request = found->second.request;
      const Status admitted = policy_->admit(handle, static_cast<int>(request.prompt.size()),
                                             request.sampling.max_tokens, found->second.covered);
      if (!admitted) fail_sequences({handle}, admitted.error(), now);
    }
    entering_.pop_front();
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
    f.plan = plan;
    f.running = true;
    for (const BatchPiece& piece : plan->pieces) {
      Live& live = live_.at(piece.sequence);
      if (live.started.ns == 0) live.started = now;
    }
    send_command(*plan, f);
    totals_.batches += plan->pieces.empty() ? 0 : 1;
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
  BatchCommand command{kCommandMagic,
                       static_cast<uint32_t>(epoch_),
                       f.batch,
                       static_cast<int32_t>(plan.pieces.size()),
                       plan.tokens,
                       0,
                       0,
                       f.trace_id};
  for (const BatchPiece& piece : plan.pieces) {
    command.blocks += static_cast<int32_t>(policy_->blocks(piece.sequence).size());
    command.samples += piece.sample ? 1 : 0;
  }
  append(&command, sizeof(command));
  int32_t logits_rows = 0;
  for (const BatchPiece& piece : plan.pieces) {
    const Live& live = live_.at(piece.sequence);
    const SamplingParams& p = live.request.sampling;
    SequenceCommand s{};
    s.sequence = piece.sequence;
    s.seed = p.seed;
    s.past = piece.past;
    s.tokens = piece.tokens;
    s.prompt = static_cast<int32_t>(live.request.prompt.size());
    s.blocks = static_cast<int32_t>(policy_->blocks(piece.sequence).size());
    s.sample = piece.sample ? 1 : 0;
    s.logprobs = p.logprobs;
    s.logits_row = piece.sample && p.want_logits && live.generated == 0 ? logits_rows++ : -1;
    s.temperature = static_cast<float>(p.temperature);
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
  const uint64_t at = attention_layout_.command.payload(plan.stage);
  CHECK(command_.size() <= attention_layout_.command.payload_bytes());
  for (int t = 0; t < geometry_.ranks; ++t) {
    const int device = attention_device(geometry_, plan.group, t);
    port_->put(device, at, command_.data(), command_.size());
    port_->put_flag(device, attention_layout_.command.flag(plan.stage), make_flag(epoch_, f.batch));
  }
}

// A batch without answer for too long: say who waits for whom, and give its group up.
void Scheduler::watch(Instant now) {
  last_watch_ = now;
  for (int group = 0; group < geometry_.groups; ++group) {
    for (int stage = 0; stage < geometry_.stages; ++stage) {
      const Flight& f = flight(group, stage);
      if (!f.running || now - f.sent < watchdog_) continue;
      const Error error{Code::unavailable,
                        fmt::format("batch {} on g{} stage {} got no answer for {:.0f} s "
                                    "(--watchdog-timeout); {}",
                                    f.batch, group, stage, (now - f.sent).to_seconds(),
                                    describe_ ? describe_() : "")};
      spdlog::error("{}", error.message);
      give_up(group, error, now);
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

// Requests that live in the group end; with no group left, so do the waiting ones, and no more are
// taken. In lockstep no group goes on without the others.
void Scheduler::give_up(int group, const Error& error, Instant now) {
  const int first = geometry_.lockstep ? 0 : group;
  const int last = geometry_.lockstep ? geometry_.groups - 1 : group;
  for (int g = first; g <= last; ++g) lose(g, error, now);
}

void Scheduler::lose(int group, const Error& error, Instant now) {
  if (lost_[sz(group)] != 0) return;
  lost_[sz(group)] = 1;
  for (int r = 0; r < geometry_.stages; ++r) flight(group, r).running = false;
  fail_sequences(policy_->on_group_lost(group), error, now);
  if (std::find(lost_.begin(), lost_.end(), 0) != lost_.end()) return;
  fault_ = error;
  std::vector<uint64_t> waiting;
  for (const auto& [id, live] : live_) waiting.push_back(id);
  for (const uint64_t id : waiting) policy_->on_cancel(id);
  fail_sequences(waiting, error, now);
}

void Scheduler::lose_group(int group, const Error& error, Instant now) {
  const std::lock_guard lock(mutex_);
  give_up(group, error, now);
}

void Scheduler::lose_instance(const Error& error, Instant now) {
  for (int group = 0; group < geometry_.groups; ++group) lose_group(group, error, now);
}

}  // namespace asap
