#include "asap/serve/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <mutex>
#include <string_view>
#include <vector>

#include "asap/runtime/request_parts.h"

namespace asap {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using Bounds = Histogram::BucketBoundaries;

// Bucket bounds as in vLLM, in seconds.
const Bounds kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                   0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                   20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const Bounds kTokenGapBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                 0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const Bounds kLatencyBuckets = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Bounds kParamsNBuckets = {1, 2, 5, 10, 20};
const Bounds kStepBuckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

// Those of RowCounts: 0, 1, 2, 4, 8, ...
Bounds row_buckets() {
  Bounds bounds{0};
  for (int b = 1; b < kRowBuckets - 1; ++b) bounds.push_back(static_cast<double>(1 << (b - 1)));
  return bounds;
}

// 1, 2, 5, 10, 20, 50, ... up to `last`.
Bounds one_two_five(int last) {
  Bounds bounds;
  for (int64_t power = 1;; power *= 10) {
    for (const int64_t step : {1, 2, 5}) {
      if (step * power > last) return bounds;
      bounds.push_back(static_cast<double>(step * power));
    }
  }
}

constexpr std::array<std::string_view, 4> kOutcomes = {"stop", "length", "abort", "error"};
constexpr std::array<std::string_view, 4> kStates = {"serving", "recovering", "degraded", "failed"};

void follow(Counter& counter, double total) {
  counter.Increment(std::max(0.0, total - counter.Value()));
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  const Labels labels;

  // Of the engine, taken over when a page is made.
  Gauge& running;
  Gauge& waiting;
  Gauge& waiting_tokens;
  Gauge& waiting_seconds;
  Gauge& kv_usage;
  Gauge& ready;
  Family<Gauge>& kernels;
  Gauge& balance;
  Counter& prompt_tokens;
  Counter& generation_tokens;
  Counter& batches;
  Counter& recoveries;
  Counter& rerun;
  Histogram& expert_rows;
  Histogram& step_tokens;
  Family<Gauge>& states;
  Family<Gauge>& stages_live;
  Family<Gauge>& group_tokens;
  Family<Gauge>& ready_items;
  Family<Counter>& idle;
  Family<Counter>& items;
  Family<Gauge>& epochs;
  Family<Counter>& restarts;

  // Of requests, as they happen.
  Histogram& to_first_token;
  Histogram& token_gap;
  Histogram& per_token;
  Histogram& end_to_end;
  Histogram& queued;
  Histogram& inference;
  Histogram& prefill;
  Histogram& decode;
  Histogram& request_prompt_tokens;
  Histogram& request_generation_tokens;
  Histogram& params_n;
  Histogram& params_max_tokens;
  std::array<Histogram*, kRequestParts.size()> parts;  // of the time to the first token
  Histogram& host;
  std::array<Counter*, kOutcomes.size()> outcomes;
  Family<Counter>& refusals;

  std::mutex scrape;  // counters follow the engine's totals by difference
  RowCounts rows_seen, steps_seen;

  Impl(const std::string& model, int max_model_len);

  void follow_counts(Histogram& histogram, const Bounds& bounds, const RowCounts& now,
                     RowCounts& seen);
  void follow_engine(const EngineStats& stats);
  void follow_peers(const std::vector<PeerStatus>& peers);

  // Of one part of the time to the first token.
  Histogram& part(const char* name) {
    return histogram(fmt::format("asap:request_{}_time_seconds", name).c_str(),
                     fmt::format("Of the time to the first token: {}.", name).c_str(),
                     kFirstTokenBuckets);
  }
  Family<Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Gauge& gauge(const char* name, const char* help) { return gauges(name, help).Add({}); }
  Counter& counter(const char* name, const char* help) { return counters(name, help).Add({}); }
  Histogram& histogram(const char* name, const char* help, const Bounds& bounds) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry).Add(
        {}, bounds);
  }
};

Metrics::Impl::Impl(const std::string& model, int max_model_len)
    : labels{{"model_name", model}, {"engine", "0"}},
      running(gauge("asap:num_requests_running", "Requests in a group's batches.")),
      waiting(gauge("asap:num_requests_waiting", "Requests in the queue.")),
      waiting_tokens(gauge("asap:queued_tokens", "Their prompt tokens.")),
      waiting_seconds(gauge("asap:queued_work_seconds",
                            "Their work at the measured speed; 0 until that is known.")),
      kv_usage(gauge("asap:kv_cache_usage_perc", "Used share of the KV cache; 1 is full.")),
      ready(gauge("asap:ready", "1 if requests are taken and can run now.")),
      kernels(gauges("asap:kernels_info", "1; the label `isa` names the kernels in use.")),
      balance(gauge("asap:dp_balance_ratio",
                    "Mean over largest work in flight of a group; 1 is even, 0 means none.")),
      prompt_tokens(counter("asap:prompt_tokens_total", "Prompt tokens processed.")),
      generation_tokens(counter("asap:generation_tokens_total", "Tokens generated.")),
      batches(counter("asap:batches_total", "Batches sent to groups.")),
      recoveries(counter("asap:recoveries_total", "Workers or groups that were restarted.")),
      rerun(counter("asap:requests_rerun_total", "Requests run again after a loss.")),
      expert_rows(histogram("asap:expert_rows", "Rows that an expert got in one work item.",
                            row_buckets())),
      step_tokens(histogram("asap:iteration_tokens_total", "Tokens of a batch.", kStepBuckets)),
      states(gauges("asap:fault_state", "1 for the state that the instance is in.")),
      stages_live(gauges("asap:stages_live", "Batches alive in the group.")),
      group_tokens(gauges("asap:group_tokens", "Tokens in the group's live batches.")),
      ready_items(gauges("asap:moe_ready_items", "Work items that wait for the expert rank.")),
      idle(counters("asap:moe_idle_seconds_total", "Time the expert rank had nothing to do.")),
      items(counters("asap:moe_items_total", "Work items that the expert rank has computed.")),
      epochs(gauges("asap:worker_epoch", "Epoch of a worker; it grows with each restart.")),
      restarts(counters("asap:worker_restarts_total", "Restarts of a worker or its group.")),
      to_first_token(histogram("asap:time_to_first_token_seconds",
                               "From acceptance to the first token.", kFirstTokenBuckets)),
      token_gap(histogram("asap:inter_token_latency_seconds", "Between two tokens of a request.",
                          kTokenGapBuckets)),
      per_token(histogram("asap:request_time_per_output_token_seconds",
                          "Per token after the first, of a request.", kTokenGapBuckets)),
      end_to_end(histogram("asap:e2e_request_latency_seconds", "From acceptance to the last token.",
                           kLatencyBuckets)),
      queued(histogram("asap:request_queue_time_seconds", "From acceptance to the first batch.",
                       kLatencyBuckets)),
      inference(histogram("asap:request_inference_time_seconds",
                          "From the first batch to the last token.", kLatencyBuckets)),
      prefill(histogram("asap:request_prefill_time_seconds",
                        "From the first batch to the first token.", kLatencyBuckets)),
      decode(histogram("asap:request_decode_time_seconds", "From the first token to the last.",
                       kLatencyBuckets)),
      request_prompt_tokens(histogram("asap:request_prompt_tokens", "Prompt tokens per request.",
                                      one_two_five(max_model_len))),
      request_generation_tokens(histogram("asap:request_generation_tokens",
                                          "Generated tokens per request.",
                                          one_two_five(max_model_len))),
      params_n(histogram("asap:request_params_n", "Parameter n of requests.", kParamsNBuckets)),
      params_max_tokens(histogram("asap:request_params_max_tokens",
                                  "Parameter max_tokens of requests.",
                                  one_two_five(max_model_len))),
      host(part("host")),
      refusals(counters("asap:requests_refused_total",
                        "Requests answered with an error, by HTTP status and kind.")) {
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = &part(kRequestParts[i].name);
  auto& family = counters("asap:request_success_total", "Requests that ended, by reason.");
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    outcomes[i] = &family.Add({{"finished_reason", std::string(kOutcomes[i])}});
  }
}

// Adds what came since the last time. Both kinds of buckets end at powers of two.
void Metrics::Impl::follow_counts(Histogram& histogram, const Bounds& bounds, const RowCounts& now,
                                  RowCounts& seen) {
  std::vector<double> more(bounds.size() + 1);
  for (size_t b = 0; b < now.buckets.size(); ++b) {
    const double top = b == 0 ? 0 : static_cast<double>(int64_t{1} << (b - 1));
    const bool last = b + 1 == now.buckets.size();
    const size_t to =
        last ? bounds.size()
             : static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), top) -
                                   bounds.begin());
    more[to] += static_cast<double>(now.buckets[b] - seen.buckets[b]);
  }
  histogram.ObserveMultiple(more, static_cast<double>(now.rows - seen.rows));
  seen = now;
}

void Metrics::Impl::follow_engine(const EngineStats& stats) {
  kernels.Add({{"isa", stats.kernels}}).Set(1);
  running.Set(stats.running);
  waiting.Set(stats.waiting);
  waiting_tokens.Set(static_cast<double>(stats.waiting_tokens));
  waiting_seconds.Set(stats.waiting_seconds);
  kv_usage.Set(stats.kv_usage);
  follow(prompt_tokens, static_cast<double>(stats.prompt_tokens));
  follow(generation_tokens, static_cast<double>(stats.generation_tokens));
  follow(batches, static_cast<double>(stats.batches));
  follow(recoveries, static_cast<double>(stats.recoveries));
  follow(rerun, static_cast<double>(stats.requests_rerun));
  follow_counts(expert_rows, row_buckets(), stats.expert_rows, rows_seen);
  follow_counts(step_tokens, kStepBuckets, stats.batch_tokens, steps_seen);
  double most = 0, sum = 0;
  for (size_t g = 0; g < stats.groups.size(); ++g) {
    const GroupLoad& load = stats.groups[g];
    const Labels group{{"group", std::to_string(g)}};
    stages_live.Add(group).Set(load.stages_live);
    group_tokens.Add(group).Set(static_cast<double>(load.tokens));
    most = std::max(most, load.cost);
    sum += load.cost;
  }
  balance.Set(most > 0 ? sum / (most * static_cast<double>(stats.groups.size())) : 0);
  for (size_t e = 0; e < stats.experts.size(); ++e) {
    const ExpertLoad& load = stats.experts[e];
    const Labels rank{{"moe_rank", std::to_string(e)}};
    ready_items.Add(rank).Set(load.ready_items);
    follow(idle.Add(rank), load.idle_seconds);
    follow(items.Add(rank), static_cast<double>(load.items));
  }
}

void Metrics::Impl::follow_peers(const std::vector<PeerStatus>& peers) {
  for (const PeerStatus& peer : peers) {
    const std::string who = peer.role == "moe" ? fmt::format("e{}", peer.moe_rank)
                                               : fmt::format("g{}t{}", peer.group, peer.tp_rank);
    const Labels worker{{"role", peer.role}, {"worker", who}};
    epochs.Add(worker).Set(static_cast<double>(peer.epoch));
    follow(restarts.Add(worker), peer.restarts);
  }
}

Metrics::Metrics(const std::string& model, int max_model_len)
    : impl_(std::make_unique<Impl>(model, max_model_len)) {}
Metrics::~Metrics() = default;

void Metrics::accepted(int prompt_tokens, int n, int max_tokens) {
  impl_->request_prompt_tokens.Observe(prompt_tokens);
  impl_->params_n.Observe(n);
  impl_->params_max_tokens.Observe(max_tokens);
}

void Metrics::first_token(const TokenEvent& event) {
  const Duration whole = event.emitted - event.arrived;
  impl_->queued.Observe((event.started - event.arrived).to_seconds());
  impl_->prefill.Observe((event.emitted - event.started).to_seconds());
  impl_->to_first_token.Observe(whole.to_seconds());
  for (size_t i = 0; i < kRequestParts.size(); ++i) {
    impl_->parts[i]->Observe(Duration{event.times.*kRequestParts[i].ns}.to_seconds());
  }
  impl_->host.Observe(host_time(event.times, whole).to_seconds());
}

void Metrics::next_token(Duration gap) {
  impl_->token_gap.Observe(gap.to_seconds());
}

void Metrics::finished(const FinishedRequest& request) {
  finished(request.outcome);
  const double decode = (request.last - request.first).to_seconds();
  impl_->end_to_end.Observe((request.last - request.arrived).to_seconds());
  impl_->inference.Observe((request.last - request.started).to_seconds());
  impl_->decode.Observe(decode);
  impl_->request_generation_tokens.Observe(request.completion_tokens);
  if (request.completion_tokens > 1) {
    impl_->per_token.Observe(decode / (request.completion_tokens - 1));
  }
}

void Metrics::finished(Outcome outcome) {
  impl_->outcomes[static_cast<size_t>(outcome)]->Increment();
}

void Metrics::refused(int status) {
  const char* const kind = status == 404                    ? "not_found"
                           : status == 408                  ? "deadline"
                           : status == 429 || status == 503 ? "overload"
                           : status < 500                   ? "validation"
                                                            : "internal";
  impl_->refusals.Add({{"code", std::to_string(status)}, {"kind", kind}}).Increment();
}

std::string Metrics::text(const Engine& engine) {
  const std::lock_guard lock(impl_->scrape);
  impl_->follow_engine(engine.stats());
  impl_->follow_peers(engine.peers());
  impl_->ready.Set(engine.ready() ? 1 : 0);
  const std::string state = engine.fault_status().state;
  for (const std::string_view known : kStates) {
    impl_->states.Add({{"state", std::string(known)}}).Set(state == known ? 1 : 0);
  }
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace asap
