#include "asap/runtime/crash_report.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "asap/transport/shared_memory.h"
#include "asap/wire/layout.h"

namespace asap {
namespace {

namespace fs = std::filesystem;

class CrashReportTest : public testing::Test {
 protected:
  CrashReportTest() {
    std::string name = fs::temp_directory_path() / "asap-crash-XXXXXX";
    folder_ = mkdtemp(name.data());
    geometry_.groups = 1, geometry_.ranks = 2, geometry_.expert_ranks = 1, geometry_.stages = 1;
    geometry_.max_batch_tokens = 8, geometry_.max_batch_seqs = 2, geometry_.max_seq_blocks = 1;
    geometry_.hidden = 4, geometry_.layers = 3, geometry_.moe_layers = 2, geometry_.experts = 4;
    geometry_.top_k = 2, geometry_.vocab = 16, geometry_.gather_width = 4;
    for (int device = 0; device < geometry_.devices(); ++device) {
      windows_.push_back(*create_shared_memory("asap-test", window_bytes(geometry_, device)));
    }
    control_ = std::move(*Control::create({}, geometry_));
    facts_ = {"moe e0", "(pid 7) was killed by signal 9 (Killed)", 3, 2, "g0 stage 0 batch 5\n",
              {}};
    facts_.pids = {0, 5, 6, 7};
  }
  ~CrashReportTest() override {
    for (const int fd : windows_) close(fd);
    fs::remove_all(folder_);
  }

  void set_flag(int device, uint64_t at, uint64_t flag) {
    ASSERT_EQ(
        pwrite(windows_[static_cast<size_t>(device)], &flag, sizeof(flag), static_cast<off_t>(at)),
        static_cast<ssize_t>(sizeof(flag)));
  }
  static nlohmann::json read_json(const fs::path& path) {
    std::ifstream file(path);
    return nlohmann::json::parse(file);
  }

  fs::path folder_;
  Geometry geometry_;
  std::vector<int> windows_;
  std::unique_ptr<Control> control_;
  CrashFacts facts_;
};

TEST_F(CrashReportTest, SaysWhoDiedAndWhatWasInFlight) {
  const ExpertLayout expert(geometry_);
  const AttentionLayout attention(geometry_);
  for (int t = 0; t < 2; ++t) {
    set_flag(expert_device(geometry_, 0), expert.dispatch.flag(expert.slot(0, 0, t)),
             make_flag(1, 9));
  }
  set_flag(attention_device(geometry_, 0, 0), attention.combine.flag(attention.expert_slot(0, 0)),
           make_flag(1, 9));
  set_flag(attention_device(geometry_, 0, 1), attention.combine.flag(attention.expert_slot(0, 0)),
           make_flag(1, 8));
  control_->worker(1).waiting.write("answers of the expert ranks");
  keep_log_tail();
  spdlog::info("a line of the log");
  const auto path = write_crash_report(folder_, facts_, *control_, windows_);
  ASSERT_TRUE(path) << path.error().message;
  const nlohmann::json report = read_json(fs::path(*path) / "report.json");
  EXPECT_EQ(report["who"], "moe e0");
  EXPECT_EQ(report["epoch"], 3);
  ASSERT_EQ(report["items_in_flight"].size(), 1U);
  EXPECT_EQ(report["items_in_flight"][0]["tp_rank"], 1);
  EXPECT_EQ(report["items_in_flight"][0]["dispatched"], "1/9");
  EXPECT_EQ(report["items_in_flight"][0]["answered"], "1/8");
  EXPECT_EQ(report["flags"]["moe e0"]["dispatch[0]"], "1/9");
  EXPECT_EQ(report["workers"][0]["waits_for"], "answers of the expert ranks");
  EXPECT_EQ(report["workers"][2]["pid"], 7);
  EXPECT_TRUE(read_json(fs::path(*path) / "trace.json").contains("traceEvents"));
  std::stringstream log;
  log << std::ifstream(fs::path(*path) / "log.txt").rdbuf();
  EXPECT_NE(log.str().find("a line of the log"), std::string::npos);
  struct stat info {};
  ASSERT_EQ(stat(path->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST_F(CrashReportTest, KeepsTheNewest) {
  fs::create_directory(folder_ / "something else");
  std::string last;
  for (int i = 0; i < 5; ++i) {
    facts_.epoch = static_cast<uint64_t>(i + 1);
    const auto path = write_crash_report(folder_, facts_, *control_, windows_, /*keep=*/2);
    ASSERT_TRUE(path) << path.error().message;
    last = *path;
    usleep(2000);  // names have milliseconds
  }
  EXPECT_TRUE(fs::exists(last));
  EXPECT_TRUE(fs::exists(folder_ / "something else"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}), 3);
}

TEST_F(CrashReportTest, AFolderOfSomebodyElseIsRefused) {
  EXPECT_TRUE(crash_folder(folder_ / "new"));
  EXPECT_TRUE(crash_folder(folder_ / "new"));
  const fs::path file = folder_ / "file";
  std::ofstream(file) << "x";
  const auto refused = crash_folder(file);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--crash-dir"), std::string::npos);
}

TEST_F(CrashReportTest, AFolderThatCannotBeWrittenIsRefused) {
  if (geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  const fs::path closed = folder_ / "closed";
  ASSERT_EQ(mkdir(closed.c_str(), 0500), 0);
  const auto refused = crash_folder(closed);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--crash-dir"), std::string::npos);
}

}  // namespace
}  // namespace asap
