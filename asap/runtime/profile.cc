#include "asap/runtime/profile.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <sstream>

namespace asap {

struct BuiltinProfile {
  std::string_view name;
  std::string_view text;
};
std::span<const BuiltinProfile> builtin_profile_table();  // generated from profiles/*.toml

namespace {

constexpr double kLargest = 1e9;  // of any coefficient

// One number of the file: where it stands and where it goes.
struct Number {
  const char* section;
  const char* key;
  double CostProfile::*value;
};
constexpr Number kNumbers[] = {
    {"attention", "a0", &CostProfile::a0},    {"attention", "b", &CostProfile::b},
    {"attention", "g", &CostProfile::g},      {"attention", "tpc", &CostProfile::tpc},
    {"experts", "m0", &CostProfile::m0},      {"experts", "m", &CostProfile::m},
    {"experts", "tau", &CostProfile::tau},    {"experts", "skew_cv", &CostProfile::expert_skew_cv},
    {"dispatch", "c0", &CostProfile::c0},     {"dispatch", "c1", &CostProfile::c1},
    {"dispatch", "r0", &CostProfile::r0},     {"dispatch", "r1", &CostProfile::r1},
    {"combine", "d0", &CostProfile::d0},      {"combine", "d1", &CostProfile::d1},
    {"combine", "q0", &CostProfile::q0},      {"combine", "q1", &CostProfile::q1},
    {"sync", "sync0", &CostProfile::sync0},   {"sync", "syncf", &CostProfile::syncf},
    {"host", "launch", &CostProfile::launch}, {"host", "request", &CostProfile::request},
    {"host", "batch", &CostProfile::batch},   {"link", "latency", &CostProfile::latency},
};

struct Text {
  const char* section;  // "": top level
  const char* key;
  std::string CostProfile::*value;
};
constexpr Text kTexts[] = {
    {"", "name", &CostProfile::name},
    {"", "source", &CostProfile::source},
    {"model", "preset", &CostProfile::preset},
    {"model", "hf_overrides", &CostProfile::hf_overrides},
};

struct Count {
  const char* key;
  int CostProfile::*value;
};
constexpr Count kCounts[] = {{"tensor_parallel_size", &CostProfile::ref_tp},
                             {"num_moe_ranks", &CostProfile::ref_ep}};

// Keys that nobody reads are spelling mistakes.
Status check_keys(const toml::table& table, const std::string& what) {
  std::set<std::string> known = {"experts.skew_async"};
  for (const Number& n : kNumbers) known.insert(fmt::format("{}.{}", n.section, n.key));
  for (const Text& t : kTexts) {
    known.insert(*t.section == 0 ? t.key : fmt::format("{}.{}", t.section, t.key));
  }
  for (const Count& c : kCounts) known.insert(fmt::format("reference.{}", c.key));
  const auto check = [&](const std::string& key) -> Status {
    if (known.contains(key)) return {};
    return fail(Code::invalid, "{}: unknown key \"{}\"; known are {}", what, key,
                fmt::join(known, ", "));
  };
  for (const auto& [key, node] : table) {
    const std::string section(key.str());
    if (const toml::table* inner = node.as_table()) {
      for (const auto& [inner_key, value] : *inner) {
        ASAP_TRY(check(section + "." + std::string(inner_key.str())));
      }
    } else {
      ASAP_TRY(check(section));
    }
  }
  return {};
}

Status read_numbers(const toml::table& table, const std::string& what, CostProfile& out) {
  for (const Number& n : kNumbers) {
    const auto node = table[n.section][n.key];
    if (!node) continue;
    const auto value = node.value<double>();
    if (!value || !std::isfinite(*value) || *value < 0 || *value > kLargest) {
      return fail(Code::invalid, "{}: {}.{} must be a number from 0 to {:g}", what, n.section,
                  n.key, kLargest);
    }
    out.*n.value = *value;
  }
  for (const Count& c : kCounts) {
    const auto node = table["reference"][c.key];
    if (!node) continue;
    const auto value = node.value<int64_t>();
    if (!value || *value < 1 || *value > 4096) {
      return fail(Code::invalid, "{}: reference.{} must be an integer from 1 to 4096", what, c.key);
    }
    out.*c.value = static_cast<int>(*value);
  }
  return {};
}

Status read_texts(const toml::table& table, const std::string& what, CostProfile& out) {
  for (const Text& t : kTexts) {
    const auto node = *t.section == 0 ? table[t.key] : table[t.section][t.key];
    if (!node) continue;
    const auto value = node.value<std::string>();
    if (!value) {
      return fail(Code::invalid, "{}: {}{}{} must be a string", what, t.section,
                  *t.section == 0 ? "" : ".", t.key);
    }
    out.*t.value = *value;
  }
  return {};
}

}  // namespace

Result<CostProfile> parse_profile(std::string_view text, const std::string& what) {
  const toml::parse_result parsed = toml::parse(text, what);
  if (!parsed) {
    return fail(Code::invalid, "{}, line {}: {}", what, parsed.error().source().begin.line,
                parsed.error().description());
  }
  const toml::table& table = parsed.table();
  ASAP_TRY(check_keys(table, what));
  CostProfile out;
  ASAP_TRY(read_texts(table, what, out));
  ASAP_TRY(read_numbers(table, what, out));
  if (const auto node = table["experts"]["skew_async"]) {
    const auto value = node.value<bool>();
    if (!value) return fail(Code::invalid, "{}: experts.skew_async must be true or false", what);
    out.skew_async = *value;
  }
  if (out.name.empty()) return fail(Code::invalid, "{}: name is missing", what);
  if (out.b <= 0 || out.m <= 0) {
    return fail(Code::invalid,
                "{}: attention.b and experts.m must be above 0: they are the time "
                "that tokens take",
                what);
  }
  if (out.tpc > out.b) {
    return fail(Code::invalid, "{}: attention.tpc {} exceeds attention.b {}, of which it is a part",
                what, out.tpc, out.b);
  }
  return out;
}

Result<CostProfile> load_profile(const std::string& name_or_path) {
  for (const BuiltinProfile& builtin : builtin_profile_table()) {
    if (builtin.name == name_or_path) return parse_profile(builtin.text, name_or_path);
  }
  std::error_code error;
  std::ifstream file(name_or_path);
  if (!std::filesystem::is_regular_file(name_or_path, error) || !file) {
    return fail(Code::not_found, "--profile {}: neither a built-in ({}) nor a file", name_or_path,
                fmt::join(builtin_profiles(), ", "));
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_profile(text, name_or_path);
}

std::string profile_text(const CostProfile& profile) {
  toml::table root;
  const auto section = [&](const char* name) -> toml::table& {
    if (*name == 0) return root;
    if (!root.contains(name)) root.insert(name, toml::table{});
    return *root[name].as_table();
  };
  for (const Text& t : kTexts) {
    const std::string& value = profile.*t.value;
    if (!value.empty()) section(t.section).insert(t.key, value);
  }
  for (const Count& c : kCounts) section("reference").insert(c.key, profile.*c.value);
  for (const Number& n : kNumbers) section(n.section).insert(n.key, profile.*n.value);
  section("experts").insert("skew_async", profile.skew_async);
  std::ostringstream out;
  out << root << "\n";
  return out.str();
}

std::vector<std::string> builtin_profiles() {
  std::vector<std::string> names;
  for (const BuiltinProfile& builtin : builtin_profile_table()) names.emplace_back(builtin.name);
  return names;
}

}  // namespace asap
