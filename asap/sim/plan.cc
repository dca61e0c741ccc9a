#include "asap/sim/plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "asap/load/slo_search.h"

namespace asap {

namespace {

constexpr double kFirstRound = 0.25;  // of the workload's seconds
constexpr double kSecondRound = 0.5;
constexpr size_t kFewest = 8;         // candidates that are tried even if all seem overloaded
constexpr double kBusy = 0.7;         // a device this busy is what limits
constexpr double kWaiting = 1.0 / 3;  // share of TTFT that makes a queue the limit

// One planning run: what all its rounds share.
class Planner {
 public:
  Planner(const PlanRequest& request, const std::function<bool(const PlanProgress&)>& progress)
      : request_(request), progress_(progress) {}

  Result<PlanResult> run() {
    ASAP_ASSIGN(const std::vector<Arrival> workload, arrivals(request_.workload.rate, 1));
    if (workload.empty()) {
      return fail(Code::invalid,
                  "--request-rate {} over --duration {} s gives no request; raise one of them",
                  request_.workload.rate, request_.workload.seconds);
    }
    ASAP_ASSIGN(std::vector<Candidate> all,
                make_candidates(request_.shared, request_.space, workload));
    out_.candidates = static_cast<int>(all.size());
    ASAP_TRY(drop_too_large(&all));
    drop_overloaded(&all);
    std::vector<PlannedInstance> field;
    for (Candidate& candidate : all) field.push_back(started(std::move(candidate)));
    const size_t keep = static_cast<size_t>(request_.keep);
    ASAP_TRY(round("short runs", kFirstRound, &field));
    shrink(&field, std::max(3 * keep, field.size() / 4));
    ASAP_TRY(round("longer runs", kSecondRound, &field));
    shrink(&field, keep);
    ASAP_ASSIGN(std::vector<Candidate> paper,
                paper_geometry(request_.shared, request_.space, workload));
    for (Candidate& candidate : paper) field.push_back(started(std::move(candidate)));
    ASAP_TRY(round("full runs", 1, &field));
    ASAP_TRY(search_rates(&field));
    const auto reference = field.end() - static_cast<std::ptrdiff_t>(paper.size());
    out_.reference.assign(reference, field.end());
    field.erase(reference, field.end());
    std::stable_sort(field.begin(), field.end(),
                     [&](const auto& a, const auto& b) { return before_in_the_end(a, b); });
    out_.best = std::move(field);
    out_.simulations = simulations_;
    out_.virtual_seconds = static_cast<double>(virtual_ms_) * 1e-3;
    return std::move(out_);
  }

 private:
  static PlannedInstance started(Candidate candidate) {
    PlannedInstance out;
    out.candidate = std::move(candidate);
    return out;
  }

  Result<std::vector<Arrival>> arrivals(double rate, double share) const {
    WorkloadSpec spec = request_.workload;
    spec.rate = rate;
    spec.seconds *= share;
    return make_workload(spec);
  }

  Status drop_too_large(std::vector<Candidate>* all) {
    if (request_.device_memory_gb <= 0) return {};
    const auto least = *std::min_element(
        all->begin(), all->end(),
        [](const Candidate& a, const Candidate& b) { return a.memory() < b.memory(); });
    std::erase_if(*all, [&](const Candidate& c) {
      return static_cast<double>(c.memory()) > request_.device_memory_gb * 1e9;
    });
    out_.too_large = out_.candidates - static_cast<int>(all->size());
    if (!all->empty()) return {};
    return fail(
        Code::invalid,
        "--device-memory-gb {}: no instance of {} devices fits; the smallest, {}, needs "
        "{:.1f} GB (attention device {:.1f}, expert device {:.1f}; in lockstep both are one): give "
        "more devices, --quantization int8, or a lower --max-num-batched-tokens",
        request_.device_memory_gb, request_.space.devices, least.name(), gb(least.memory()),
        gb(least.attention.total()), gb(least.expert.total()));
  }
  static double gb(uint64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

  void drop_overloaded(std::vector<Candidate>* all) {
    std::stable_sort(all->begin(), all->end(), [](const Candidate& a, const Candidate& b) {
      return a.load.busiest < b.load.busiest;
    });
    size_t keep = 0;
    while (keep < all->size() && ((*all)[keep].load.busiest <= 1 || keep < kFewest)) ++keep;
    out_.overloaded = static_cast<int>(all->size() - keep);
    all->erase(all->begin() + static_cast<std::ptrdiff_t>(keep), all->end());
  }

  // A queue that takes several SLOs to serve does not recover in time.
  int hopeless(double rate) const {
    return 32 + static_cast<int>(std::min(1e6, 4 * rate * request_.slo_ttft_ms * 1e-3));
  }

  Result<SimulationResult> one(const Candidate& candidate, double rate, double share) {
    ASAP_ASSIGN(const std::vector<Arrival> workload, arrivals(rate, share));
    SimulationLimits limits;
    limits.max_waiting = hopeless(rate);
    auto result =
        simulate(candidate.config, workload, limits, [&](double, int) { return proceed(); });
    ++simulations_;
    if (result) virtual_ms_ += static_cast<int64_t>(1e3 * result->virtual_seconds);
    return result;
  }

  bool met(const LoadReport& report) const {
    return report.finished == report.requests && report.requests > 0 &&
           statistic_of(report.ttft, request_.slo_statistic) <= request_.slo_ttft_ms;
  }

  Status measure(PlannedInstance* out, double share) {
    ASAP_ASSIGN(const SimulationResult result, one(out->candidate, request_.workload.rate, share));
    out->report = make_report(result.load);
    out->stopped = out->report.finished < out->report.requests;
    out->virtual_seconds = result.virtual_seconds;
    out->use = utilisation_of(result);
    out->meets = met(out->report);
    out->limit = limit_of(out->use, out->report);
    return {};
  }

  Status round(const std::string& name, double share, std::vector<PlannedInstance>* field) {
    return in_parallel(name, field->size(), [&](size_t i) { return measure(&(*field)[i], share); });
  }

  Status search_rates(std::vector<PlannedInstance>* field) {
    return in_parallel("highest rates", field->size(), [&](size_t i) -> Status {
      PlannedInstance& instance = (*field)[i];
      SloSearch search(request_.workload.rate, request_.slo_tolerance);
      search.record(instance.meets);  // the full run was its first
      while (const auto rate = search.next()) {
        if (!arrivals(*rate, 1)) break;  // so low that no request falls into the run
        ASAP_ASSIGN(const SimulationResult result, one(instance.candidate, *rate, 1));
        if (stop_) return {};
        search.record(met(make_report(result.load)));
      }
      instance.slo_rate = search.best();
      return {};
    });
  }

  // Says how far the round is, also in the midst of a simulation, which may take minutes; false:
  // stop.
  bool proceed(int more_done = 0) {
    const std::lock_guard lock(mutex_);
    round_.done += more_done;
    if (!stop_ && progress_ && !progress_(round_)) stop_ = true;
    return !stop_;
  }

  // Runs work(0 .. count - 1) on `jobs` threads. The first error, by number.
  Status in_parallel(const std::string& name, size_t count,
                     const std::function<Status(size_t)>& work) {
    std::vector<Status> results(count);
    std::atomic<size_t> next = 0;
    round_ = {name, 0, static_cast<int>(count)};
    const auto worker = [&] {
      for (size_t i = next++; i < count && !stop_; i = next++) {
        results[i] = work(i);
        proceed(1);
      }
    };
    std::vector<std::thread> threads;
    const size_t jobs = std::min(count, static_cast<size_t>(std::max(1, request_.jobs)));
    for (size_t j = 1; j < jobs; ++j) threads.emplace_back(worker);
    worker();
    for (std::thread& thread : threads) thread.join();
    if (stop_) return fail(Code::unavailable, "interrupted");
    for (Status& status : results) ASAP_TRY(std::move(status));
    return {};
  }

  // Within a round: who came through, then the statistic; among the others who lasted longest.
  bool before(const PlannedInstance& a, const PlannedInstance& b) const {
    if (a.stopped != b.stopped) return b.stopped;
    if (a.stopped && a.virtual_seconds != b.virtual_seconds) {
      return a.virtual_seconds > b.virtual_seconds;
    }
    return statistic_of(a.report.ttft, request_.slo_statistic) <
           statistic_of(b.report.ttft, request_.slo_statistic);
  }
  bool before_in_the_end(const PlannedInstance& a, const PlannedInstance& b) const {
    if (a.meets != b.meets) return a.meets;
    if (!a.meets && a.slo_rate != b.slo_rate) return a.slo_rate > b.slo_rate;
    return before(a, b);
  }

  void shrink(std::vector<PlannedInstance>* field, size_t keep) const {
    std::stable_sort(field->begin(), field->end(),
                     [&](const auto& a, const auto& b) { return before(a, b); });
    if (field->size() > keep) {
      field->erase(field->begin() + static_cast<std::ptrdiff_t>(keep), field->end());
    }
  }

  const PlanRequest& request_;
  const std::function<bool(const PlanProgress&)>& progress_;
  PlanResult out_;
  std::mutex mutex_;  // of calls of progress_, and of
  PlanProgress round_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> simulations_ = 0;
  std::atomic<int64_t> virtual_ms_ = 0;
};

}  // namespace

std::string limit_of(const Utilisation& use, const LoadReport& report) {
  const double busiest = std::max({use.attention, use.experts, use.send});
  if (busiest >= kBusy) {
    if (busiest == use.attention) return "attention";
    return busiest == use.experts ? "experts" : "combine send";
  }
  const TimeParts& parts = report.parts.mean;
  double whole = 0;
  for (const TimePart& part : kTimeParts) whole += parts.*part.value;
  if (parts.barrier > kWaiting * whole && parts.barrier > parts.queueing) return "barrier";
  return parts.queueing > kWaiting * whole ? "queue" : "latency";
}

Result<PlanResult> plan(const PlanRequest& request,
                        const std::function<bool(const PlanProgress&)>& progress) {
  return Planner(request, progress).run();
}

}  // namespace asap
