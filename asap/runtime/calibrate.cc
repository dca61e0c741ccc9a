#include "asap/runtime/calibrate.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "asap/base/check.h"
#include "asap/policy/fit.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/runner.h"
#include "asap/runtime/scheduler.h"

namespace asap {

namespace {

// Tokens of a prompt in a batch of several: a profile has no cost per sequence, which shows in
// shorter ones.
constexpr int kLeastPart = 32;
constexpr int kRequests = 200;
constexpr int kPings = 200;
constexpr Duration kPingWork = Duration::millis(1);  // longer than an idle agent polls
constexpr int kLaunches = 50;

// Single prompts of lengths from `least`; larger batches also in 4 and 16 parts, and over cached
// tokens.
std::vector<CalibrationRow> grid(int least, int max_tokens) {
  std::vector<CalibrationRow> out;
  const auto add = [&](int count, RigSequence each) {
    CalibrationRow row;
    row.sequences.assign(static_cast<size_t>(count), each);
    row.tokens = count * each.tokens;
    row.pairs = static_cast<double>(row.tokens) * (each.tokens + 2.0 * each.past);
    out.push_back(std::move(row));
  };
  for (int n = max_tokens; n >= std::min(least, max_tokens); n /= 2) add(1, {n, 0});
  std::reverse(out.begin(), out.end());
  for (int n = std::max(1, max_tokens / 4); n <= max_tokens; n *= 2) {
    for (const int parts : {4, 16}) {
      if (n / parts >= kLeastPart) add(parts, {n / parts, 0});
    }
  }
  for (const int part : {8, 4}) {
    const int n = max_tokens / part;
    if (n > 0) add(1, {n, max_tokens - n});
  }
  return out;
}

// Where the steps of a layer are in LayerTimes.
constexpr double LayerTimes::*kStepTimes[kSteps] = {&LayerTimes::attention, &LayerTimes::experts,
                                                    &LayerTimes::dispatch,  &LayerTimes::receive,
                                                    &LayerTimes::combine,   &LayerTimes::add};

// Root mean square of how far halves of the experts are from their even share of the rows.
double expert_skew(const std::vector<std::vector<LayerTimes>>& times) {
  double squares = 0, batches = 0;
  for (const std::vector<LayerTimes>& rounds : times) {
    for (const LayerTimes& round : rounds) {
      squares += std::pow(2 * round.half_share - 1, 2);
      ++batches;
    }
  }
  return std::sqrt(squares / batches);
}

// Fills in the measured times of all rows, and of `p` what is measured rather than fitted.
Status measure(LayerRig& rig, const CalibrateOptions& options, std::vector<CalibrationRow>* rows,
               CostProfile* p) {
  const int all = options.rounds * static_cast<int>(rows->size());
  std::vector<std::vector<LayerTimes>> times(rows->size());
  rig.run(rows->front().sequences);  // the first touch of everything
  for (int done = 0; done < all; ++done) {
    const size_t i = static_cast<size_t>(done) % rows->size();
    times[i].push_back(rig.run((*rows)[i].sequences));
    if (options.on_batch && !options.on_batch(done + 1, all)) {
      return fail(Code::unavailable, "stopped before the measurement was complete");
    }
  }
  const auto median_ms = [](const std::vector<LayerTimes>& rounds, double LayerTimes::*step) {
    std::vector<double> values;
    for (const LayerTimes& round : rounds) values.push_back(1e3 * round.*step);
    return median(std::move(values));
  };
  std::vector<double> batch;
  for (size_t i = 0; i < rows->size(); ++i) {
    for (int step = 0; step < kSteps; ++step) {
      (*rows)[i].measured_ms[step] = median_ms(times[i], kStepTimes[step]);
    }
    if ((*rows)[i].sequences.size() == 1) batch.push_back(median_ms(times[i], &LayerTimes::batch));
  }
  p->batch = median(std::move(batch));
  if (rig.plan().geometry.local_experts() > 1) p->expert_skew_cv = expert_skew(times);
  return {};
}

double kilo(const CalibrationRow& row) {
  return row.tokens / kKiloTokens;
}

// y = x0 + x1·t of one step.
void fit_step(const std::vector<CalibrationRow>& rows, Step step, double* constant,
              double* per_kilo) {
  std::vector<Sample> samples;
  for (const CalibrationRow& row : rows) {
    const double ms = row.measured_ms[static_cast<int>(step)];
    if (ms > 0) samples.push_back({{1, kilo(row)}, ms});
  }
  if (samples.empty()) return;
  const LinearFit fit = fit_nonnegative(samples);
  *constant = fit.coefficients[0];
  *per_kilo = fit.coefficients[1];
}

void fit(const std::vector<CalibrationRow>& rows, CostProfile* p) {
  std::vector<Sample> attention;
  std::vector<Point> experts;
  for (const CalibrationRow& row : rows) {
    const double w = row.pairs / (kKiloTokens * kKiloTokens);
    attention.push_back({{1, kilo(row), w}, row.measured_ms[static_cast<int>(Step::attention)]});
    const double ms = row.measured_ms[static_cast<int>(Step::experts)];
    if (ms > 0) experts.push_back({kilo(row), ms});
  }
  const LinearFit a = fit_nonnegative(attention);
  p->a0 = a.coefficients[0];
  p->b = a.coefficients[1];
  p->g = a.coefficients[2];
  if (!experts.empty()) {
    const KneeFit knee = fit_knee(experts, true);
    p->m0 = knee.offset;
    p->m = knee.slope;
    p->tau = knee.knee;
  }
  fit_step(rows, Step::dispatch, &p->c0, &p->c1);
  fit_step(rows, Step::receive, &p->r0, &p->r1);
  fit_step(rows, Step::combine, &p->d0, &p->d1);
  fit_step(rows, Step::add, &p->q0, &p->q1);
}

// What the profile says, and how far off it is: computed by the profile itself, so the errors are
// those of its users.
void judge(const CostProfile& p, Calibration* out) {
  for (CalibrationRow& row : out->rows) {
    const Duration fitted[kSteps] = {p.attention(row.tokens, row.pairs, p.ref_tp),
                                     p.experts(row.tokens, p.ref_ep),
                                     p.dispatch(row.tokens, p.ref_tp),
                                     p.receive(row.tokens, p.ref_ep),
                                     p.combine(row.tokens, p.ref_tp),
                                     p.add(row.tokens, p.ref_tp)};
    for (int step = 0; step < kSteps; ++step) {
      row.fitted_ms[step] = fitted[step].to_millis();
      if (row.measured_ms[step] <= 0) continue;
      const double error = std::abs(row.fitted_ms[step] / row.measured_ms[step] - 1);
      out->errors[step].mean += error / static_cast<double>(out->rows.size());
      out->errors[step].max = std::max(out->errors[step].max, error);
    }
  }
}

// Milliseconds of the scheduler for a request whose batch is answered at once.
Result<double> request_ms(const LayerRig& rig, const Platform& platform, Clock clock) {
  const Geometry& g = rig.plan().geometry;
  const AttentionLayout layout(g);
  const FrontLayout front(g);
  ASAP_ASSIGN(Windows windows, Windows::open(g, platform));
  Scheduler scheduler(rig.config(), rig.plan(), rig.spec(), windows.link().attach(kFrontDevice),
                      {});
  const auto rank = windows.link().attach(attention_device(g, 0, 0));
  const std::byte* command = rank->window() + layout.command.payload(0);
  std::vector<double> times;
  for (uint64_t batch = 1; batch <= kRequests; ++batch) {
    bool done = false;
    EngineRequest request;
    request.prompt.assign(static_cast<size_t>(std::min(g.max_batch_tokens - 1, 512)), 0);
    request.sampling.max_tokens = 1;
    const Instant begin = clock();
    ASAP_TRY(scheduler.submit(
        std::move(request), [&](const TokenEvent&) { done = true; }, monotonic_now()));
    while (load_flag(rank->window() + layout.command.flag(0)) != make_flag(1, batch)) {
      scheduler.do_work(monotonic_now());
    }
    SequenceCommand sequence;
    std::memcpy(&sequence, command + sizeof(BatchCommand), sizeof(sequence));
    ResultEntry entry{};
    entry.sequence = sequence.sequence;
    entry.logits_row = -1;
    const ResultHeader header{kResultMagic, 1, batch, 1, 0, {}};
    const uint64_t payload = front.result.payload(0);
    rank->put(kFrontDevice, payload + front.entries_at, &entry, sizeof(entry));
    rank->put(kFrontDevice, payload, &header, sizeof(header));
    rank->put_flag(kFrontDevice, front.result.flag(0), make_flag(1, batch));
    while (!done) scheduler.do_work(monotonic_now());
    times.push_back((clock() - begin).to_millis());
  }
  return median(std::move(times));
}

// Answers a flag after some work, as an agent that computes would.
class Echo final : public Agent {
 public:
  Echo(Port& port, uint64_t flag, int peer, uint64_t peer_flag, std::atomic<uint32_t>& stop)
      : port_(port), flag_(flag), peer_(peer), peer_flag_(peer_flag), stop_(stop) {}

  int do_work(Instant) override {
    const Instant seen = monotonic_now();
    if (load_flag(port_.window() + flag_) != next_) return 0;
    if (next_ > 1) times_.push_back((seen - sent_ - kPingWork).to_millis() / 2);
    send();
    if (next_ == kPings) stop_ = 1;
    ++next_;
    return 1;
  }
  std::string name() const override { return "echo"; }

  void send() {
    for (const Instant begin = monotonic_now(); monotonic_now() - begin < kPingWork;) {
    }
    sent_ = monotonic_now();
    port_.put_flag(peer_, peer_flag_, ++sends_);
  }
  double latency_ms() { return median(std::move(times_)); }

 private:
  Port& port_;
  const uint64_t flag_;
  const int peer_;
  const uint64_t peer_flag_;
  std::atomic<uint32_t>& stop_;
  uint64_t next_ = 1, sends_ = 0;
  Instant sent_{0};
  std::vector<double> times_;
};

// Milliseconds from a flag's store until an agent that had nothing to do sees it: half of what
// there and back take. It idles as the engine's agents do here (runner.h).
Result<double> latency_ms(const EnginePlan& plan, const Platform& platform) {
  const Geometry& g = plan.geometry;
  ASAP_ASSIGN(Windows windows, Windows::open(g, platform));
  const int devices[2] = {attention_device(g, 0, 0), expert_device(g, 0)};
  const uint64_t flags[2] = {AttentionLayout(g).combine.flag(0), ExpertLayout(g).dispatch.flag(0)};
  std::atomic<uint32_t> stops[2] = {0, 0};
  const std::unique_ptr<Port> ports[2] = {windows.link().attach(devices[0]),
                                          windows.link().attach(devices[1])};
  Echo first(*ports[0], flags[0], devices[1], flags[1], stops[0]);
  Echo second(*ports[1], flags[1], devices[0], flags[0], stops[1]);
  const auto run = [&](int i, Agent& agent) {
    Agent* const agents[] = {&agent};
    RunOptions options;
    options.spin = !plan.cores_short;
    run_agents(agents, windows.link().doorbell(devices[i]), stops[i], options);
  };
  first.send();
  std::thread other([&] { run(1, second); });
  run(0, first);
  other.join();
  return first.latency_ms();
}

double launch_ms(Team& team, int experts, Clock clock) {
  std::vector<double> times;
  std::vector<int> touched(static_cast<size_t>(team.threads()));
  for (int i = 0; i < kLaunches; ++i) {
    const Instant begin = clock();
    for (int kernel = 0; kernel < 2 * experts; ++kernel) {
      team.parallel_for(team.threads(),
                        [&](int, int thread) { ++touched[static_cast<size_t>(thread)]; });
    }
    times.push_back((clock() - begin).to_millis());
  }
  return median(std::move(times));
}

Status check_profile(const CostProfile& p) {
  if (p.b > 0 && p.m > 0) return {};
  return fail(Code::internal,
              "the times do not grow with the tokens (attention.b {:g}, experts.m {:g} ms per 1024 "
              "tokens); measure larger batches, or more rounds",
              p.b, p.m);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "cpu";
}

// Lower case letters, digits and dots; a dash for each run of anything else.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '.') {
      out += static_cast<char>(std::tolower(byte));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

}  // namespace

std::string profile_name(const EngineConfig& config, DType activation, int threads) {
  const std::string model = config.preset.empty()
                                ? std::filesystem::path(config.model).lexically_normal().string()
                                : config.preset;
  const size_t end = model.find_last_not_of('/');
  const size_t slash = model.find_last_of('/', end);
  const std::string base = model.substr(slash == std::string::npos ? 0 : slash + 1,
                                        end == std::string::npos ? end : end - slash);
  const std::string type =
      config.quantization == "none" ? std::string(dtype_name(activation)) : config.quantization;
  return plain(fmt::format("{} {} {}t {}", base, cpu_name(), threads, type));
}

Result<Calibration> calibrate(const CalibrateOptions& options, const Platform& platform) {
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(options.config)));
  // With fewer tokens than let each expert have one, not all weights are read.
  const int least = std::max({1, spec.experts / std::max(1, spec.top_k), options.max_tokens / 256});
  Calibration out;
  out.rows = grid(least, options.max_tokens);
  LayerRig::Options rig_options;
  rig_options.config = options.config;
  rig_options.max_tokens = rig_options.max_context = options.max_tokens;
  for (const CalibrationRow& row : out.rows) {
    rig_options.max_sequences =
        std::max(rig_options.max_sequences, static_cast<int>(row.sequences.size()));
  }
  rig_options.clock = options.clock;
  rig_options.progress = options.on_load;
  ASAP_ASSIGN(const auto rig, LayerRig::open(rig_options, platform));
  const Geometry& g = rig->plan().geometry;

  CostProfile& p = out.profile;
  p.ref_tp = 1;
  p.ref_ep = g.expert_ranks;
  ASAP_TRY(measure(*rig, options, &out.rows, &p));
  fit(out.rows, &p);
  ASAP_TRY(check_profile(p));
  if (options.pause_company) options.pause_company(true);
  ASAP_ASSIGN(p.latency, latency_ms(rig->plan(), platform));
  if (options.pause_company) options.pause_company(false);
  ASAP_ASSIGN(p.request, request_ms(*rig, platform, options.clock));
  p.launch = launch_ms(rig->team(), g.local_experts(), options.clock);
  p.skew_async = true;
  // In lockstep the receive step is on the way of the exchange.
  p.sync0 = p.c0 + p.r0 + p.d0 + p.q0 + 2 * p.latency;
  p.syncf = 1 + p.r1 / std::max(1e-9, p.c1 + p.d1 + p.q1);
  judge(p, &out);

  p.name = profile_name(options.config, g.activation, rig->plan().threads);
  p.source = fmt::format(
      "measured by asap calibrate: {}, {} thread(s) per device, kernels {} {}, up to {} tokens, "
      "medians of {}",
      cpu_name(), rig->plan().threads, rig->ops().name(), rig->ops().isa(), options.max_tokens,
      options.rounds);
  p.preset = options.config.preset;
  p.hf_overrides = options.config.hf_overrides;
  return out;
}

}  // namespace asap
