#include "asap/runtime/crash_report.h"

#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "asap/runtime/tracks.h"
#include "asap/wire/layout.h"

namespace asap {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kLogLines = 200;
constexpr std::string_view kPrefix = "crash-";

using LogTail = spdlog::sinks::ringbuffer_sink_mt;

const std::shared_ptr<LogTail>& log_tail() {
  static const auto tail = std::make_shared<LogTail>(kLogLines);
  return tail;
}

Status make_private(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (mkdir(folder.c_str(), 0700) == 0) return {};
  struct stat info {};
  if (lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid()) {
    if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
    return fail(Code::invalid,
                "{}: this user may not write to it; chmod u+wx, or name another folder "
                "with --crash-dir",
                folder.string());
  }
  return fail(Code::invalid,
              "{} is no folder of this user and cannot be made: name another with --crash-dir",
              folder.string());
}

std::string read_flag(int window, uint64_t at) {
  uint64_t flag = 0;
  if (pread(window, &flag, sizeof(flag), static_cast<off_t>(at)) != sizeof(flag) || flag == 0) {
    return "";
  }
  return fmt::format("{}/{}", flag_epoch(flag), flag_seq(flag));
}

// "area[slot]": "epoch/number" of every flag that was ever set.
Json flags_of(const Layout& layout, int window) {
  Json out = Json::object();
  for (const Area& area : layout.areas()) {
    for (int slot = 0; slot < area.slots; ++slot) {
      const std::string flag = read_flag(window, area.flag(slot));
      if (!flag.empty()) out[fmt::format("{}[{}]", area.name, slot)] = flag;
    }
  }
  return out;
}

Json flags_of(const Geometry& g, int device, int window) {
  if (device == kFrontDevice) return flags_of(FrontLayout(g), window);
  if (device < expert_device(g, 0)) return flags_of(AttentionLayout(g), window);
  return flags_of(ExpertLayout(g), window);
}

// Items that an attention rank has dispatched and an expert rank has not answered.
Json items_in_flight(const Geometry& g, const std::vector<int>& windows) {
  const ExpertLayout expert(g);
  const AttentionLayout attention(g);
  Json out = Json::array();
  for (int e = 0; e < g.expert_ranks; ++e) {
    for (int i = 0; i < g.groups * g.stages * g.ranks; ++i) {
      const int group = i / (g.stages * g.ranks);
      const int stage = i / g.ranks % g.stages;
      const int rank = i % g.ranks;
      const std::string sent = read_flag(windows[static_cast<size_t>(expert_device(g, e))],
                                         expert.dispatch.flag(expert.slot(group, stage, rank)));
      const std::string answered =
          read_flag(windows[static_cast<size_t>(attention_device(g, group, rank))],
                    attention.combine.flag(attention.expert_slot(stage, e)));
      if (sent == answered) continue;
      out.push_back({{"expert_rank", e},
                     {"group", group},
                     {"stage", stage},
                     {"tp_rank", rank},
                     {"dispatched", sent},
                     {"answered", answered}});
    }
  }
  return out;
}

Json workers_of(const CrashFacts& facts, Control& control) {
  static constexpr const char* kStates[] = {"starting", "loading", "ready", "failed"};
  const Geometry& g = control.geometry();
  Json out = Json::array();
  for (int device = 1; device < g.devices(); ++device) {
    const WorkerSlot& slot = control.worker(device);
    Json beats = Json::array();
    for (const Heartbeat& heart : slot.hearts) beats.push_back(heart.beats.load());
    out.push_back({{"name", device_name(g, device)},
                   {"pid", facts.pids[static_cast<size_t>(device)]},
                   {"epoch", slot.epoch.load()},
                   {"state", kStates[slot.state.load() & 3]},
                   {"layers_loaded", slot.layers_done.load()},
                   {"beats", std::move(beats)},
                   {"waits_for", slot.waiting.read()},
                   {"error", slot.error.read()}});
  }
  return out;
}

std::string now_as(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof(text), format, &utc)};
}

Json report_of(const CrashFacts& facts, Control& control, const std::vector<int>& windows) {
  const Geometry& g = control.geometry();
  Json report = {{"time", now_as("%Y-%m-%dT%H:%M:%SZ")},
                 {"version", ASAP_VERSION},
                 {"who", facts.who},
                 {"cause", facts.cause},
                 {"epoch", facts.epoch},
                 {"deaths_in_window", facts.deaths},
                 {"batches_in_flight", facts.in_flight},
                 {"items_in_flight", items_in_flight(g, windows)},
                 {"workers", workers_of(facts, control)}};
  for (int device = 0; device < g.devices(); ++device) {
    report["flags"][device_name(g, device)] =
        flags_of(g, device, windows[static_cast<size_t>(device)]);
  }
  report["config"] = Json::parse(control.config_json(), nullptr, /*allow_exceptions=*/false);
  return report;
}

// Names begin with the time, so the oldest come first.
void remove_oldest(const fs::path& folder, int keep) {
  std::error_code error;
  std::vector<fs::path> reports;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with(kPrefix)) reports.push_back(entry.path());
  }
  std::sort(reports.begin(), reports.end());
  for (size_t i = 0; i + static_cast<size_t>(keep) < reports.size(); ++i) {
    fs::remove_all(reports[i], error);
  }
}

Status write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return fail(Code::internal, "cannot write {}", path.string());
  return {};
}

}  // namespace

void keep_log_tail() {
  auto& sinks = spdlog::default_logger()->sinks();
  if (std::find(sinks.begin(), sinks.end(), log_tail()) == sinks.end()) sinks.push_back(log_tail());
}

Result<std::string> crash_folder(const std::string& wanted) {
  if (!wanted.empty()) {
    ASAP_TRY(make_private(fs::absolute(wanted)));
    return wanted;
  }
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  std::error_code error;
  const fs::path base = runtime != nullptr && *runtime != '\0'
                            ? fs::path(runtime) / "asap"
                            : fs::temp_directory_path(error) / fmt::format("asap-{}", geteuid());
  ASAP_TRY(make_private(base));
  ASAP_TRY(make_private(base / "crash"));
  return (base / "crash").string();
}

Result<std::string> write_crash_report(const std::string& folder, const CrashFacts& facts,
                                       Control& control, const std::vector<int>& windows,
                                       int keep) {
  std::string who = facts.who;
  std::replace(who.begin(), who.end(), ' ', '-');
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const fs::path path =
      fs::path(folder) / fmt::format("{}{}.{:03}-{}-{}-epoch{}", kPrefix, now_as("%Y%m%dT%H%M%S"),
                                     millis % 1000, getpid(), who, facts.epoch);
  ASAP_TRY(make_private(path));
  const Json report = report_of(facts, control, windows);
  ASAP_TRY(write_file(path / "report.json",
                      report.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  // The front's own ring is being written by another thread of this process.
  const auto ring = [&](int device, int agent) -> const TraceRing* {
    return device == kFrontDevice ? nullptr : control.ring(device, agent);
  };
  ASAP_TRY(write_trace((path / "trace.json").string(), trace_tracks(control.geometry(), ring)));
  std::string log;
  for (const std::string& line : log_tail()->last_formatted()) log += line;
  ASAP_TRY(write_file(path / "log.txt", log));
  remove_oldest(folder, keep);
  return path.string();
}

}  // namespace asap
