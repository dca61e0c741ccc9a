#include "asap/load/sim_runs.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "asap/load/slo_search.h"

namespace asap {

namespace {

constexpr double kLeastRate = 0.05;  // requests per second, of searches
constexpr double kMostRate = 2000;

void add(MeanParts& sum, const MeanParts& one) {
  const size_t count = sum.count + one.count;
  for (const TimePart& part : kTimeParts) {
    if (count == 0) break;
    double& mean = sum.mean.*part.value;
    mean = (mean * static_cast<double>(sum.count) +
            one.mean.*part.value * static_cast<double>(one.count)) /
           static_cast<double>(count);
  }
  sum.count = count;
}

void add(std::vector<LengthBin>& sum, const std::vector<LengthBin>& more) {
  for (const LengthBin& bin : more) {
    auto own = std::find_if(sum.begin(), sum.end(),
                            [&](const LengthBin& some) { return some.low == bin.low; });
    if (own == sum.end()) {
      own = sum.insert(own, {bin.low, bin.high, {}, {}});
    }
    const auto before = static_cast<double>(own->ttft.count);
    const auto after = before + static_cast<double>(bin.ttft.count);
    own->ttft.mean =
        (own->ttft.mean * before + bin.ttft.mean * static_cast<double>(bin.ttft.count)) /
        std::max(1.0, after);
    own->ttft.count += bin.ttft.count;
    add(own->parts, bin.parts);
  }
}

// Of reports of equal points, one per repetition.
PointStats stats_of(double rate, const std::vector<LoadReport>& reports) {
  PointStats out;
  out.rate = rate;
  out.low = INFINITY;
  out.high = -INFINITY;
  const double share = 1.0 / static_cast<double>(reports.size());
  for (const LoadReport& report : reports) {
    out.mean += share * report.ttft.mean;
    out.p50 += share * report.ttft.p50;
    out.p90 += share * report.ttft.p90;
    out.p99 += share * report.ttft.p99;
    out.low = std::min(out.low, report.ttft.mean);
    out.high = std::max(out.high, report.ttft.mean);
    out.requests += report.requests;
    out.unfinished += report.unfinished;
    out.lossless = out.lossless && report.refused + report.failed == 0;
    add(out.parts, report.parts);
    add(out.bins, report.bins);
  }
  std::sort(out.bins.begin(), out.bins.end(),
            [](const LengthBin& a, const LengthBin& b) { return a.low < b.low; });
  return out;
}

const char* name_of(SloStatistic statistic) {
  return statistic == SloStatistic::mean ? "mean" : "p99";
}

std::string search_text(const SimPoint& base, SloStatistic statistic) {
  SimPoint point = base;
  point.rate = 0;
  return point.text() + " " + name_of(statistic);
}

}  // namespace

std::string SimChanges::text() const {
  std::string out;
  const auto show = [&](const char* name, const auto& value) {
    if (!value) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(*value)>, bool>) {
      out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, *value ? "on" : "off");
    } else {
      out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, *value);
    }
  };
  show("stages", stages);
  show("regions", regions);
  show("overlap", overlap);
  show("super-kernel", super_kernel);
  show("refill", refill);
  show("exclusive-tokens", exclusive_tokens);
  show("split-tokens", split_tokens);
  show("self-pair-tokens", self_pair_tokens);
  show("wait", wait);
  show("aged-order", aged_order);
  show("merge-items", merge_items);
  show("dp", dp);
  show("tp", tp);
  show("ep", ep);
  return out;
}

std::string SimPoint::text() const {
  const std::string changes = settings.changes.text();
  return fmt::format("{}{}{}{} at {:.6g}/s, {}, {}, {:g} s{}{}", engine,
                     changes.empty() ? "" : " (", changes, changes.empty() ? "" : ")", rate,
                     settings.workload, settings.profile, settings.seconds,
                     settings.expert_skew ? "" : ", no skew",
                     repeat == 0 ? "" : fmt::format(", repeat {}", repeat));
}

SimRuns::SimRuns(Simulate simulate, SimRunsOptions options,
                 std::function<void(const std::string&)> progress)
    : simulate_(std::move(simulate)), options_(options), progress_(std::move(progress)) {}

std::optional<PointStats> SimRuns::point(const SimPoint& point) {
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = points_.try_emplace(point.text());
  if (is_new) known->second = std::make_shared<Known>();
  if (known->second->stats || known->second->error) return known->second->stats;
  wanted_.push_back({point, nullptr});
  return std::nullopt;
}

std::optional<double> SimRuns::slo_rate(const SimPoint& base, SloStatistic statistic) {
  const std::lock_guard lock(mutex_);
  const auto [search, is_new] = searches_.try_emplace(search_text(base, statistic));
  if (is_new) search->second = std::make_shared<Search>(Search{base, statistic, {}, false});
  if (!search->second->over) wanted_.push_back({std::nullopt, search->second.get()});
  return search->second->rate;
}

// Whoever asks second for a point that is running waits for it.
SimRuns::Known& SimRuns::run(const SimPoint& point) {
  std::shared_ptr<Known> known;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Known>& entry = points_[point.text()];
    if (!entry) entry = std::make_shared<Known>();
    known = entry;
  }
  std::call_once(known->once, [&] { measure(point, *known); });
  return *known;
}

void SimRuns::measure(const SimPoint& point, Known& known) {
  std::vector<LoadReport> reports;
  std::optional<Error> error;
  for (int repeat = 0; repeat < options_.repeats && !error; ++repeat) {
    SimPoint one = point;
    one.repeat = repeat;
    Result<LoadReport> report = simulate_(one);
    const std::lock_guard lock(mutex_);
    if (report) {
      reports.push_back(*std::move(report));
      ++runs_;
    } else {
      error = report.error();
    }
    if (!progress_) continue;
    progress_(fmt::format("{}: {}", one.text(),
                          error ? error->message
                                : fmt::format("mean {:.0f} ms, p99 {:.0f} ms",
                                              reports.back().ttft.mean, reports.back().ttft.p99)));
  }
  const std::lock_guard lock(mutex_);
  known.error = error;
  if (!error) known.stats = stats_of(point.rate, reports);
  if (error && error->code != Code::unsupported && !failed_) failed_ = error;
}

void SimRuns::find(Search& search) {
  SloSearch steps(options_.first_rate, options_.tolerance, kLeastRate, kMostRate);
  while (const auto rate = steps.next()) {
    SimPoint point = search.base;
    point.rate = *rate;
    const Known& known = run(point);
    if (!known.stats) break;
    const double value =
        search.statistic == SloStatistic::mean ? known.stats->mean : known.stats->p99;
    steps.record(known.stats->lossless && value <= options_.slo_ms);
    if (!steps.next()) search.rate = steps.best();
  }
  search.over = true;
}

void SimRuns::one(const Want& want) {
  if (want.search != nullptr) {
    find(*want.search);
  } else {
    run(*want.point);
  }
}

Status SimRuns::work() {
  const std::vector<Want> wanted = std::move(wanted_);
  wanted_.clear();
  std::atomic<size_t> next = 0;
  const auto worker = [&] {
    for (size_t i = next++; i < wanted.size(); i = next++) {
      {
        const std::lock_guard lock(mutex_);
        if (failed_) return;
      }
      one(wanted[i]);
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 1; i < options_.jobs; ++i) threads.emplace_back(worker);
  worker();
  threads.clear();
  if (failed_) return tl::unexpected<Error>(*failed_);
  return {};
}

std::vector<std::string> SimRuns::unsupported() const {
  std::set<std::string> out;
  for (const auto& [text, known] : points_) {
    if (known->error) out.insert(known->error->message);
  }
  return {out.begin(), out.end()};
}

nlohmann::ordered_json SimRuns::json() const {
  nlohmann::ordered_json out = {{"points", nlohmann::ordered_json::array()},
                                {"slo_rates", nlohmann::ordered_json::array()}};
  for (const auto& [text, known] : points_) {
    if (!known->stats) continue;
    const PointStats& s = *known->stats;
    out["points"].push_back({{"point", text},
                             {"request_rate", s.rate},
                             {"requests", s.requests},
                             {"unfinished", s.unfinished},
                             {"ttft_ms",
                              {{"mean", s.mean},
                               {"p50", s.p50},
                               {"p90", s.p90},
                               {"p99", s.p99},
                               {"least_mean", s.low},
                               {"most_mean", s.high}}}});
  }
  for (const auto& [text, search] : searches_) {
    if (!search->rate) continue;
    SimPoint point = search->base;
    out["slo_rates"].push_back({{"engine", point.engine},
                                {"changes", point.settings.changes.text()},
                                {"workload", point.settings.workload},
                                {"profile", point.settings.profile},
                                {"expert_skew", point.settings.expert_skew},
                                {"statistic", name_of(search->statistic)},
                                {"request_rate", *search->rate}});
  }
  return out;
}

}  // namespace asap
