#include "asap/cli/shipped_files.h"

#include <filesystem>

namespace asap {

namespace {

namespace fs = std::filesystem;

fs::path own_binary() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

// A file of the repository: from build/<preset>/asap, an install prefix's bin/asap, or the current
// directory. Empty: nowhere.
std::string find_shipped(const std::string& name) {
  std::error_code error;
  const fs::path beside = own_binary().parent_path();
  for (const fs::path& base :
       {beside / "../..", beside / "../share/asap", fs::current_path(error)}) {
    const fs::path candidate = (base / name).lexically_normal();
    if (fs::exists(candidate, error)) return candidate.string();
  }
  return "";
}

struct ShippedTrace {
  const char* name;
  const char* file;
};
constexpr ShippedTrace kTraces[] = {{"W0", "asap_lognormal_le32k.csv"},
                                    {"W1", "asap_mix_le32k.csv"},
                                    {"W4", "azure_2023_conv.csv"}};

}  // namespace

Result<std::string> bundled_model() {
  const char* const kName = "models/asap-tiny-moe";
  const std::string config = find_shipped(fmt::format("{}/config.json", kName));
  if (!config.empty()) return fs::path(config).parent_path().string();
  return fail(Code::not_found,
              "no MODEL given and the bundled one ({}) is neither beside {} nor in the current "
              "directory; name a checkpoint directory",
              kName, own_binary().string());
}

Result<std::string> find_trace(const std::string& name_or_path) {
  std::error_code error;
  if (fs::is_regular_file(name_or_path, error)) return name_or_path;
  std::string known;
  for (const ShippedTrace& trace : kTraces) {
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", trace.name, trace.file);
    if (name_or_path != trace.name && name_or_path != trace.file) continue;
    std::string found = find_shipped(fmt::format("traces/{}", trace.file));
    if (!found.empty()) return found;
    return fail(Code::not_found,
                "--trace {}: traces/{} is neither beside {} nor in the current directory; name the "
                "file",
                name_or_path, trace.file, own_binary().string());
  }
  return fail(Code::not_found, "--trace {}: no such file, and the shipped traces are {}",
              name_or_path, known);
}

}  // namespace asap
