#include "asap/model/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "asap/base/check.h"
#include "asap/model/json_reader.h"
#include "asap/model/read_file.h"

namespace asap {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kMaxJsonBytes = 64 << 20;
constexpr uint64_t kMaxDataBytes = uint64_t{1} << 30;
constexpr int kMaxId = 1 << 24;

tl::unexpected<Error> wrong(const std::string& file, const std::string& what) {
  return fail(Code::invalid, "{}: {}; restore the file", file, what);
}

// The member at a path of keys; null if there is none.
const Json& at(const Json& value, std::initializer_list<const char*> keys) {
  static const Json kNull;
  const Json* found = &value;
  for (const char* key : keys) {
    if (!found->is_object() || !found->contains(key)) return kNull;
    found = &(*found)[key];
  }
  return *found;
}

Result<std::vector<int32_t>> read_ids(const Json& list, const std::string& file,
                                      const std::string& key, int vocab) {
  if (!list.is_array() || list.empty()) {
    return wrong(file, fmt::format("{} is {}; it must list token ids", key, shown(list)));
  }
  std::vector<int32_t> out;
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab)) {
      return wrong(file, fmt::format("{} holds {}; token ids are below vocab_size, {}", key,
                                     shown(id), vocab));
    }
    out.push_back(id.get<int32_t>());
  }
  return out;
}

Result<double> read_limit(const Json& tolerance, const char* kind, const char* key,
                          const std::string& file) {
  const Json& value = at(tolerance, {kind, key});
  const double limit = value.is_number() ? value.get<double>() : -1;
  if (!(limit > 0 && limit < 1e3)) {
    return wrong(file, fmt::format("tolerance.{}.{} is {}; it must be a positive number", kind, key,
                                   shown(value)));
  }
  return limit;
}

// `exact`: whether bfloat16 is expected to generate the reference's tokens at all.
Status read_tolerance(const Json& tolerance, const std::string& file, Golden* out, bool* exact) {
  ASAP_ASSIGN(out->fp32.logits_rel, read_limit(tolerance, "fp32", "logits_rel", file));
  ASAP_ASSIGN(out->router_weight_rel, read_limit(tolerance, "fp32", "router_weight_rel", file));
  ASAP_ASSIGN(out->bf16.logits_rel, read_limit(tolerance, "bf16", "logits_rel", file));
  ASAP_ASSIGN(out->bf16.logits_rms_rel, read_limit(tolerance, "bf16", "logits_rms_rel", file));
  const Json& greedy = at(tolerance, {"bf16", "greedy"});
  if (greedy != "exact expected" && greedy != "informative") {
    return wrong(file, fmt::format("tolerance.bf16.greedy is {}; it must be \"exact expected\" or "
                                   "\"informative\"",
                                   shown(greedy)));
  }
  *exact = greedy == "exact expected";
  return {};
}

// Logits and decisions of a prompt: those of a case, or of one of its modes.
Status read_values(const Json& values, const std::string& file, const std::string& where, int vocab,
                   const Golden& golden, GoldenCase* c) {
  const auto logits = golden.array(at(values, {"logits"}));
  const std::string key = where + ".logits";
  if (!logits) return wrong(file, fmt::format("{} {}", key, logits.error().message));
  c->logits = *logits;
  if (c->logits.size() != static_cast<size_t>(vocab)) {
    return wrong(file, fmt::format("{} holds {} values; it must hold vocab_size, {}", key,
                                   c->logits.size(), vocab));
  }
  for (const float logit : c->logits) {
    if (!std::isfinite(logit)) return wrong(file, key + " are not all finite");
  }
  c->router = at(values, {"router"});
  c->dsa = at(values, {"dsa"});
  return {};
}

// Tokens before the first whose margin is within the deviation that the limits allow. With sparse
// attention only the first: the reference chooses keys of generated rows by gaps of 3e-4, finer
// than bfloat16 resolves, and one that flips changes the continuation.
Result<size_t> sure_tokens(const Json& margins, const std::string& file, const std::string& key,
                           const GoldenCase& c, double limit) {
  if (!margins.is_array() || margins.size() != c.greedy.size()) {
    return wrong(file, fmt::format("{} is {}; it must list {} numbers", key, shown(margins),
                                   c.greedy.size()));
  }
  size_t sure = 0;
  bool close = false;
  for (const Json& margin : margins) {
    if (!margin.is_number()) {
      return wrong(file, fmt::format("{} holds {}; it must hold numbers", key, shown(margin)));
    }
    close = close || margin.get<double>() <= limit;
    sure += close ? 0 : 1;
  }
  return c.dsa.is_null() ? sure : 1;
}

Status read_case(const Json& item, const std::string& file, size_t index, int vocab, bool exact,
                 Golden* out) {
  const std::string where = fmt::format("cases[{}]", index);
  GoldenCase c;
  ASAP_ASSIGN(c.prompt, read_ids(at(item, {"prompt"}), file, where + ".prompt", vocab));
  const Json& modes = at(item, {"modes"});
  if (modes.is_object()) {
    for (const auto& [mode, values] : modes.items()) {
      GoldenCase other;
      other.prompt = c.prompt;
      ASAP_TRY(read_values(values, file, where + ".modes." + mode, vocab, *out, &other));
      out->modes[mode].push_back(std::move(other));
    }
  }
  ASAP_TRY(read_values(item, file, where, vocab, *out, &c));
  ASAP_ASSIGN(c.greedy, read_ids(at(item, {"greedy"}), file, where + ".greedy", vocab));
  ASAP_ASSIGN(c.sure_tokens, sure_tokens(at(item, {"greedy_margin"}), file,
                                         where + ".greedy_margin", c, out->bf16.logits_rel));
  if (!exact) c.sure_tokens = 0;
  out->cases.push_back(std::move(c));
  return {};
}

Status read_alt_configs(const Json& list, const std::string& file, Golden* out) {
  if (list.is_null()) return {};
  const std::string what =
      fmt::format("alt_configs is {}; it must list files of its folder", shown(list));
  if (!list.is_array()) return wrong(file, what);
  for (const Json& name : list) {
    if (!name.is_string() || name.get<std::string>().find('/') != std::string::npos) {
      return wrong(file, what);
    }
    out->alt_configs.push_back(name.get<std::string>());
  }
  return {};
}

}  // namespace

Result<std::vector<float>> Golden::array(const Json& reference) const {
  const Json& offset = at(reference, {"offset"});
  const Json& shape = at(reference, {"shape"});
  if (!offset.is_number_unsigned() || !shape.is_array()) {
    return fail(Code::invalid, "is {}; it must be {{\"offset\", \"shape\"}}", shown(reference));
  }
  uint64_t count = 1;
  for (const Json& size : shape) {
    if (!size.is_number_unsigned() || __builtin_mul_overflow(count, size.get<uint64_t>(), &count)) {
      return fail(Code::invalid, "has the shape {}; it must list sizes", shown(shape));
    }
  }
  const auto begin = offset.get<uint64_t>();
  if (begin > data.size() || count > data.size() - begin) {
    return fail(Code::invalid, "lies at {} with {} values, but golden.f32 holds {}", begin, count,
                data.size());
  }
  const float* from = data.data() + begin;
  return std::vector<float>(from, from + count);
}

Result<Golden> parse_golden(const std::string& json, std::vector<float> data,
                            const std::string& file) {
  ASAP_ASSIGN(const Json object, parse_json_object(json, file));
  if (at(object, {"format"}) != "golden-1") {
    return wrong(
        file, fmt::format("format is {}; it must be \"golden-1\"", shown(at(object, {"format"}))));
  }
  Golden out;
  out.data = std::move(data);
  JsonReader reader(object, file);
  out.family = reader.string_or("model_type", "");
  out.storage = reader.string_or("storage", "");
  const int vocab = reader.integer("vocab_size", 1, kMaxId);
  ASAP_TRY(reader.status());
  bool exact = true;
  ASAP_TRY(read_tolerance(at(object, {"tolerance"}), file, &out, &exact));
  ASAP_TRY(read_alt_configs(at(object, {"alt_configs"}), file, &out));
  const Json& cases = at(object, {"cases"});
  if (!cases.is_array() || cases.empty()) {
    return wrong(file, fmt::format("cases is {}; it must list prompts", shown(cases)));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    ASAP_TRY(read_case(cases[i], file, i, vocab, exact, &out));
  }
  return out;
}

Result<Golden> load_golden(const std::string& directory) {
  const fs::path dir(directory);
  const std::string file = (dir / "golden.json").string();
  ASAP_ASSIGN(const std::string json, read_file(file, kMaxJsonBytes));
  const std::string data_file = (dir / "golden.f32").string();
  ASAP_ASSIGN(const std::string bytes, read_file(data_file, kMaxDataBytes));
  if (bytes.size() % sizeof(float) != 0) {
    return wrong(data_file, fmt::format("{} bytes are no list of float32", bytes.size()));
  }
  std::vector<float> data(bytes.size() / sizeof(float));
  std::memcpy(data.data(), bytes.data(), bytes.size());
  ASAP_ASSIGN(Golden out, parse_golden(json, std::move(data), file));
  out.directory = directory;
  const fs::path clean = (dir / "").parent_path();
  out.name = clean.filename().string();
  return out;
}

Result<std::vector<std::string>> find_goldens(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return fail(Code::not_found, "{}: no such folder", directory);
  }
  if (fs::exists(fs::path(directory) / "golden.json", error)) {
    return std::vector<std::string>{directory};
  }
  std::vector<std::string> out;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (fs::exists(entry->path() / "golden.json", ignored)) out.push_back(entry->path().string());
  }
  if (out.empty()) {
    return fail(Code::not_found, "{}: neither it nor a folder in it has a golden.json", directory);
  }
  std::sort(out.begin(), out.end());
  return out;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  CHECK(got.size() == expected.size(), "{} values, expected {}", got.size(), expected.size());
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double delta = std::abs(double(got[i]) - double(expected[i]));
    if (std::isnan(delta)) return delta;
    difference = std::max(difference, delta);
    largest = std::max(largest, std::abs(double(expected[i])));
  }
  return largest > 0 ? difference / largest : difference;
}

double rms_error(const std::vector<float>& got, const std::vector<float>& expected) {
  CHECK(got.size() == expected.size(), "{} values, expected {}", got.size(), expected.size());
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(double(got[i]) - double(expected[i]), 2);
    size += std::pow(double(expected[i]), 2);
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

}  // namespace asap
