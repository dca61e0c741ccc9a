#include "asap/load/workload.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include "asap/base/prng.h"

namespace asap {

namespace {

constexpr size_t kMaxLine = 1 << 20;

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) out.push_back(part);
  if (text.ends_with(by)) out.emplace_back();  // an empty last cell is a cell
  return out;
}

Result<double> number(const std::string& text, const std::string& what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return fail(Code::invalid, "{} is \"{}\"; it must be a number", what, text);
  }
  return value;
}

// "3 7-9" is 3 7 8 9.
Result<std::vector<uint64_t>> block_ids(const std::string& text, const std::string& where) {
  std::vector<uint64_t> out;
  for (const std::string& part : split(text, ' ')) {
    const std::vector<std::string> ends = split(part, '-');
    ASAP_ASSIGN(const double first, number(ends.empty() ? "" : ends[0], where + ": hash_ids"));
    ASAP_ASSIGN(const double last, number(ends.back(), where + ": hash_ids"));
    if (first < 0 || last < first || last - first > 1e6) {
      return fail(Code::invalid, "{}: hash_ids holds the range {}", where, part);
    }
    for (double id = first; id <= last; ++id) out.push_back(static_cast<uint64_t>(id));
  }
  return out;
}

class CsvReader {
 public:
  CsvReader(const WorkloadSpec& spec, const std::string& header) : spec_(spec) {
    const std::vector<std::string> names = split(header, ',');
    for (size_t i = 0; i < names.size(); ++i) columns_[names[i]] = i;
  }

  Result<Arrival> row(const std::string& line, const std::string& where) const {
    const std::vector<std::string> cells = split(line, ',');
    const auto cell = [&](const std::string& name) -> Result<std::string> {
      const auto column = columns_.find(name);
      if (column == columns_.end()) {
        return fail(Code::invalid, "{}: the file has no column {}", where, name);
      }
      if (column->second >= cells.size()) {
        return fail(Code::invalid, "{}: the row has {} cells, {} is number {}", where, cells.size(),
                    name, column->second + 1);
      }
      return cells[column->second];
    };
    Arrival out;
    ASAP_ASSIGN(const std::string at, cell(spec_.arrival_column));
    ASAP_ASSIGN(out.at, number(at, where + ": " + spec_.arrival_column));
    ASAP_ASSIGN(const std::string prompt, cell("prompt_tokens"));
    ASAP_ASSIGN(const double tokens, number(prompt, where + ": prompt_tokens"));
    out.prompt_tokens = static_cast<int>(tokens);
    if (columns_.contains("output_tokens")) {
      ASAP_ASSIGN(const std::string output, cell("output_tokens"));
      ASAP_ASSIGN(const double made, number(output, where + ": output_tokens"));
      out.output_tokens = static_cast<int>(made);
    }
    if (columns_.contains("hash_ids")) {
      ASAP_ASSIGN(const std::string ids, cell("hash_ids"));
      ASAP_ASSIGN(out.blocks, block_ids(ids, where));
    }
    return out;
  }

 private:
  const WorkloadSpec& spec_;
  std::map<std::string, size_t> columns_;
};

Result<Arrival> json_row(const std::string& line, const std::string& where) {
  const auto row = nlohmann::json::parse(line, nullptr, false);
  if (!row.is_object() || !row.contains("timestamp") || !row["timestamp"].is_number() ||
      !row.contains("input_length") || !row["input_length"].is_number_unsigned()) {
    return fail(Code::invalid,
                "{}: not a JSON object with numbers timestamp (milliseconds) and input_length",
                where);
  }
  Arrival out;
  out.at = row["timestamp"].get<double>() / 1000;
  out.prompt_tokens = row["input_length"].get<int>();
  if (row.contains("output_length") && row["output_length"].is_number_unsigned()) {
    out.output_tokens = row["output_length"].get<int>();
  }
  if (row.contains("hash_ids") && row["hash_ids"].is_array()) {
    for (const auto& id : row["hash_ids"]) {
      if (id.is_number_unsigned()) out.blocks.push_back(id.get<uint64_t>());
    }
  }
  return out;
}

Result<std::vector<Arrival>> read_trace(const WorkloadSpec& spec) {
  std::ifstream file(spec.trace_file);
  if (!file) return fail(Code::not_found, "{}: no such trace file", spec.trace_file);
  std::vector<Arrival> out;
  std::string line;
  if (!std::getline(file, line)) {
    return fail(Code::invalid, "{}: the trace is empty", spec.trace_file);
  }
  const bool json = line.starts_with('{');
  const CsvReader csv(spec, json ? "" : line);
  int number_of_line = 1;
  if (!json) {
    std::getline(file, line);
    ++number_of_line;
  }
  for (; file; std::getline(file, line), ++number_of_line) {
    const std::string where = fmt::format("{}:{}", spec.trace_file, number_of_line);
    if (line.empty()) continue;
    if (line.size() > kMaxLine) return fail(Code::invalid, "{}: the line is too long", where);
    ASAP_ASSIGN(Arrival arrival, json ? json_row(line, where) : csv.row(line, where));
    if (arrival.prompt_tokens < 0 || arrival.at < 0) {
      return fail(Code::invalid, "{}: {} tokens at {} s", where, arrival.prompt_tokens, arrival.at);
    }
    out.push_back(std::move(arrival));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  return out;
}

// Marsaglia and Tsang's method; shape >= 1 is direct, below it is boosted.
class Random {
 public:
  explicit Random(uint64_t seed) : prng_(seed) {}
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - prng_.uniform()));
    return radius * std::cos(2 * std::numbers::pi * prng_.uniform());
  }
  double exponential() { return -std::log(1 - prng_.uniform()); }
  double gamma(double shape) {
    if (shape == 1.0) return exponential();
    if (shape < 1) return gamma(shape + 1) * std::pow(1 - prng_.uniform(), 1 / shape);
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(1 - prng_.uniform()) < x * x / 2 + d - d * v + d * std::log(v)) {
        return d * v;
      }
    }
  }
  double uniform() { return prng_.uniform(); }

 private:
  Prng prng_;
};

int draw_length(const LengthLaw& law, Random& random) {
  switch (law.kind) {
    case LengthLaw::Kind::constant: return static_cast<int>(law.a);
    case LengthLaw::Kind::uniform:
      return static_cast<int>(law.a + random.uniform() * (law.b - law.a + 1));
    case LengthLaw::Kind::lognormal: break;
  }
  // The parser made sure that the bounds hold a good part of the mass.
  for (int i = 0; i < 10'000; ++i) {
    const double tokens = std::exp(law.a + law.b * random.normal());
    if (tokens >= law.least && tokens <= law.most) return static_cast<int>(tokens);
  }
  return law.least;
}

// Times of a trace, cut at its offset, at the wanted rate.
std::vector<Arrival> timed(const WorkloadSpec& spec, std::vector<Arrival> rows) {
  if (spec.row_offset >= static_cast<int>(rows.size())) return {};
  rows.erase(rows.begin(), rows.begin() + spec.row_offset);
  const double first = rows.front().at;
  const double span = rows.back().at - first;
  const double own_rate = span > 0 ? static_cast<double>(rows.size() - 1) / span : 1.0;
  const double factor = spec.native_rate ? 1.0 : own_rate / spec.rate;
  for (Arrival& row : rows) row.at = (row.at - first) * factor;
  return rows;
}

std::vector<Arrival> made(const WorkloadSpec& spec) {
  Random random(spec.seed);
  std::vector<Arrival> out;
  double at = 0;
  for (;;) {
    at += random.gamma(spec.burstiness) / (spec.burstiness * spec.rate);
    const bool full = spec.max_requests > 0 && static_cast<int>(out.size()) >= spec.max_requests;
    if (at > spec.seconds || full) return out;
    Arrival arrival;
    arrival.at = at;
    arrival.prompt_tokens = draw_length(spec.lengths, random);
    out.push_back(arrival);
  }
}

}  // namespace

Result<LengthLaw> parse_length_law(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  std::vector<double> values;
  for (size_t i = 1; i < parts.size(); ++i) {
    ASAP_ASSIGN(const double value, number(parts[i], "the length law " + text));
    values.push_back(value);
  }
  LengthLaw law;
  const std::string kind = parts.empty() ? "" : parts[0];
  if (kind == "constant" && values.size() == 1 && values[0] >= 1) {
    law.a = values[0];
    return law;
  }
  if (kind == "uniform" && values.size() == 2 && values[0] >= 1 && values[1] >= values[0]) {
    law.kind = LengthLaw::Kind::uniform;
    law.a = values[0];
    law.b = values[1];
    return law;
  }
  if (kind == "lognormal" && values.size() == 4 && values[1] >= 0 && values[2] >= 1 &&
      values[3] >= values[2] && std::log(values[3]) >= values[0] - 2 * values[1] &&
      std::log(values[2]) <= values[0] + 2 * values[1]) {
    law.kind = LengthLaw::Kind::lognormal;
    law.a = values[0];
    law.b = values[1];
    law.least = static_cast<int>(values[2]);
    law.most = static_cast<int>(values[3]);
    return law;
  }
  return fail(Code::invalid,
              "the length law is \"{}\"; use constant:N, uniform:LO:HI or "
              "lognormal:MU:SIGMA:MIN:MAX with at least 1 token and bounds within two sigma",
              text);
}

Result<std::vector<Arrival>> make_workload(const WorkloadSpec& spec) {
  std::vector<Arrival> rows;
  if (spec.trace_file.empty()) {
    rows = made(spec);
  } else {
    ASAP_ASSIGN(std::vector<Arrival> trace, read_trace(spec));
    rows = timed(spec, std::move(trace));
  }
  std::vector<Arrival> out;
  for (Arrival& row : rows) {
    if (row.at > spec.seconds) break;
    if (spec.max_requests > 0 && static_cast<int>(out.size()) >= spec.max_requests) break;
    row.prompt_tokens =
        std::max(1, static_cast<int>(std::lround(row.prompt_tokens / spec.length_divisor)));
    if (spec.max_prompt_tokens > 0 && row.prompt_tokens > spec.max_prompt_tokens) continue;
    if (spec.output_tokens > 0) row.output_tokens = spec.output_tokens;
    row.output_tokens = std::max(1, row.output_tokens);
    out.push_back(std::move(row));
  }
  if (out.empty()) {
    return fail(Code::invalid,
                "the workload has no request within {} s: raise the rate ({}) or "
                "the duration",
                spec.seconds, spec.rate);
  }
  return out;
}

std::vector<int32_t> prompt_ids(const Arrival& arrival, uint64_t seed, int index, int low, int high,
                                double length_divisor) {
  std::vector<int32_t> out;
  out.reserve(static_cast<size_t>(arrival.prompt_tokens));
  const auto range = static_cast<uint64_t>(high - low);
  for (int i = 0; i < arrival.prompt_tokens; ++i) {
    const auto place = static_cast<uint64_t>(i * length_divisor);  // in the undivided prompt
    const size_t block = place / kPrefixBlock;
    const uint64_t source = block < arrival.blocks.size()
                                ? mix(arrival.blocks[block])
                                : mix(~static_cast<uint64_t>(index)) + block;
    out.push_back(low + static_cast<int32_t>(mix(mix(seed ^ source) + place) % range));
  }
  return out;
}

}  // namespace asap
