#include "asap/load/report_sections.h"

#include <algorithm>
#include <cmath>

#include "asap/load/paper_figures.h"

namespace asap {

namespace {

const std::vector<std::string> kEngines = {kAsapPaper, kDefault, kChunked, kAsap};

constexpr double kDrawnMs = 20'000;  // of TTFT, on charts

HtmlColumn name_column(const char* name) {
  return {name, Origin::none, false};
}

std::optional<double> mean_at(const Asking& asking, const SimPoint& point) {
  const auto stats = asking.runs.point(point);
  return stats ? std::optional(stats->mean) : std::nullopt;
}

std::optional<double> paper_rate(const std::string& engine) {
  if (engine == kAsapPaper) return paper::kSloRateAsap;
  if (engine == kDefault) return paper::kSloRateDefault;
  if (engine == kChunked) return paper::kSloRateChunked;
  return std::nullopt;
}

HtmlTable rates_table(const Asking& asking) {
  HtmlTable out;
  out.caption = fmt::format("Highest rate with TTFT within {:g} s, requests/s",
                            asking.runs.options().slo_ms / 1000);
  out.columns = {name_column("engine"),
                 {"mean TTFT", Origin::paper},
                 {"mean TTFT", Origin::simulated},
                 {"over Chunked", Origin::paper},
                 {"over Chunked", Origin::simulated},
                 {"p99 TTFT", Origin::simulated}};
  const auto chunked = asking.runs.slo_rate(asking.point(kChunked), SloStatistic::mean);
  for (const std::string& engine : kEngines) {
    const auto rate = asking.runs.slo_rate(asking.point(engine), SloStatistic::mean);
    const auto p99 = asking.runs.slo_rate(asking.point(engine), SloStatistic::p99);
    out.rows.push_back({engine_label(engine), number_text(paper_rate(engine), 1),
                        number_text(rate, 1),
                        number_text(ratio(paper_rate(engine), paper::kSloRateChunked), 2),
                        number_text(ratio(rate, chunked), 2), number_text(p99, 1)});
  }
  return out;
}

HtmlTable ttft_table(const Asking& asking) {
  HtmlTable out;
  out.caption = "Mean TTFT";
  out.columns = {name_column(""),
                 {"", Origin::paper},
                 {"", Origin::simulated},
                 {"our policy", Origin::simulated}};
  const auto at = [&](const char* engine, double rate) {
    return mean_at(asking, asking.point(engine, rate));
  };
  const auto ms = [](std::optional<double> value) { return number_text(value, 0); };
  const auto share = [](std::optional<double> value) { return number_text(value, 3); };
  out.rows.push_back(
      {"1 request/s: ASAP, ms", ms(paper::kTtftAsap), ms(at(kAsapPaper, 1)), ms(at(kAsap, 1))});
  out.rows.push_back({"1 request/s: Default, ms", ms(paper::kTtftDefault), ms(at(kDefault, 1))});
  out.rows.push_back({"1 request/s: Chunked, ms", ms(paper::kTtftChunked), ms(at(kChunked, 1))});
  const auto compare = [&](double rate, const char* other, double figure) {
    out.rows.push_back({fmt::format("{:g} requests/s: ASAP / {}", rate, engine_label(other)),
                        share(figure), share(ratio(at(kAsapPaper, rate), at(other, rate))),
                        share(ratio(at(kAsap, rate), at(other, rate)))});
  };
  compare(4, kDefault, paper::kAt4OfDefault);
  compare(4, kChunked, paper::kAt4OfChunked);
  compare(8, kChunked, paper::kAt8OfChunked);
  for (auto& row : out.rows) row.resize(out.columns.size());
  return out;
}

std::vector<double> drawn_rates(const Asking& asking, double limit) {
  const std::vector<double> all = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28};
  const std::vector<double> few = {1, 4, 8, 12, 16, 20, 24};
  std::vector<double> out;
  for (const double rate : asking.options.quick ? few : all) {
    if (rate < 0.97 * limit) out.push_back(rate);
  }
  for (const double factor : {1.0, 1.06, 1.12}) out.push_back(factor * limit);
  return out;
}

// What is not the time of a kernel or of a message.
double outside_kernels(const TimeParts& parts) {
  return parts.queueing + parts.turn + parts.barrier + parts.host;
}
double sum_of(const TimeParts& parts) {
  double out = 0;
  for (const TimePart& part : kTimeParts) out += parts.*part.value;
  return out;
}

HtmlTable parts_table(const std::string& caption, const std::vector<PaperBin>& bins) {
  HtmlTable out;
  out.caption = caption;
  out.folded = true;
  out.columns = {
      name_column("prompt tokens"), {"requests", Origin::simulated}, {"TTFT", Origin::simulated}};
  for (const TimePart& part : kTimeParts) out.columns.push_back({part.name, Origin::simulated});
  for (const PaperBin& bin : bins) {
    std::vector<HtmlCell> row = {bin.label, fmt::format("{}", bin.count),
                                 number_text(bin.ttft_ms, 0)};
    for (const TimePart& part : kTimeParts) {
      row.emplace_back(number_text(bin.parts.mean.*part.value, 1));
    }
    out.rows.push_back(std::move(row));
  }
  return out;
}

// The figures that the paper's text gives of its Figure 15, for prompts below 512 tokens.
HtmlTable short_prompts_table(const std::vector<PaperBin>& ours,
                              const std::vector<PaperBin>& theirs) {
  HtmlTable out;
  out.caption = "Prompts below 512 tokens";
  out.columns = {name_column(""), {"", Origin::paper}, {"", Origin::simulated}};
  std::optional<double> barrier, queue, cut;
  if (!theirs.empty() && theirs[0].parts.count > 0) {
    const TimeParts& parts = theirs[0].parts.mean;
    barrier = ratio(parts.barrier, sum_of(parts));
    queue = ratio(parts.queueing, sum_of(parts));
    if (!ours.empty() && ours[0].parts.count > 0) {
      cut = ratio(outside_kernels(parts) - outside_kernels(ours[0].parts.mean),
                  outside_kernels(parts));
    }
  }
  out.rows.push_back({"Default: barrier, part of TTFT", number_text(paper::kShortBarrierShare, 2),
                      number_text(barrier, 2)});
  out.rows.push_back({"Default: queueing, part of TTFT", number_text(paper::kShortQueueShare, 2),
                      number_text(queue, 2)});
  out.rows.push_back({"ASAP saves of Default's time outside kernels",
                      "up to " + number_text(paper::kOutsideKernelsCut, 2), number_text(cut, 2)});
  return out;
}

struct Variant {
  const char* name;
  SimChanges changes;
  std::optional<double> paper_rate;
};

SimPoint changed(const Asking& asking, const SimChanges& changes, double rate = 1) {
  SimPoint out = asking.point(kAsapPaper, rate);
  out.settings.changes = changes;
  return out;
}

std::vector<Variant> policy_variants() {
  const auto with = [](auto change) {
    SimChanges out;
    change(out);
    return out;
  };
  const auto open = [](SimChanges& c) {
    c.refill = true;
    c.exclusive_tokens = 0;
  };
  const auto best = [&](SimChanges& c) { open(c), c.stages = 3, c.aged_order = true; };
  return {
      {"the paper's policy", {}, {}},
      {"one region for a group", with([](auto& c) { c.regions = 1; }), {}},
      {"no exclusive rule", with([](auto& c) { c.exclusive_tokens = 0; }), {}},
      {"refill, no exclusive rule", with(open), {}},
      {"three stages, refill, no exclusive rule",
       with([&](auto& c) { open(c), c.stages = 3; }),
       {}},
      {"the same, aged shortest-first", with(best), {}},
      {"the same, long prompts in 16k parts on several stages",
       with([&](auto& c) { best(c), c.split_tokens = 16384, c.self_pair_tokens = 0; }),
       {}},
      {"the same, in 8k parts",
       with([&](auto& c) { best(c), c.split_tokens = 8192, c.self_pair_tokens = 0; }),
       {}},
      {"16k parts, lone prompts from 1k in two parts",
       with([&](auto& c) { best(c), c.split_tokens = 16384, c.self_pair_tokens = 1024; }),
       {}},
      {"the same, no waiting at all",
       with([&](auto& c) {
         best(c), c.split_tokens = 16384, c.self_pair_tokens = 1024, c.wait = false;
       }),
       {}},
      {"the same, experts merge items of equal layer",
       with([&](auto& c) {
         best(c), c.split_tokens = 16384, c.self_pair_tokens = 1024, c.merge_items = true;
       }),
       {}},
      {"the paper's policy without waiting", with([](auto& c) { c.wait = false; }), {}},
      {"the paper's policy, experts merge", with([](auto& c) { c.merge_items = true; }), {}},
  };
}

}  // namespace

SimPoint Asking::point(const std::string& engine, double rate) const {
  SimPoint out;
  out.engine = engine;
  out.rate = rate;
  out.settings.profile = options.profile;
  out.settings.workload = options.workload;
  out.settings.seconds = options.seconds;
  return out;
}

std::string engine_label(const std::string& engine) {
  if (engine == kAsap) return "ASAP (our policy)";
  if (engine == kAsapPaper) return "ASAP (paper's policy)";
  if (engine == kDefault) return "Default";
  return engine == kChunked ? "Chunked" : engine;
}

std::string number_text(std::optional<double> value, int digits) {
  if (!value || !std::isfinite(*value)) return "–";
  std::string text = fmt::format("{:.{}f}", *value, digits);
  const size_t point = std::min(text.find('.'), text.size());
  const size_t first = text.starts_with('-') ? 1 : 0;
  for (size_t at = point; at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

std::optional<double> ratio(std::optional<double> a, std::optional<double> b) {
  if (!a || !b || *b == 0) return std::nullopt;
  return *a / *b;
}

std::vector<PaperBin> paper_bins(const std::vector<LengthBin>& bins) {
  constexpr int kFirst = 512;
  std::vector<PaperBin> out;
  const auto label = [](int tokens) {
    return tokens < 1024 ? fmt::format("{}", tokens) : fmt::format("{}k", tokens / 1024);
  };
  for (const LengthBin& bin : bins) {
    const bool is_short = bin.high <= kFirst;
    if (out.empty() || !is_short) out.emplace_back();
    PaperBin& own = out.back();
    own.label = is_short ? "< 512" : fmt::format("{}–{}", label(bin.low), label(bin.high));
    const auto mean = [](double a, size_t n, double b, size_t m) {
      return n + m == 0 ? 0
                        : (a * static_cast<double>(n) + b * static_cast<double>(m)) /
                              static_cast<double>(n + m);
    };
    own.ttft_ms = mean(own.ttft_ms, own.count, bin.ttft.mean, bin.ttft.count);
    own.count += bin.ttft.count;
    for (const TimePart& part : kTimeParts) {
      own.parts.mean.*part.value = mean(own.parts.mean.*part.value, own.parts.count,
                                        bin.parts.mean.*part.value, bin.parts.count);
    }
    own.parts.count += bin.parts.count;
  }
  return out;
}

Chart parts_chart(const std::string& id, const std::string& title,
                  const std::vector<std::string>& names,
                  const std::vector<std::vector<PaperBin>>& engines) {
  Chart chart;
  chart.id = id;
  chart.title = title;
  chart.x_label = "prompt tokens";
  chart.y_label = "mean milliseconds";
  if (names.size() > 1) chart.cluster_names = names;
  for (const auto& bins : engines) {
    for (const PaperBin& bin : bins) {
      const auto known = std::find(chart.categories.begin(), chart.categories.end(), bin.label);
      if (known == chart.categories.end()) chart.categories.push_back(bin.label);
    }
  }
  for (size_t e = 0; e < engines.size(); ++e) {
    for (const TimePart& part : kTimeParts) {
      ChartSeries series{part.name, {}, ChartStyle::bars, false, static_cast<int>(e)};
      for (const PaperBin& bin : engines[e]) {
        if (bin.parts.count == 0) continue;
        const auto at = std::find(chart.categories.begin(), chart.categories.end(), bin.label);
        series.points.push_back(
            {static_cast<double>(at - chart.categories.begin()), bin.parts.mean.*part.value});
      }
      chart.series.push_back(std::move(series));
    }
  }
  return chart;
}

Result<Draft> headline_section(const Asking& asking) {
  Draft out;
  out.parts.emplace_back(HtmlText{
      "The paper runs DeepSeek-V3.2 on 32 dies: the lockstep engines with D=8, T=4, E=32, ASAP "
      "with "
      "D=4, T=4, E=16. The limit is on the mean TTFT; a mean can be met by making a few wait very "
      "long, so the highest rate under the same limit on p99 stands beside it. A request that is "
      "still waiting when a run ends counts with its age."});
  out.parts.emplace_back(rates_table(asking));
  out.parts.emplace_back(ttft_table(asking));
  return out;
}

Result<Draft> curves_section(const Asking& asking) {
  DraftFigure figure;
  figure.origin = Origin::simulated;
  figure.caption = "Mean TTFT by request rate.";
  if (asking.options.seeds > 1) {
    figure.caption += " Bars at a point: least and greatest mean of its repetitions.";
  }
  Chart& chart = figure.chart;
  chart.id = "curves";
  chart.title = "Mean TTFT as load grows";
  chart.x_label = "requests per second";
  chart.y_label = "milliseconds";
  chart.log_y = true;
  chart.y_max = kDrawnMs;
  const double slo = asking.runs.options().slo_ms;
  chart.horizontal = {{slo, fmt::format("SLO {:g} s", slo / 1000)}};
  HtmlTable table;
  table.caption = "The points of the chart";
  table.folded = true;
  table.columns = {name_column("engine"),           {"requests/s", Origin::simulated},
                   {"mean, ms", Origin::simulated}, {"p50, ms", Origin::simulated},
                   {"p90, ms", Origin::simulated},  {"p99, ms", Origin::simulated}};
  for (const std::string& engine : kEngines) {
    const auto limit = asking.runs.slo_rate(asking.point(engine), SloStatistic::mean);
    if (!limit || *limit <= 0) continue;
    ChartSeries series{engine_label(engine), {}};
    for (const double rate : drawn_rates(asking, *limit)) {
      const auto stats = asking.runs.point(asking.point(engine, rate));
      if (!stats) continue;
      ChartPoint point{rate, stats->mean};
      if (asking.options.seeds > 1) point = {rate, stats->mean, stats->low, stats->high};
      series.points.push_back(point);
      table.rows.push_back({engine_label(engine), number_text(rate, 2), number_text(stats->mean, 0),
                            number_text(stats->p50, 0), number_text(stats->p90, 0),
                            number_text(stats->p99, 0)});
    }
    chart.series.push_back(std::move(series));
  }
  Draft out;
  out.parts.emplace_back(std::move(figure));
  out.parts.emplace_back(std::move(table));
  return out;
}

Result<Draft> parts_section(const Asking& asking) {
  constexpr double kRate = 4;
  Draft out;
  out.parts.emplace_back(HtmlText{
      "Where a request's TTFT goes, by the length of its prompt. Queueing: until a batch took it. "
      "Turn: its batch could go on, but the rank was computing another stage. Barrier: lockstep "
      "engines wait for their slowest group, and for the busiest expert device. Outside kernels "
      "are "
      "queueing, turn, barrier and host."});
  std::vector<std::string> names;
  std::vector<std::vector<PaperBin>> engines;
  std::vector<PaperBin> ours, theirs;
  for (const std::string& engine : kEngines) {
    const auto stats = asking.runs.point(asking.point(engine, kRate));
    if (!stats) continue;
    names.push_back(engine == kAsapPaper ? "paper's policy"
                    : engine == kAsap    ? "our policy"
                                         : engine_label(engine));
    engines.push_back(paper_bins(stats->bins));
    if (engine == kAsapPaper) ours = engines.back();
    if (engine == kDefault) theirs = engines.back();
  }
  out.parts.emplace_back(
      DraftFigure{parts_chart("parts", fmt::format("Where the time goes, {:g} requests/s", kRate),
                              names, engines),
                  "Mean parts of TTFT by prompt length.", Origin::simulated});
  out.parts.emplace_back(short_prompts_table(ours, theirs));
  for (size_t e = 0; e < engines.size(); ++e) {
    out.parts.emplace_back(parts_table(names[e] + ", milliseconds", engines[e]));
  }
  return out;
}

Result<Draft> ablations_section(const Asking& asking) {
  SimChanges one_stage, no_overlap, no_super;
  one_stage.stages = 1;
  no_overlap.overlap = false;
  no_super.super_kernel = false;
  const std::vector<Variant> variants = {{"all", {}, paper::kSloRateAsap},
                                         {"no interleaving", one_stage, paper::kNoInterleaving},
                                         {"no overlap", no_overlap, paper::kNoOverlap},
                                         {"no super kernel", no_super, paper::kNoSuperKernel}};
  HtmlTable table;
  table.caption = "Highest rate without one mechanism, requests/s";
  table.columns = {name_column(""),
                   {"rate", Origin::paper},
                   {"rate", Origin::simulated},
                   {"of all", Origin::paper},
                   {"of all", Origin::simulated},
                   {"mean TTFT at 1/s, ms", Origin::simulated}};
  ChartSeries figures{"paper", {}, ChartStyle::bars, false, 0};
  ChartSeries simulated{"simulated", {}, ChartStyle::bars, false, 1};
  DraftFigure figure{
      {}, "ASAP with the paper's policy, less one mechanism at a time.", Origin::none};
  const auto all = asking.runs.slo_rate(changed(asking, {}), SloStatistic::mean);
  std::vector<std::optional<double>> low;
  for (const Variant& variant : variants) {
    const auto rate = asking.runs.slo_rate(changed(asking, variant.changes), SloStatistic::mean);
    low.push_back(mean_at(asking, changed(asking, variant.changes)));
    table.rows.push_back({variant.name, number_text(variant.paper_rate, 1), number_text(rate, 1),
                          number_text(ratio(variant.paper_rate, paper::kSloRateAsap), 3),
                          number_text(ratio(rate, all), 3), number_text(low.back(), 0)});
    const auto at = static_cast<double>(figure.chart.categories.size());
    figure.chart.categories.emplace_back(variant.name);
    figures.points.push_back({at, *variant.paper_rate});
    if (rate) simulated.points.push_back({at, *rate});
  }
  figure.chart.id = "ablations";
  figure.chart.title = "SLO throughput without one mechanism";
  figure.chart.y_label = "requests per second";
  figure.chart.series = {figures, simulated};
  const auto difference = [](std::optional<double> a, std::optional<double> b) {
    return a && b ? std::optional(*a - *b) : std::nullopt;
  };
  HtmlTable at_low_load;
  at_low_load.caption = "At 1 request/s";
  at_low_load.columns = {name_column(""), {"", Origin::paper}, {"", Origin::simulated}};
  at_low_load.rows = {{"interleaving costs, part of TTFT", number_text(paper::kInterleavingCost, 3),
                       number_text(ratio(difference(low[0], low[1]), low[1]), 3)},
                      {"the super kernel saves, ms", number_text(paper::kSuperKernelSavesMs, 1),
                       number_text(difference(low[3], low[0]), 1)}};
  Draft out;
  out.parts.emplace_back(std::move(figure));
  out.parts.emplace_back(std::move(table));
  out.parts.emplace_back(std::move(at_low_load));
  return out;
}

Result<Draft> policies_section(const Asking& asking) {
  HtmlTable table;
  table.columns = {name_column("ASAP with"),
                   {"rate, mean TTFT", Origin::simulated},
                   {"change", Origin::simulated},
                   {"rate, p99 TTFT", Origin::simulated},
                   {"mean TTFT at 1/s, ms", Origin::simulated},
                   {"p99 at 8/s, ms", Origin::simulated}};
  const auto base = asking.runs.slo_rate(changed(asking, {}), SloStatistic::mean);
  const auto add = [&](const std::string& name, const SimPoint& point) {
    SimPoint busy = point;
    busy.rate = 8;
    const auto rate = asking.runs.slo_rate(point, SloStatistic::mean);
    const auto p99 = asking.runs.slo_rate(point, SloStatistic::p99);
    const auto at_8 = asking.runs.point(busy);
    const auto change = ratio(rate, base);
    table.rows.push_back({name, number_text(rate, 1),
                          change ? fmt::format("{:+.0f} %", 100 * (*change - 1)) : "–",
                          number_text(p99, 1), number_text(mean_at(asking, point), 0),
                          number_text(at_8 ? std::optional(at_8->p99) : std::nullopt, 0)});
  };
  for (const Variant& variant : policy_variants()) {
    add(variant.name, changed(asking, variant.changes));
  }
  add("our policy", asking.point(kAsap));
  Draft out;
  out.parts.emplace_back(
      HtmlText{"Each row changes the paper's policy in the way it names; the last is what this "
               "engine does by default. Rates are the highest under the limit, requests/s."});
  out.parts.emplace_back(std::move(table));
  return out;
}

Result<Draft> limits_section(const Asking& asking) {
  struct Case {
    const char* name;
    const char* workload;  // null: that of the report
    bool skew;
  };
  HtmlTable table;
  table.caption = "Highest rate with mean TTFT within the limit, requests/s";
  table.columns = {name_column("workload")};
  for (const std::string& engine : kEngines) {
    table.columns.push_back({engine_label(engine), Origin::simulated});
  }
  table.columns.push_back({"ours over the best lockstep", Origin::simulated});
  for (const Case& some : {Case{"the report's own", nullptr, true},
                           Case{"the same, experts equally busy", nullptr, false},
                           Case{"all prompts 5,120 tokens", "constant:5120", true},
                           Case{"the same, experts equally busy", "constant:5120", false},
                           Case{"W4: short prompts, all alike", "W4", true}}) {
    std::vector<HtmlCell> row = {some.name};
    std::optional<double> lockstep, ours;
    for (const std::string& engine : kEngines) {
      SimPoint point = asking.point(engine);
      if (some.workload != nullptr) point.settings.workload = some.workload;
      point.settings.expert_skew = some.skew;
      const auto rate = asking.runs.slo_rate(point, SloStatistic::mean);
      row.emplace_back(number_text(rate, 1));
      if (engine == kAsap) ours = rate;
      if (engine == kDefault || engine == kChunked) lockstep = std::max(lockstep, rate);
    }
    row.emplace_back(number_text(ratio(ours, lockstep), 2));
    table.rows.push_back(std::move(row));
  }
  HtmlTable quiet;
  quiet.caption = "Mean TTFT at 0.5 requests/s by the width of a group, ms";
  quiet.columns = {name_column("engine and devices"), {"TTFT", Origin::simulated}};
  const auto add = [&](const char* engine, int dp, int tp, int ep) {
    SimPoint point = asking.point(engine, 0.5);
    point.settings.changes.dp = dp;
    point.settings.changes.tp = tp;
    point.settings.changes.ep = ep;
    quiet.rows.push_back({fmt::format("{}: D={} T={} E={}", engine_label(engine), dp, tp, ep),
                          number_text(mean_at(asking, point), 0)});
  };
  add(kAsap, 4, 4, 16);
  add(kAsap, 8, 2, 16);
  add(kAsap, 16, 1, 16);
  add(kChunked, 8, 4, 32);
  Draft out;
  out.parts.emplace_back(HtmlText{
      "What asynchrony wins comes from prompts that differ and experts that are unequally busy. "
      "Here both are taken away. A narrow group serves more at once and one prompt more slowly."});
  out.parts.emplace_back(std::move(table));
  out.parts.emplace_back(std::move(quiet));
  return out;
}

Result<Draft> profiles_section(const Asking& asking) {
  HtmlTable table;
  const std::vector<std::string> profiles = {asking.options.profile, asking.options.second_profile};
  table.columns = {name_column(""), {"", Origin::paper}};
  for (const std::string& profile : profiles) table.columns.push_back({profile, Origin::simulated});
  const auto point = [&](const std::string& profile, const char* engine, double rate) {
    SimPoint out = asking.point(engine, rate);
    out.settings.profile = profile;
    return out;
  };
  for (const std::string& engine : kEngines) {
    std::vector<HtmlCell> row = {"highest rate: " + engine_label(engine),
                                 number_text(paper_rate(engine), 1)};
    for (const std::string& profile : profiles) {
      row.emplace_back(number_text(
          asking.runs.slo_rate(point(profile, engine.c_str(), 1), SloStatistic::mean), 1));
    }
    table.rows.push_back(std::move(row));
  }
  const auto compare = [&](const char* a, const char* b, double rate,
                           std::optional<double> figure) {
    std::vector<HtmlCell> row = {
        fmt::format("TTFT at {:g}/s: {} / {}", rate, engine_label(a), engine_label(b)),
        number_text(figure, 3)};
    for (const std::string& profile : profiles) {
      row.emplace_back(number_text(
          ratio(mean_at(asking, point(profile, a, rate)), mean_at(asking, point(profile, b, rate))),
          3));
    }
    table.rows.push_back(std::move(row));
  };
  compare(kAsapPaper, kDefault, 1, paper::kTtftAsap / paper::kTtftDefault);
  compare(kAsapPaper, kChunked, 4, paper::kAt4OfChunked);
  compare(kAsapPaper, kChunked, 8, paper::kAt8OfChunked);
  compare(kAsap, kAsapPaper, 1, std::nullopt);
  compare(kAsap, kAsapPaper, 4, std::nullopt);
  Draft out;
  out.parts.emplace_back(
      HtmlText{"Two sets of costs fit the paper's text about equally well. A conclusion that holds "
               "under one "
               "of them alone is none."});
  out.parts.emplace_back(std::move(table));
  return out;
}

}  // namespace asap
