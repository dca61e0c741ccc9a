#include "asap/sim/simulate.h"

#include <algorithm>

#include "asap/runtime/clock.h"
#include "asap/runtime/control.h"
#include "asap/runtime/profile.h"
#include "asap/runtime/request_parts.h"
#include "asap/runtime/scheduling.h"
#include "asap/runtime/tracks.h"

namespace asap {

namespace {

constexpr Duration kReport = Duration::seconds(1);  // virtual, between calls of `progress`

double seconds(Instant at) {
  return Duration{at.ns}.to_seconds();
}

// Of a request that was scheduled `whole` before its first token.
TimeParts parts_of(const RequestTimes& times, Duration whole) {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  return {.queueing = ms(times.queueing_ns),
          .attention = ms(times.attention_ns),
          .experts = ms(times.experts_ns),
          .dispatch = ms(times.dispatch_ns),
          .combine = ms(times.combine_ns),
          .turn = ms(times.turn_ns),
          .barrier = ms(times.barrier_ns),
          .host = ms(host_time(times, whole).ns)};
}

// Requests enter in time, and their first tokens come back.
class Run {
 public:
  Run(VirtualInstance& instance, const std::vector<Arrival>& workload)
      : instance_(instance), workload_(workload) {
    records_.resize(workload.size());
    for (size_t i = 0; i < workload.size(); ++i) {
      records_[i].scheduled = workload[i].at;
      records_[i].prompt_tokens = workload[i].prompt_tokens;
    }
  }

  // never() if there is none.
  Instant next_arrival() const {
    if (next_ == workload_.size()) return Instant::never();
    return arrival(next_);
  }

  void arrive() {
    const size_t i = next_++;
    RequestRecord& record = records_[i];
    EngineRequest request;
    request.prompt.assign(static_cast<size_t>(workload_[i].prompt_tokens), 1);
    request.sampling.max_tokens = std::max(1, workload_[i].output_tokens);
    request.sampling.ignore_eos = true;
    record.sent = record.scheduled;
    const auto submitted = instance_.scheduler().submit(
        std::move(request), [this, i](TokenEvent event) { on_token(i, event); }, arrival(i));
    if (submitted) return instance_.wake_scheduler();
    record.end = RequestEnd::refused;
    record.status = 429;
    record.error = submitted.error().message;
    ++done_;
  }

  int done() const { return done_; }
  bool finished() const { return done_ == static_cast<int>(records_.size()); }
  // Of those that came: a run that was stopped did not see the rest.
  std::vector<RequestRecord> take() {
    records_.resize(next_);
    return std::move(records_);
  }

 private:
  Instant arrival(size_t i) const { return Instant{0} + Duration::seconds(workload_[i].at); }

  void on_token(size_t i, const TokenEvent& event) {
    RequestRecord& record = records_[i];
    const double at = seconds(event.emitted);
    if (event.finish == Finish::error) {
      record.end = RequestEnd::failed;
      record.error = event.error.message;
      ++done_;
      return;
    }
    if (record.first < 0) {
      record.first = at;
      record.parts = parts_of(event.times, Duration::seconds(at - record.scheduled));
    }
    ++record.output_tokens;
    if (event.finish == Finish::none) return;
    record.finished = at;
    record.end = RequestEnd::finished;
    record.status = 200;
    ++done_;
  }

  VirtualInstance& instance_;
  const std::vector<Arrival>& workload_;
  std::vector<RequestRecord> records_;
  size_t next_ = 0;
  int done_ = 0;
};

// Rings for every agent, if a trace is wanted.
class TraceMemory {
 public:
  TraceMemory(const std::string& file, const Geometry& g) : file_(file), geometry_(g) {
    if (file.empty()) return;
    for (int i = 0; i < g.devices() * kAgentsPerDevice; ++i) {
      rings_.push_back(TraceRing::create(memory_.allocate(TraceRing::bytes(kEvents)), kEvents));
    }
  }
  std::span<TraceRing* const> rings() const { return rings_; }
  Status write() const {
    if (file_.empty()) return {};
    return write_trace(file_, trace_tracks(geometry_, [&](int device, int agent) {
                         return rings_[static_cast<size_t>(device * kAgentsPerDevice + agent)];
                       }));
  }

 private:
  static constexpr uint32_t kEvents = 1 << 14;  // kept per agent, the newest
  const std::string file_;
  const Geometry geometry_;
  Arena memory_;
  std::vector<TraceRing*> rings_;
};

}  // namespace

Result<EngineConfig> simulated_config(EngineConfig config, const std::vector<Arrival>& workload) {
  ASAP_ASSIGN(const CostProfile profile, load_profile(config.profile));
  config.ops = "priced";
  if (config.model.empty() && config.preset.empty()) {
    config.preset = profile.preset;
    config.hf_overrides = profile.hf_overrides;
    if (profile.preset.empty()) {
      return fail(Code::invalid, "--profile {} names no model; give MODEL or --preset",
                  config.profile);
    }
  }
  config.load_format = "dummy";
  if (config.max_num_batched_tokens == 0 && !in_lockstep(config)) {
    config.max_num_batched_tokens = config.scheduler == "paper" ? 32768 : 16384;
  }
  ASAP_ASSIGN(config, resolve_scheduling(std::move(config)));
  int longest = 1;
  for (const Arrival& a : workload) {
    longest = std::max(longest, a.prompt_tokens + std::max(1, a.output_tokens));
  }
  if (config.max_model_len == 0) config.max_model_len = longest;
  if (config.kv_cache_tokens == 0) config.kv_cache_tokens = 1 << 21;
  config.max_num_queued_reqs = std::max<int>(config.max_num_queued_reqs, 1 << 20);
  config.max_num_queued_tokens = -1;
  config.watchdog_timeout_s = 86'400;
  return config;
}

Result<SimulationResult> simulate(EngineConfig given, const std::vector<Arrival>& workload,
                                  const SimulationLimits& limits,
                                  const std::function<bool(double, int)>& progress) {
  const Instant started = monotonic_now();
  ASAP_ASSIGN(const EngineConfig config, simulated_config(std::move(given), workload));
  ASAP_ASSIGN(const ModelSpec spec, load_engine_spec(config));
  ASAP_ASSIGN(const EnginePlan plan, make_plan(config, spec, 1));
  TraceMemory trace(limits.trace_file, plan.geometry);
  VirtualInstance instance(config, plan, spec, trace.rings());
  Run run(instance, workload);
  const double last = workload.empty() ? 0 : workload.back().at;
  const Instant end = Instant{0} + Duration::seconds(last + limits.grace_seconds);
  Instant report = Instant{0};
  bool stopped = false;
  while (!run.finished() && instance.now() < end && !stopped) {
    const Instant until = std::min({run.next_arrival(), end, report});
    instance.run(until, [&] { return run.finished(); });
    if (instance.now() < until) break;
    while (run.next_arrival() <= instance.now()) run.arrive();
    if (until == report) {
      report = report + kReport;
      stopped = progress && !progress(seconds(instance.now()), run.done());
      if (limits.max_waiting > 0) {
        stopped = stopped || instance.scheduler().stats().waiting > limits.max_waiting;
      }
    }
  }
  if (!run.finished() && !stopped && instance.idle() && run.next_arrival() == Instant::never()) {
    return fail(Code::internal, "nothing happens any more at {:.3f} s, {} of {} requests done\n{}",
                seconds(instance.now()), run.done(), workload.size(), instance.waiting_for());
  }
  SimulationResult out;
  out.load.requests = run.take();
  out.load.seconds = seconds(instance.now());
  out.virtual_seconds = out.load.seconds;
  out.wall_seconds = (monotonic_now() - started).to_seconds();
  out.events = instance.events();
  out.steps = instance.steps();
  out.hash = instance.hash();
  out.batches = instance.scheduler().stats().batches;
  out.use = instance.use();
  out.geometry = plan.geometry;
  ASAP_TRY(trace.write());
  return out;
}

Utilisation utilisation_of(const SimulationResult& result) {
  const Geometry& g = result.geometry;
  Utilisation out;
  for (int device = 1; device < g.devices(); ++device) {
    const DeviceUse& use = result.use[static_cast<size_t>(device)];
    const auto share = [&](Duration busy, int devices) {
      return busy.to_seconds() / std::max(1e-9, result.virtual_seconds) / devices;
    };
    if (device < expert_device(g, 0)) {
      out.attention += share(use.compute, g.groups * g.ranks);
    } else {
      out.experts += share(use.compute, g.expert_ranks);
      out.send += share(use.send, g.expert_ranks);
    }
  }
  return out;
}

}  // namespace asap
