// asap bench comm: how long a sender is busy with dispatch and combine, by tokens: with the
// engine's one-sided writes, and with blocking messages (transport/link_p2p.h). Sender and
// receivers are processes that share windows, as in the engine. A receiver is idle, looking at its
// window all the time, or busy: it computes between two looks.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "asap/base/prng.h"
#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/rig_flags.h"
#include "asap/cli/validators.h"
#include "asap/compute/measure.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/windows.h"
#include "asap/transport/link_p2p.h"
#include "asap/transport/verbs.h"

namespace asap {

namespace {

constexpr const char* kCommPreset = "deepseek-v3.2";
constexpr int kMostCommTokens = 1 << 15;
constexpr int kMostRanks = 16;
constexpr Duration kPatience = Duration::seconds(60);  // for a receiver to take a message
constexpr int kLinks = 2;
constexpr const char* kLinkNames[kLinks] = {"one_sided", "p2p"};

struct CommFlags {
  EngineConfig config;
  std::string tokens = "64,128,256,512,1024,2048,4096";
  int busy_us = 1000;
  int rounds = 31;
  bool quick = false;
  std::string output_file;
};

// Taken from the model: the size of a row, and how many rows a token has on a rank.
Geometry geometry_of(const ModelSpec& spec, int expert_ranks, int tokens) {
  Geometry g;
  g.expert_ranks = expert_ranks;
  g.stages = 1;
  g.max_batch_tokens = tokens;
  g.max_batch_seqs = g.max_seq_blocks = 1;
  g.hidden = g.gather_width = spec.hidden;
  g.layers = g.moe_layers = 1;
  g.top_k = std::max(1, spec.top_k / expert_ranks) * expert_ranks;
  g.experts = std::max(spec.experts / expert_ranks, g.top_k) * expert_ranks;
  g.vocab = 1;
  return g;
}

// What parent and children share beside the windows.
struct Control {
  std::atomic<uint32_t> stop{0};
  std::atomic<uint64_t> received[kLinks][kMostRanks] = {};  // items
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

void compute_for(Duration time) {
  const Instant end = monotonic_now() + time;
  while (monotonic_now() < end) {
  }
}

// One direction with receivers of one kind: dispatch from the attention rank to all expert ranks,
// or combine from expert rank 0 to the attention rank. Links take turns, so that neighbours on the
// machine hit them alike.
class Experiment {
 public:
  Experiment(const Geometry& g, bool dispatch, int busy_us)
      : g_(g),
        dispatch_(dispatch),
        busy_(Duration::micros(busy_us)),
        expert_layout_(g),
        attention_layout_(g),
        receivers_(dispatch ? g.expert_ranks : 1) {}

  ~Experiment() {
    if (control_ == nullptr) return;
    control_->stop = 1;
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
    munmap(control_, sizeof(Control));
  }
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  Status start(const Platform& platform) {
    for (int link = 0; link < kLinks; ++link) {
      ASAP_ASSIGN(Windows windows, Windows::open(g_, platform));
      if (link == 1) {
        windows.wrap([this](auto inner) { return make_link_p2p(g_, std::move(inner)); });
      }
      windows_.push_back(std::move(windows));
      ports_.push_back(windows_.back().link().attach(sender()));
    }
    void* shared =
        mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return fail(Code::internal, "mmap: {}", std::strerror(errno));
    control_ = new (shared) Control;
    for (int i = 0; i < receivers_; ++i) {
      const pid_t child = fork();
      if (child < 0) return fail(Code::internal, "fork: {}", std::strerror(errno));
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        receive(i);
        _exit(0);
      }
      children_.push_back(child);
    }
    return {};
  }

  // Microseconds of `rounds` sends of so many tokens, by link.
  Result<std::array<std::vector<double>, kLinks>> measure(int tokens, int rounds) {
    prepare(tokens);
    std::array<std::vector<double>, kLinks> out;
    for (int round = -1; round < rounds; ++round) {  // the first one warms up
      for (size_t link = 0; link < kLinks; ++link) {
        ASAP_TRY(wait_until_received(link));
        // Receivers are caught at any moment of their work.
        const auto longest = static_cast<uint64_t>(busy_.ns) + 1;
        compute_for({static_cast<int64_t>(prng_.below(longest))});
        const Instant begin = monotonic_now();
        send(link);
        const double micros = 1e-3 * static_cast<double>((monotonic_now() - begin).ns);
        if (round >= 0) out[link].push_back(micros);
      }
    }
    return out;
  }

 private:
  int sender() const { return dispatch_ ? attention_device(g_, 0, 0) : expert_device(g_, 0); }

  // The life of receiver `i`, in a process of its own.
  void receive(int i) {
    const int device = dispatch_ ? expert_device(g_, i) : attention_device(g_, 0, 0);
    std::vector<std::unique_ptr<Port>> ports;
    for (Windows& windows : windows_) ports.push_back(windows.link().attach(device));
    const int experts = part_of(g_.experts, g_.expert_ranks, i).size();
    DispatchView view;
    while (control_->stop == 0) {
      for (size_t link = 0; link < kLinks; ++link) {
        std::atomic<uint64_t>& received = control_->received[link][i];
        const ItemId item{.seq = received + 1};
        const std::byte* window = ports[link]->window();
        const bool arrived =
            dispatch_ ? dispatch_recv(window, g_, expert_layout_, experts, item, {&view, 1})
                      : combine_arrived(window, item);
        if (arrived) received = item.seq;
      }
      if (busy_.ns > 0) compute_for(busy_);
    }
  }

  // The answer of expert rank 0 alone.
  bool combine_arrived(const std::byte* window, const ItemId& item) const {
    const int slot = attention_layout_.expert_slot(0, 0);
    return load_flag(window + attention_layout_.combine.flag(slot)) ==
           make_flag(item.epoch, item.seq);
  }

  void prepare(int tokens) {
    const auto count = static_cast<size_t>(tokens);
    const int per_token = g_.top_k / g_.expert_ranks;
    hidden_.resize(count * g_.row_bytes());
    tokens_.resize(count);
    rows_.clear();
    counts_.assign(static_cast<size_t>(part_of(g_.experts, g_.expert_ranks, 0).size()), 0);
    for (int i = 0; i < tokens; ++i) tokens_[static_cast<size_t>(i)] = i;
    for (int expert = 0; expert < per_token; ++expert) {
      counts_[static_cast<size_t>(expert)] = tokens;
      for (int i = 0; i < tokens; ++i) rows_.push_back({i, 1.0f});
    }
  }

  void send(size_t link) {
    Port& port = *ports_[link];
    const ItemId item{.seq = ++sent_[link]};
    if (!dispatch_) {
      const int rows = static_cast<int>(tokens_.size());
      combine_put_rows(port, g_, attention_layout_, item, 0, 0, 0, rows, hidden_.data());
      combine_finish(port, g_, attention_layout_, item, 0, 0, rows);
      return;
    }
    for (int e = 0; e < g_.expert_ranks; ++e) {
      dispatch_send(port, g_, expert_layout_, e, 0, item,
                    {counts_, rows_, tokens_, hidden_.data()});
    }
  }

  Status wait_until_received(size_t link) {
    const Instant deadline = monotonic_now() + kPatience;
    for (int i = 0; i < receivers_; ++i) {
      while (control_->received[link][i] != sent_[link]) {
        if (interrupted()) return fail(Code::unavailable, "interrupted");
        if (monotonic_now() > deadline) {
          return fail(Code::unavailable, "receiver {} has not taken item {} within {:.0f} s", i,
                      sent_[link], kPatience.to_seconds());
        }
      }
    }
    return {};
  }

  const Geometry g_;
  const bool dispatch_;
  const Duration busy_;
  const ExpertLayout expert_layout_;
  const AttentionLayout attention_layout_;
  const int receivers_;
  std::vector<Windows> windows_;              // by link
  std::vector<std::unique_ptr<Port>> ports_;  // the sender's, by link
  Control* control_ = nullptr;
  std::vector<pid_t> children_;
  std::array<uint64_t, kLinks> sent_ = {};
  std::vector<std::byte> hidden_;
  std::vector<int32_t> tokens_, counts_;
  std::vector<RowEntry> rows_;
  Prng prng_{1};
};

using Json = nlohmann::ordered_json;

// "123.4 (120.1-130.2)"
std::string text_of(const Spread& s) {
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", s.median, s.low, s.high);
}

Status measure_direction(const CommFlags& flags, const Platform& platform, const Geometry& g,
                         const std::vector<int>& tokens, bool dispatch, Json* out) {
  const char* name = dispatch ? "dispatch" : "combine";
  for (const int busy_us : {0, flags.busy_us}) {
    Experiment experiment(g, dispatch, busy_us);
    ASAP_TRY(experiment.start(platform));
    // The largest first: its pages are there for the others.
    ASAP_TRY(experiment.measure(tokens.back(), 1));
    std::printf("\n%s, %s, receiver %s\n%8s %10s %28s %28s %8s\n", name,
                dispatch ? fmt::format("to {} expert rank(s)", g.expert_ranks).c_str()
                         : "of one expert rank",
                busy_us == 0 ? "idle" : fmt::format("busy {} us between looks", busy_us).c_str(),
                "tokens", "MB", "one-sided us", "p2p us", "ratio");
    for (const int n : tokens) {
      ASAP_ASSIGN(const auto micros, experiment.measure(n, flags.rounds));
      const double mb =
          1e-6 * n * static_cast<double>(g.row_bytes()) * (dispatch ? g.expert_ranks : 1);
      const Spread spreads[kLinks] = {spread_of(micros[0]), spread_of(micros[1])};
      const double ratio = spreads[1].median / spreads[0].median;
      std::printf("%8d %10.2f %28s %28s %8.2f\n", n, mb, text_of(spreads[0]).c_str(),
                  text_of(spreads[1]).c_str(), ratio);
      std::fflush(stdout);
      Json row = {{"op", name}, {"busy_us", busy_us}, {"tokens", n}, {"mb", mb}, {"ratio", ratio}};
      for (size_t link = 0; link < kLinks; ++link) {
        row[kLinkNames[link]] = {{"median_us", spreads[link].median},
                                 {"low_us", spreads[link].low},
                                 {"high_us", spreads[link].high}};
      }
      (*out)["rows"].push_back(row);
    }
  }
  return {};
}

Status bench(CommFlags flags, const Platform& platform) {
  if (flags.quick) {
    flags.tokens = "16,256";
    flags.rounds = 9;
  }
  if (flags.config.num_moe_ranks < 1 || flags.config.num_moe_ranks > kMostRanks) {
    return fail(Code::invalid, "--num-moe-ranks is {}; it must be between 1 and {}",
                flags.config.num_moe_ranks, kMostRanks);
  }
  ASAP_ASSIGN(const std::vector<int> tokens,
              parse_counts("--tokens", flags.tokens, kMostCommTokens));
  ASAP_TRY(complete_rig_config(kCommPreset, &flags.config));
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(flags.config)));
  const Geometry g = geometry_of(spec, flags.config.num_moe_ranks, tokens.back());
  catch_interrupts();
  const std::string model = source_of(flags.config).name();
  std::printf("%s: hidden %d, %s, %d row(s) of a token per rank; median of %d (quartiles)\n",
              model.c_str(), g.hidden, std::string(dtype_name(g.activation)).c_str(),
              g.top_k / g.expert_ranks, flags.rounds);
  Json out = {{"model", model},
              {"hidden", g.hidden},
              {"num_moe_ranks", g.expert_ranks},
              {"rounds", flags.rounds}};
  for (const bool dispatch : {true, false}) {
    ASAP_TRY(measure_direction(flags, platform, g, tokens, dispatch, &out));
  }
  return write_figures(flags.output_file, out);
}

}  // namespace

std::function<int()> add_bench_comm(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<CommFlags>();
  flags->config.load_format = "dummy";
  add_model_flags(app, flags->config);
  flags->config.num_moe_ranks = 1;
  app.add_option("--num-moe-ranks,--num-ffn-ranks", flags->config.num_moe_ranks,
                 "Expert ranks that a dispatch goes to, each a process")
      ->capture_default_str();
  app.add_option("--tokens", flags->tokens, "Tokens of a message")->capture_default_str();
  app.add_option("--busy-us", flags->busy_us, "What a busy receiver computes between two looks")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--rounds", flags->rounds, "Repetitions; medians and quartiles are shown")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_flag("--quick", flags->quick, "Two sizes, 9 rounds; overrides --tokens and --rounds");
  app.add_option("--output-file", flags->output_file, "JSON with all figures")
      ->check(writable_file());
  return [flags, &platform] {
    const Status status = bench(*flags, platform);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
