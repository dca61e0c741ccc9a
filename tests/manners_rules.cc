#include "tests/manners_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string_view>

#include "tests/manners_scan.h"

namespace asap::manners {

namespace {

using Names = std::vector<std::string_view>;

constexpr int kMaxColumns = 100;
constexpr int kMaxFunctionLines = 70;
constexpr int kMaxFileLines = 800;

// A folder of asap/ may include itself and folders before it.
const Names kFolders = {"base",    "wire", "policy", "model", "compute", "transport",
                        "runtime", "chat", "serve",  "load",  "sim",     "cli"};
// Folders that may include less than their rank allows.
struct Only {
  std::string_view folder;
  Names may_include;
};
const std::vector<Only> kOnly = {{"policy", {"base", "policy"}},
                                 {"chat", {"base", "model", "chat"}}};

// A policy is a value: nothing that needs a clock, a thread or the operating system.
const Names kPolicyBannedHeaders = {"atomic", "chrono", "condition_variable", "ctime", "future",
                                    "mutex",  "random", "semaphore",          "thread"};

// Names of concrete links and op tables. Only main and the command line choose them; the files of
// `home` implement them.
struct Concrete {
  std::string_view name;  // a header if it has a slash, else an identifier
  std::string_view home;  // prefix of paths
};
const std::vector<Concrete> kConcrete = {
    {"asap/transport/link_shm.h", "asap/transport/link_shm"},
    {"asap/transport/link_loop.h", "asap/transport/link_loop"},
    {"asap/transport/link_p2p.h", "asap/transport/link_p2p"},
    {"make_ops_ref", "asap/compute/"},
    {"make_ops_cpu", "asap/compute/"},
};
const Names kMayNameConcrete = {"asap/main.cc", "asap/cli/", "tests/"};

// Programs that stand beside the sources, and what supports them.
const Names kProgramSuffixes = {"_test.cc", "_bench.cc", "_fuzz.cc"};
constexpr std::string_view kTestSupport = "test_support";

struct Banned {
  Names words;       // whole identifiers
  bool only_called;  // only when a parenthesis follows
  bool only_headers;
  Names exempt;  // prefixes of paths
  bool exempt_programs;
  std::string_view remedy;
};
const std::vector<Banned> kBanned = {
    {{"steady_clock", "system_clock", "high_resolution_clock", "clock_gettime", "gettimeofday"},
     false,
     false,
     {"asap/runtime/", "asap/serve/", "asap/cli/", "tests/"},
     true,
     "take `Instant now` as an argument; drivers read the clock"},
    {{"time"},
     true,
     false,
     {"asap/runtime/", "asap/serve/", "asap/cli/", "tests/"},
     true,
     "take `Instant now` as an argument; drivers read the clock"},
    {{"rand", "srand"}, true, false, {}, false, "draw from a seeded Prng (asap/base/prng.h)"},
    {{"random_device"},
     false,
     false,
     {"asap/serve/"},
     false,
     "draw from a seeded Prng (asap/base/prng.h)"},
    {{"printf", "fprintf", "puts", "fputs", "cout", "cerr"},
     false,
     true,
     {},
     false,
     "print in a .cc file: headers are included by programs that own their output"},
};

constexpr std::string_view kVolatileRemedy =
    "volatile does not order memory: use std::atomic or std::atomic_ref";
constexpr std::string_view kUsingStdRemedy = "write std:: where the name is used";

// Spelled in pieces so that this file passes its own rules.
const std::vector<std::string> kMarkers = {
    "TO"
    "DO",
    "FIX"
    "ME",
    "XX"
    "X",
    "HA"
    "CK"};
const std::vector<std::string> kMachinePaths = {
    "/wo"
    "rk/",
    "/ro"
    "ot/",
    "../sha"
    "red/"};

// What read_tree() takes and leaves.
const Names kTextSuffixes = {".h", ".cc", ".py", ".sh", ".md", ".txt", ".cmake", ".json", ".pml"};
const Names kTextNames = {"Makefile", "LICENSE", "NOTICE", "run", ".clang-format", ".gitignore"};
const Names kLeftOut = {".git", "build", "models/asap-tiny-moe", "tests/golden"};

bool starts_with_any(std::string_view path, const Names& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return path.starts_with(prefix); });
}
bool ends_with_any(std::string_view path, const Names& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](std::string_view suffix) { return path.ends_with(suffix); });
}
bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_header(const File& file) {
  return file.path.ends_with(".h");
}
bool is_source(const File& file) {
  return file.path.ends_with(".cc");
}
bool is_cpp(const File& file) {
  return is_header(file) || is_source(file);
}
bool is_program(const File& file) {
  return ends_with_any(file.path, kProgramSuffixes) ||
         file.path.find(kTestSupport) != std::string::npos;
}

// "asap/base/check.h" -> "base"; "" outside the folders of asap/.
std::string_view folder_of(std::string_view path) {
  constexpr std::string_view kRoot = "asap/";
  if (!path.starts_with(kRoot)) return {};
  path.remove_prefix(kRoot.size());
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view{} : path.substr(0, slash);
}

// The folders that `folder` may include; empty if nobody knows the folder.
Names allowed_includes(std::string_view folder) {
  for (const Only& only : kOnly) {
    if (only.folder == folder) return only.may_include;
  }
  const auto own = std::find(kFolders.begin(), kFolders.end(), folder);
  return own == kFolders.end() ? Names{} : Names(kFolders.begin(), own + 1);
}

std::string join(const Names& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

void find_banned_words(const File& file, std::string_view code, const Banned& rule,
                       Violations& out) {
  if (rule.only_headers && !is_header(file)) return;
  if (starts_with_any(file.path, rule.exempt)) return;
  if (rule.exempt_programs && is_program(file)) return;
  for (const std::string_view word : rule.words) {
    size_t at = find_word(code, word);
    for (; at != std::string_view::npos; at = find_word(code, word, at + 1)) {
      const size_t next = code.find_first_not_of(' ', at + word.size());
      const bool called = next != std::string_view::npos && code[next] == '(';
      const bool member = at > 0 && (code[at - 1] == '.' || code[at - 1] == '>');
      if (rule.only_called && (!called || member)) continue;
      out.push_back({file.path, line_of(code, at), fmt::format("`{}`: {}", word, rule.remedy)});
    }
  }
}

// `asm volatile` is another word that happens to be spelled alike.
void find_volatile(const File& file, std::string_view code, Violations& out) {
  constexpr std::string_view kWord = "volatile";
  for (size_t at = find_word(code, kWord); at != std::string_view::npos;
       at = find_word(code, kWord, at + 1)) {
    const size_t last = at == 0 ? std::string_view::npos : code.find_last_not_of(" \n", at - 1);
    const std::string_view before = code.substr(0, last == std::string_view::npos ? 0 : last + 1);
    if (before.ends_with("asm") || before.ends_with("__asm__")) continue;
    out.push_back({file.path, line_of(code, at), fmt::format("`{}`: {}", kWord, kVolatileRemedy)});
  }
}

void find_using_std(const File& file, std::string_view code, Violations& out) {
  constexpr std::string_view kPhrase = "using namespace std";
  for (size_t at = find_word(code, kPhrase); at != std::string_view::npos;
       at = find_word(code, kPhrase, at + 1)) {
    if (code.substr(at + kPhrase.size()).starts_with("::")) continue;  // std::literals and the like
    out.push_back(
        {file.path, line_of(code, at), fmt::format("`{}`: {}", kPhrase, kUsingStdRemedy)});
  }
}

// The words of a CMakeLists.txt, without its comments.
std::set<std::string> cmake_words(std::string_view text) {
  std::set<std::string> words;
  for (std::string_view line : split_lines(text)) {
    line = line.substr(0, line.find('#'));
    std::string word;
    for (const char c : line) {
      const bool separator = c == ' ' || c == '\t' || c == '(' || c == ')' || c == '"' || c == ';';
      if (!separator) word += c;
      if (!separator || word.empty()) continue;
      words.insert(word);
      word.clear();
    }
    if (!word.empty()) words.insert(word);
  }
  return words;
}

// Whether `list`, a CMakeLists.txt, names `source`: by its path from there, or, for a program that
// a loop adds, without the suffix.
bool lists_source(const File& list, const std::string& source) {
  const std::set<std::string> words = cmake_words(list.text);
  if (words.contains("${CMAKE_SOURCE_DIR}/" + source)) return true;
  const std::string folder = list.path.substr(0, list.path.rfind('/') + 1);
  if (!source.starts_with(folder)) return false;
  const std::string relative = source.substr(folder.size());
  if (words.contains(relative)) return true;
  const std::string stem = relative.substr(0, relative.size() - std::string_view(".cc").size());
  return ends_with_any(relative, kProgramSuffixes) && words.contains(stem);
}

// Every place of a phrase in a file, one violation per line.
template <typename Find>
void find_lines(const File& file, Find&& find, Violations& out) {
  const std::vector<std::string_view> lines = split_lines(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string message = find(lines[i]);
    if (!message.empty()) out.push_back({file.path, static_cast<int>(i) + 1, std::move(message)});
  }
}

}  // namespace

Violations check_include_direction(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    const std::string_view folder = folder_of(file.path);
    if (!is_cpp(file) || folder.empty()) continue;
    const Names allowed = allowed_includes(folder);
    if (allowed.empty()) {
      out.push_back(
          {file.path, 1,
           fmt::format("folder {} has no place in the order of layers; add it to kFolders "
                       "in tests/manners_rules.cc",
                       folder)});
      continue;
    }
    for (const Include& include : find_includes(file.text)) {
      const std::string_view target = folder_of(include.path);
      if (!include.quoted || target.empty() || contains(allowed, target)) continue;
      out.push_back({file.path, include.line,
                     fmt::format("includes {}; asap/{} may include only: {}. Move the shared part "
                                 "down, or pass the value in",
                                 include.path, folder, join(allowed))});
    }
  }
  return out;
}

Violations check_include_spelling(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    if (!is_cpp(file)) continue;
    const bool in_tests = file.path.starts_with("tests/");
    for (const Include& include : find_includes(file.text)) {
      if (!include.quoted || include.path.starts_with("asap/")) continue;
      if (in_tests && include.path.starts_with("tests/")) continue;
      out.push_back({file.path, include.line,
                     fmt::format("includes \"{}\"; write the path from the root of the repository "
                                 "(\"asap/...\"), and <...> for libraries",
                                 include.path)});
    }
  }
  return out;
}

Violations check_policy_headers(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    if (!is_cpp(file) || is_program(file) || folder_of(file.path) != "policy") continue;
    for (const Include& include : find_includes(file.text)) {
      if (include.quoted || !contains(kPolicyBannedHeaders, include.path)) continue;
      out.push_back({file.path, include.line,
                     fmt::format("includes <{}>; a policy is a value: events and `now` go in, "
                                 "actions come out",
                                 include.path)});
    }
  }
  return out;
}

Violations check_concrete_names(const std::vector<File>& files) {
  Violations out;
  const auto add = [&](const File& file, int line, std::string_view name) {
    out.push_back({file.path, line,
                   fmt::format("names {}; only {} choose a link or an op table. Take "
                               "the interface as an argument",
                               name, join(kMayNameConcrete))});
  };
  for (const File& file : files) {
    if (!is_cpp(file) || is_program(file) || starts_with_any(file.path, kMayNameConcrete)) continue;
    const std::string code = blank_comments_and_literals(file.text);
    for (const Concrete& concrete : kConcrete) {
      if (file.path.starts_with(concrete.home)) continue;
      for (const Include& include : find_includes(file.text)) {
        if (include.path == concrete.name) add(file, include.line, concrete.name);
      }
      const size_t at = find_word(code, concrete.name);
      if (at != std::string::npos) add(file, line_of(code, at), concrete.name);
    }
  }
  return out;
}

Violations check_banned_code(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    if (!is_cpp(file)) continue;
    const std::string code = blank_comments_and_literals(file.text);
    for (const Banned& rule : kBanned) find_banned_words(file, code, rule, out);
    find_volatile(file, code, out);
    find_using_std(file, code, out);
  }
  return out;
}

Violations check_line_length(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    if (!is_cpp(file)) continue;
    find_lines(
        file,
        [](std::string_view line) -> std::string {
          if (columns(line) <= kMaxColumns) return {};
          return fmt::format("{} columns, at most {}: break the line", columns(line), kMaxColumns);
        },
        out);
  }
  return out;
}

Violations check_function_length(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    if (!is_cpp(file)) continue;
    const FunctionScan scan = find_functions(blank_comments_and_literals(file.text));
    if (!scan.balanced) {
      out.push_back({file.path, 1,
                     "braces do not match when read without the preprocessor: keep "
                     "them whole on each side of an #if"});
    }
    for (const Function& function : scan.functions) {
      if (function.lines <= kMaxFunctionLines) continue;
      out.push_back({file.path, function.line,
                     fmt::format("{} has {} lines, at most {}: split it by its steps",
                                 function.name, function.lines, kMaxFunctionLines)});
    }
  }
  return out;
}

Violations check_file_length(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    const int lines = static_cast<int>(split_lines(file.text).size());
    if (lines <= kMaxFileLines) continue;
    out.push_back({file.path, lines,
                   fmt::format("{} lines, at most {}: give its second subject a file of its own",
                               lines, kMaxFileLines)});
  }
  return out;
}

Violations check_headers(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    if (!is_header(file)) continue;
    const std::string_view text = file.text;
    if (!text.starts_with("//") && !text.starts_with("/*")) {
      out.push_back({file.path, 1, "a header opens with a comment: what is in it, and why"});
    }
    if (blank_comments_and_literals(text).find("#pragma once") == std::string::npos) {
      out.push_back({file.path, 1, "no #pragma once: add it below the opening comment"});
    }
  }
  return out;
}

Violations check_orphans(const std::vector<File>& files) {
  std::vector<const File*> lists;
  for (const File& file : files) {
    if (file.path.ends_with("CMakeLists.txt")) lists.push_back(&file);
  }
  Violations out;
  for (const File& file : files) {
    if (!is_source(file)) continue;
    const bool listed = std::any_of(lists.begin(), lists.end(), [&](const File* list) {
      return lists_source(*list, file.path);
    });
    if (listed) continue;
    out.push_back(
        {file.path, 1, "no CMakeLists.txt names this file: add it to a target, or delete it"});
  }
  return out;
}

Violations check_markers(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    find_lines(
        file,
        [](std::string_view line) -> std::string {
          for (const std::string& marker : kMarkers) {
            if (find_word(line, marker) == std::string_view::npos) continue;
            return fmt::format("{}: finish it, or file an issue and say what holds today", marker);
          }
          return {};
        },
        out);
  }
  return out;
}

Violations check_machine_paths(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    find_lines(
        file,
        [](std::string_view line) -> std::string {
          for (const std::string& path : kMachinePaths) {
            if (line.find(path) == std::string_view::npos) continue;
            return fmt::format("{} is a path of one machine: use a relative path or a flag", path);
          }
          return {};
        },
        out);
  }
  return out;
}

Violations check_final_newline(const std::vector<File>& files) {
  Violations out;
  for (const File& file : files) {
    if (file.text.empty() || file.text.back() == '\n') continue;
    out.push_back({file.path, static_cast<int>(split_lines(file.text).size()),
                   "the last line has no newline: add one"});
  }
  return out;
}

std::vector<File> read_tree(const std::string& root) {
  namespace fs = std::filesystem;
  std::vector<File> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    const std::string path = fs::relative(it->path(), root).generic_string();
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      const bool is_build =
          !path.empty() && path.find('/') == std::string::npos && path.starts_with("build");
      if (contains(kLeftOut, path) || is_build || name == "__pycache__")
        it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    if (!ends_with_any(name, kTextSuffixes) && !contains(kTextNames, name)) continue;
    std::ifstream stream(it->path(), std::ios::binary);
    files.push_back({path, std::string(std::istreambuf_iterator<char>(stream), {})});
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

}  // namespace asap::manners
