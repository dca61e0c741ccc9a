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
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

// Bucket bounds as in vLLM, in seconds.
const Histogram::BucketBoundaries kFirstTokenBuckets = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const Histogram::BucketBoundaries kLatencyBuckets = {
    0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

// Those of RowHistogram: 0, 1, 2, 4, 8, ...
Histogram::BucketBoundaries row_buckets() {
  Histogram::BucketBoundaries bounds{0};
  for (int b = 1; b < kRowBuckets - 1; ++b) bounds.push_back(static_cast<double>(1 << (b - 1)));
  return bounds;
}

// 1, 2, 5, 10, 20, 50, ... up to `last`.
Histogram::BucketBoundaries one_two_five(int last) {
  Histogram::BucketBoundaries bounds;
  for (int64_t power = 1;; power *= 10) {
    for (const int64_t step : {1, 2, 5}) {
      if (step * power > last) return bounds;
      bounds.push_back(static_cast<double>(step * power));
    }
  }
}

constexpr std::array<std::string_view, 4> kOutcomes = {"stop", "length", "abort", "error"};

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  Labels labels;

  Gauge& running;
  Gauge& waiting;
  Gauge& kv_usage;
  Counter& prompt_tokens;
  Counter& generation_tokens;
  Histogram& to_first_token;
  Histogram& end_to_end;
  Histogram& queued;
  Histogram& request_prompt_tokens;
  Histogram& expert_rows;
  std::array<Histogram*, kRequestParts.size()> parts;  // of the time to the first token
  Histogram& host;
  std::array<Counter*, kOutcomes.size()> outcomes;

  std::mutex scrape;  // counters follow the engine's totals by difference
  RowCounts rows_seen;

  Impl(const std::string& model, int max_model_len)
      : labels{{"model_name", model}},
        running(gauge("asap:num_requests_running", "Requests in a group's batches.")),
        waiting(gauge("asap:num_requests_waiting", "Requests in the queue.")),
        kv_usage(gauge("asap:kv_cache_usage_perc", "Used share of the KV cache; 1 is full.")),
        prompt_tokens(counter("asap:prompt_tokens_total", "Prompt tokens processed.")),
        generation_tokens(counter("asap:generation_tokens_total", "Tokens generated.")),
        to_first_token(histogram("asap:time_to_first_token_seconds",
                                 "From acceptance to the first token.", kFirstTokenBuckets)),
        end_to_end(histogram("asap:e2e_request_latency_seconds",
                             "From acceptance to the last token.", kLatencyBuckets)),
        queued(histogram("asap:request_queue_time_seconds", "From acceptance to the first batch.",
                         kLatencyBuckets)),
        request_prompt_tokens(histogram("asap:request_prompt_tokens", "Prompt tokens per request.",
                                        one_two_five(max_model_len))),
        expert_rows(histogram("asap:expert_rows", "Rows that an expert got in one work item.",
                              row_buckets())),
        host(part("host")) {
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = &part(kRequestParts[i].name);
    auto& family = prometheus::BuildCounter()
                       .Name("asap:request_success_total")
                       .Help("Requests that ended, by reason.")
                       .Labels(labels)
                       .Register(registry);
    for (size_t i = 0; i < kOutcomes.size(); ++i) {
      outcomes[i] = &family.Add({{"finished_reason", std::string(kOutcomes[i])}});
    }
  }

  void follow_rows(const RowCounts& now) {
    std::vector<double> more(kRowBuckets);
    for (size_t b = 0; b < more.size(); ++b) {
      more[b] = static_cast<double>(now.buckets[b] - rows_seen.buckets[b]);
    }
    expert_rows.ObserveMultiple(more, static_cast<double>(now.rows - rows_seen.rows));
    rows_seen = now;
  }

  // Of one part of the time to the first token.
  Histogram& part(const char* name) {
    return histogram(fmt::format("asap:request_{}_time_seconds", name).c_str(),
                     fmt::format("Of the time to the first token: {}.", name).c_str(),
                     kFirstTokenBuckets);
  }
  Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  Histogram& histogram(const char* name, const char* help,
                       const Histogram::BucketBoundaries& bounds) {
    auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
    return family.Add(labels, bounds);
  }
};

Metrics::Metrics(const std::string& model, int max_model_len)
    : impl_(std::make_unique<Impl>(model, max_model_len)) {}
Metrics::~Metrics() = default;

void Metrics::accepted(int prompt_tokens) {
  impl_->request_prompt_tokens.Observe(prompt_tokens);
}

void Metrics::first_token(const TokenEvent& event) {
  const Duration whole = event.emitted - event.arrived;
  impl_->queued.Observe((event.started - event.arrived).to_seconds());
  impl_->to_first_token.Observe(whole.to_seconds());
  for (size_t i = 0; i < kRequestParts.size(); ++i) {
    impl_->parts[i]->Observe(Duration{event.times.*kRequestParts[i].ns}.to_seconds());
  }
  impl_->host.Observe(host_time(event.times, whole).to_seconds());
}

void Metrics::finished(Outcome outcome, Duration end_to_end) {
  finished(outcome);
  impl_->end_to_end.Observe(end_to_end.to_seconds());
}

void Metrics::finished(Outcome outcome) {
  impl_->outcomes[static_cast<size_t>(outcome)]->Increment();
}

std::string Metrics::text(const EngineStats& stats) {
  const std::lock_guard lock(impl_->scrape);
  impl_->running.Set(stats.running);
  impl_->waiting.Set(stats.waiting);
  impl_->kv_usage.Set(stats.kv_usage);
  const auto follow = [](Counter& counter, int64_t total) {
    counter.Increment(static_cast<double>(total) - counter.Value());
  };
  follow(impl_->prompt_tokens, stats.prompt_tokens);
  follow(impl_->generation_tokens, stats.generation_tokens);
  impl_->follow_rows(stats.expert_rows);
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace asap
