#include "asap/load/report.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace asap {

namespace {

constexpr size_t kShownErrors = 5;

// Nearest rank.
double rank(const std::vector<double>& sorted, double p) {
  const auto at = static_cast<size_t>(std::ceil(p * static_cast<double>(sorted.size())));
  return sorted[std::min(sorted.size() - 1, at == 0 ? 0 : at - 1)];
}

bool counts(const RequestRecord& r) {
  return r.end == RequestEnd::finished || r.end == RequestEnd::unfinished;
}

double ttft_ms(const RequestRecord& r, double end) {
  return 1e3 * ((r.first >= 0 ? r.first : end) - r.scheduled);
}

// What a report says of some requests' first tokens.
struct Collector {
  std::vector<double> ttft;
  MeanParts parts;

  void add(const RequestRecord& r, double end) {
    if (counts(r)) ttft.push_back(ttft_ms(r, end));
    if (!r.parts || r.end != RequestEnd::finished) return;
    ++parts.count;
    for (const TimePart& part : kTimeParts) parts.mean.*part.value += *r.parts.*part.value;
  }
  MeanParts mean() const {
    MeanParts out = parts;
    for (const TimePart& part : kTimeParts) {
      if (out.count > 0) out.mean.*part.value /= static_cast<double>(out.count);
    }
    return out;
  }
};

std::vector<LengthBin> bins_of(const LoadResult& result) {
  std::map<int, Collector> by_low;
  for (const RequestRecord& r : result.requests) {
    int low = 1;
    while (low * 2 <= r.prompt_tokens) low *= 2;
    if (counts(r)) by_low[low].add(r, result.seconds);
  }
  std::vector<LengthBin> out;
  for (auto& [low, some] : by_low) {
    out.push_back({low, 2 * low, quantiles(std::move(some.ttft)), some.mean()});
  }
  return out;
}

// Messages that differ in numbers alone are one: "4.1 s of work are waiting" comes in many.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) out += c;
    if (digit && out.ends_with("#.")) out.pop_back();  // 4.1 counts as 4
    if (digit && !out.ends_with('#')) out += '#';
  }
  return out;
}

std::vector<std::string> errors_of(const LoadResult& result) {
  struct Kind {
    int count = 0;
    std::string first;
  };
  std::map<std::string, Kind> kinds;
  for (const RequestRecord& r : result.requests) {
    if (r.error.empty()) continue;
    Kind& kind = kinds[without_numbers(r.error)];
    if (++kind.count == 1) kind.first = r.error;
  }
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [key, kind] : kinds) order.emplace_back(-kind.count, kind.first);
  std::sort(order.begin(), order.end());
  std::vector<std::string> out;
  for (const auto& [n, text] : order) {
    if (out.size() < kShownErrors) out.push_back(fmt::format("{} x {}", -n, text));
  }
  return out;
}

std::string line(const std::string& name, const Quantiles& q) {
  return fmt::format("{:<18}{:>7}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}\n", name, q.count,
                     q.mean, q.p50, q.p90, q.p99, q.max);
}

// A table of the parts, if there are any.
std::string parts_text(const LoadReport& r) {
  if (r.parts.count == 0) return "";
  std::string out = fmt::format("\n{:<18}{:>7}", "mean milliseconds", "count");
  for (const TimePart& part : kTimeParts) out += fmt::format("{:>12}", part.name);
  out += "\n";
  const auto row = [&](const std::string& name, const MeanParts& parts) {
    out += fmt::format("{:<18}{:>7}", name, parts.count);
    for (const TimePart& part : kTimeParts) out += fmt::format("{:>12.1f}", parts.mean.*part.value);
    out += "\n";
  };
  row("TTFT", r.parts);
  for (const LengthBin& bin : r.bins) {
    row(fmt::format("  {}-{} tokens", bin.low, bin.high - 1), bin.parts);
  }
  return out;
}

nlohmann::ordered_json json_of(const MeanParts& parts) {
  nlohmann::ordered_json out = {{"count", parts.count}};
  for (const TimePart& part : kTimeParts) out[part.key] = parts.mean.*part.value;
  return out;
}

nlohmann::ordered_json json_of(const Quantiles& q) {
  return {{"count", q.count}, {"mean", q.mean}, {"p50", q.p50},
          {"p90", q.p90},     {"p99", q.p99},   {"max", q.max}};
}

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  Quantiles out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  for (const double value : values) out.mean += value / static_cast<double>(values.size());
  out.p50 = rank(values, 0.5);
  out.p90 = rank(values, 0.9);
  out.p99 = rank(values, 0.99);
  out.max = values.back();
  return out;
}

double statistic_of(const Quantiles& ttft, const std::string& name) {
  if (name == "mean") return ttft.mean;
  if (name == "p50") return ttft.p50;
  return name == "p90" ? ttft.p90 : ttft.p99;
}

LoadReport make_report(const LoadResult& result, double ttft_limit_ms) {
  LoadReport out;
  out.ttft_limit = ttft_limit_ms;
  out.requests = static_cast<int>(result.requests.size());
  out.seconds = result.seconds;
  Collector all;
  std::vector<double> e2e, lag, refusal;
  int good = 0;
  double prompt_tokens = 0;
  for (const RequestRecord& r : result.requests) {
    out.finished += r.end == RequestEnd::finished;
    out.refused += r.end == RequestEnd::refused;
    out.failed += r.end == RequestEnd::failed;
    out.unfinished += r.end == RequestEnd::unfinished;
    all.add(r, result.seconds);
    if (r.sent >= 0) lag.push_back(1e3 * (r.sent - r.scheduled));
    if (r.end == RequestEnd::refused && r.sent >= 0) refusal.push_back(1e3 * (r.finished - r.sent));
    if (r.end != RequestEnd::finished) continue;
    good += 1e3 * (r.first - r.scheduled) <= ttft_limit_ms;
    e2e.push_back(1e3 * (r.finished - r.scheduled));
    prompt_tokens += r.prompt_tokens;
  }
  out.goodput = good / std::max(1e-9, result.seconds);
  out.refusal = quantiles(std::move(refusal));
  out.request_rate = out.finished / std::max(1e-9, result.seconds);
  out.prompt_token_rate = prompt_tokens / std::max(1e-9, result.seconds);
  out.ttft = quantiles(std::move(all.ttft));
  out.parts = all.mean();
  out.e2e = quantiles(std::move(e2e));
  out.lag = quantiles(std::move(lag));
  out.bins = bins_of(result);
  out.errors = errors_of(result);
  return out;
}

std::string text_of(const LoadReport& r) {
  std::string out = fmt::format(
      "requests   {} in {:.1f} s: {} finished, {} refused, {} failed, {} unfinished\n"
      "throughput {:.2f} requests/s, {:.0f} prompt tokens/s\n\n",
      r.requests, r.seconds, r.finished, r.refused, r.failed, r.unfinished, r.request_rate,
      r.prompt_token_rate);
  if (r.ttft_limit > 0) {
    out.insert(out.size() - 1, fmt::format("goodput    {:.2f} requests/s with TTFT <= {:.0f} ms\n",
                                           r.goodput, r.ttft_limit));
  }
  out += fmt::format("{:<18}{:>7}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "count", "mean",
                     "p50", "p90", "p99", "max");
  out += line("TTFT", r.ttft);
  for (const LengthBin& bin : r.bins) {
    out += line(fmt::format("  {}-{} tokens", bin.low, bin.high - 1), bin.ttft);
  }
  out += line("end to end", r.e2e);
  out += line("sent late by", r.lag);
  if (r.refusal.count > 0) out += line("refused after", r.refusal);
  out += parts_text(r);
  for (const std::string& error : r.errors) out += fmt::format("error: {}\n", error);
  return out;
}

nlohmann::ordered_json json_of(const LoadReport& r) {
  nlohmann::ordered_json out = {{"requests", r.requests},
                                {"finished", r.finished},
                                {"refused", r.refused},
                                {"failed", r.failed},
                                {"unfinished", r.unfinished},
                                {"duration_s", r.seconds},
                                {"request_throughput", r.request_rate},
                                {"prompt_token_throughput", r.prompt_token_rate},
                                {"ttft_ms", json_of(r.ttft)},
                                {"e2e_ms", json_of(r.e2e)},
                                {"send_lag_ms", json_of(r.lag)},
                                {"errors", r.errors}};
  if (r.refusal.count > 0) out["refusal_ms"] = json_of(r.refusal);
  if (r.ttft_limit > 0) out["goodput"] = {{"ttft_ms", r.ttft_limit}, {"request_rate", r.goodput}};
  if (r.parts.count > 0) out["mean_parts"] = json_of(r.parts);
  for (const LengthBin& bin : r.bins) {
    nlohmann::ordered_json row = {
        {"low", bin.low}, {"high", bin.high}, {"ttft_ms", json_of(bin.ttft)}};
    if (bin.parts.count > 0) row["mean_parts"] = json_of(bin.parts);
    out["ttft_ms_by_prompt_tokens"].push_back(row);
  }
  return out;
}

}  // namespace asap
