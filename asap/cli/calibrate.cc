// asap calibrate: measures a cost profile of a model on this machine.
#include "asap/runtime/calibrate.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "asap/cli/commands.h"
#include "asap/cli/options.h"
#include "asap/cli/rig_flags.h"
#include "asap/cli/validators.h"
#include "asap/runtime/profile.h"

namespace asap {

namespace {

namespace fs = std::filesystem;

constexpr const char* kCalibratePreset = "qwen3-30b-a3b";
constexpr int kQuickCalibrateTokens = 128;

struct CalibrateFlags {
  EngineConfig config;
  int max_tokens = 2048;
  int rounds = 3;
  int company = 0;
  bool quick = false;
  std::string output;
};

// ${XDG_CACHE_HOME:-~/.cache}/asap/profiles/NAME.toml
Result<fs::path> default_output(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != 0) return fs::path(cache) / "asap/profiles" / (name + ".toml");
  if (home == nullptr || *home == 0) {
    return fail(Code::invalid, "neither XDG_CACHE_HOME nor HOME is set; name a file with --output");
  }
  return fs::path(home) / ".cache/asap/profiles" / (name + ".toml");
}

Status write_profile(const fs::path& path, const CostProfile& profile) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  std::ofstream file(path);
  file << profile_text(profile);
  file.close();
  if (!file) return fail(Code::internal, "--output {}: cannot be written", path.string());
  return {};
}

// Processes that run batches of the same model until they are ended: a device of an instance works
// beside others, which take memory bandwidth, cache and clock from it.
class Company {
 public:
  Company(const CalibrateFlags& flags, const Platform& platform) {
    for (int i = 0; i < flags.company; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) work(flags, platform);
      if (pid > 0) pids_.push_back(pid);
    }
  }
  Company(const Company&) = delete;
  Company& operator=(const Company&) = delete;
  void pause(bool on) const {
    for (const pid_t pid : pids_) ::kill(pid, on ? SIGSTOP : SIGCONT);
  }
  ~Company() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

 private:
  [[noreturn]] static void work(const CalibrateFlags& flags, const Platform& platform) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    LayerRig::Options options;
    options.config = flags.config;
    options.max_tokens = options.max_context = flags.max_tokens;
    options.max_sequences = 1;
    options.clock = rig_clock(flags.config);
    const auto rig = LayerRig::open(options, platform);
    const RigSequence sequence{flags.max_tokens / 4, 0};
    while (rig) (*rig)->run({&sequence, 1});
    ::_exit(1);
  }
  std::vector<pid_t> pids_;
};

// "4 x 128", "64 over 448"
std::string batch_text(const CalibrationRow& row) {
  const RigSequence& s = row.sequences.front();
  if (s.past > 0) return fmt::format("{} over {}", s.tokens, s.past);
  if (row.sequences.size() == 1) return fmt::format("{}", s.tokens);
  return fmt::format("{} x {}", row.sequences.size(), s.tokens);
}

void print_table(const Calibration& c) {
  std::printf("\nmilliseconds per layer, measured | fitted\n%14s", "batch");
  for (const char* step : kStepNames) std::printf("%21s", step);
  std::printf("\n");
  for (const CalibrationRow& row : c.rows) {
    std::printf("%14s", batch_text(row).c_str());
    for (int step = 0; step < kSteps; ++step) {
      std::printf(" %9.3f |%9.3f", row.measured_ms[step], row.fitted_ms[step]);
    }
    std::printf("\n");
  }
  std::printf("%14s", "mean error");
  for (const FitError& e : c.errors) std::printf("%19.1f %%", 100 * e.mean);
  std::printf("\n%14s", "largest error");
  for (const FitError& e : c.errors) std::printf("%19.1f %%", 100 * e.max);
  std::printf("\n");
}

Status run(CalibrateFlags flags, const Platform& platform) {
  if (flags.quick) {
    flags.max_tokens = kQuickCalibrateTokens;
    flags.rounds = 3;
  }
  ASAP_TRY(complete_rig_config(kCalibratePreset, &flags.config));
  catch_interrupts();
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  CalibrateOptions options;
  options.config = flags.config;
  options.max_tokens = flags.max_tokens;
  options.rounds = flags.rounds;
  options.clock = rig_clock(flags.config);
  options.on_load = show_loading();
  int tenths = 0;
  options.on_batch = [&](int done, int all) {
    if (terminal) {
      std::fprintf(stderr, "\r%d/%d batches ", done, all);
      if (done == all) std::fputc('\n', stderr);
    } else if (done * 10 / all > tenths) {
      tenths = done * 10 / all;
      std::fprintf(stderr, "%3d %% of %d batches\n", 10 * tenths, all);
    }
    return !interrupted();
  };
  const Company company(flags, platform);
  options.pause_company = [&](bool on) { company.pause(on); };
  ASAP_ASSIGN(const Calibration found, calibrate(options, platform));
  print_table(found);
  fs::path path = flags.output;
  if (flags.output.empty()) {
    ASAP_ASSIGN(path, default_output(found.profile.name));
  }
  ASAP_TRY(write_profile(path, found.profile));
  std::printf("\n%s\nwritten to %s\n", profile_text(found.profile).c_str(), path.c_str());
  return {};
}

}  // namespace

std::function<int()> add_calibrate(CLI::App& app, const Platform& platform) {
  auto flags = std::make_shared<CalibrateFlags>();
  add_rig_flags(app, flags->config);
  app.add_option("--max-num-batched-tokens", flags->max_tokens,
                 "Tokens of the largest batch that is measured, and of context")
      ->check(CLI::Range(16, 1 << 16))
      ->capture_default_str();
  app.add_option("--rounds", flags->rounds, "Repetitions; medians are taken")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--company", flags->company,
                 "Processes that work beside the measured one, as an instance's other devices do; "
                 "usually cores - 1")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--quick", flags->quick, "At most 128 tokens: for a try");
  app.add_option("--output,-o", flags->output,
                 "File; default: NAME.toml in ${XDG_CACHE_HOME:-~/.cache}/asap/profiles")
      ->check(creatable_path());
  return [flags, &platform] {
    const Status status = run(*flags, platform);
    return status ? 0 : report(status.error());
  };
}

}  // namespace asap
