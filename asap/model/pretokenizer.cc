#include "asap/model/pretokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/model/json_reader.h"

namespace asap {

namespace {

constexpr size_t kMaxSteps = 64;
constexpr int kMaxDepth = 8;

// The pattern of GPT-2, which ByteLevel applies when use_regex is set.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The patterns of widely used models for which Regex::find_all may find plain English words itself:
// each takes an optional space and a run of letters as one match (o200k: a run that does not change
// to upper case).
constexpr std::string_view kAsciiWordPatterns[] = {
    kGpt2Pattern,
    // Qwen2, Qwen3
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)re"
    R"re([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
    // Llama 3, GLM-4
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p)re"
    R"re({N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
    // DeepSeek-V3
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)re"
    "\r\n"
    R"re(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)re"
    "\r\n"
    R"re(]*|\s*[)re"
    "\r\n"
    R"re(]+|\s+(?!\S)|\s+)re",
    // o200k: gpt-oss
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?)re"
    R"re(i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L})re"
    R"re(\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr char kWhere[] = "tokenizer.json: pre_tokenizer";

}  // namespace

Result<Pretokenizer> Pretokenizer::parse(const nlohmann::json& config) {
  Pretokenizer out;
  if (!config.is_null()) ASAP_TRY(out.add(config, 0));
  if (!out.byte_level_) {
    return fail(Code::unsupported, "{}: there is no ByteLevel step; only byte-level BPE is known",
                kWhere);
  }
  return out;
}

Status Pretokenizer::add(const nlohmann::json& config, int depth) {
  if (!config.is_object()) return fail(Code::invalid, "{} is not an object", kWhere);
  JsonReader reader(config, kWhere);
  const std::string type = reader.string_or("type", "");
  ASAP_TRY(reader.status());
  if (steps_.size() >= kMaxSteps || depth > kMaxDepth) {
    return fail(Code::invalid, "{}: more than {} steps or {} nested sequences", kWhere, kMaxSteps,
                kMaxDepth);
  }
  if (byte_level_) {
    return fail(Code::unsupported, "{}: {} after ByteLevel is not supported", kWhere, type);
  }
  if (type == "Split") return add_split(config);
  if (type == "Digits") return add_digits(config);
  if (type == "ByteLevel") return add_byte_level(config);
  if (type != "Sequence") {
    return fail(Code::unsupported,
                "{}: type \"{}\" is not supported; known are Sequence, Split, Digits, ByteLevel",
                kWhere, type);
  }
  if (!reader.has("pretokenizers") || !reader.raw("pretokenizers").is_array()) {
    return fail(Code::invalid, "{}: Sequence has no list \"pretokenizers\"", kWhere);
  }
  for (const nlohmann::json& step : reader.raw("pretokenizers")) ASAP_TRY(add(step, depth + 1));
  return {};
}

Status Pretokenizer::add_split(const nlohmann::json& config) {
  static constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Isolated", Behavior::isolated},
      {"Removed", Behavior::removed},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous},
  };
  JsonReader reader(config, fmt::format("{}: Split", kWhere));
  Step step;
  step.invert = reader.boolean_or("invert", false);
  const std::string behavior = reader.string_or("behavior", "");
  ASAP_TRY(reader.status());
  const auto known = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                  [&](const auto& entry) { return entry.first == behavior; });
  if (known == std::end(kBehaviors)) {
    return fail(Code::invalid, "{}: Split: behavior \"{}\" is unknown", kWhere, behavior);
  }
  step.behavior = known->second;
  if (!reader.has("pattern") || !reader.raw("pattern").is_object()) {
    return fail(Code::invalid, "{}: Split has no object \"pattern\"", kWhere);
  }
  JsonReader pattern(reader.raw("pattern"), fmt::format("{}: Split: pattern", kWhere));
  const std::string regex = pattern.string_or("Regex", "");
  step.literal = pattern.string_or("String", "");
  ASAP_TRY(pattern.status());
  if (regex.empty() == step.literal.empty()) {
    return fail(Code::invalid, "{}: Split: pattern needs one text, \"Regex\" or \"String\"",
                kWhere);
  }
  if (!regex.empty()) return add_regex(regex, std::move(step));
  steps_.push_back(std::move(step));
  return {};
}

Status Pretokenizer::add_digits(const nlohmann::json& config) {
  JsonReader reader(config, fmt::format("{}: Digits", kWhere));
  const bool individual = reader.boolean_or("individual_digits", false);
  ASAP_TRY(reader.status());
  return add_regex(individual ? R"(\p{N})" : R"(\p{N}+)", Step{});
}

Status Pretokenizer::add_byte_level(const nlohmann::json& config) {
  JsonReader reader(config, fmt::format("{}: ByteLevel", kWhere));
  Step step;
  step.add_prefix_space = reader.boolean_or("add_prefix_space", true);
  const bool use_regex = reader.boolean_or("use_regex", true);
  ASAP_TRY(reader.status());  // trim_offsets concerns offsets, which nobody asks for here
  byte_level_ = true;
  if (use_regex) return add_regex(kGpt2Pattern, std::move(step));
  if (step.add_prefix_space) steps_.push_back(std::move(step));
  return {};
}

Status Pretokenizer::add_regex(std::string_view pattern, Step step) {
  Result<Regex> regex = Regex::compile(pattern);
  if (!regex) return fail(regex.error().code, "{}: {}", kWhere, regex.error().message);
  step.regex.emplace(std::move(*regex));
  step.ascii_words = std::find(std::begin(kAsciiWordPatterns), std::end(kAsciiWordPatterns),
                               pattern) != std::end(kAsciiWordPatterns);
  steps_.push_back(std::move(step));
  return {};
}

void Pretokenizer::split(std::string_view text, std::deque<std::string>* arena,
                         std::vector<std::string_view>* pieces) const {
  if (text.empty()) return;
  std::vector<std::string_view> current = {text};
  std::vector<std::string_view> next;
  std::vector<Span> matches;
  std::vector<Cut> cuts;
  for (const Step& step : steps_) {
    next.clear();
    for (std::string_view piece : current) {
      if (step.add_prefix_space && piece.front() != ' ') {
        piece = arena->emplace_back(" ").append(piece);
      }
      matches.clear();
      find_matches(step, piece, &matches);
      find_cuts(step, piece, matches, &cuts);
      emit(step.behavior, piece, cuts, &next);
    }
    current.swap(next);
  }
  pieces->insert(pieces->end(), current.begin(), current.end());
}

void Pretokenizer::find_matches(const Step& step, std::string_view text,
                                std::vector<Span>* matches) {
  if (step.regex) {
    step.regex->find_all(text, step.ascii_words, matches);
  } else if (!step.literal.empty()) {
    for (size_t at = text.find(step.literal); at != text.npos;) {
      matches->push_back({at, at + step.literal.size()});
      at = text.find(step.literal, at + step.literal.size());
    }
  }
}

// Cuts `text` into matches and the gaps between them.
void Pretokenizer::find_cuts(const Step& step, std::string_view text,
                             const std::vector<Span>& matches, std::vector<Cut>* cuts) {
  cuts->clear();
  size_t done = 0;
  for (const Span& match : matches) {
    if (done < match.begin) cuts->push_back({done, match.begin, step.invert});
    cuts->push_back({match.begin, match.end, !step.invert});
    done = match.end;
  }
  if (done < text.size()) cuts->push_back({done, text.size(), step.invert});
}

void Pretokenizer::emit(Behavior behavior, std::string_view text, const std::vector<Cut>& cuts,
                        std::vector<std::string_view>* pieces) {
  const auto push = [&](size_t begin, size_t end) {
    if (begin < end) pieces->push_back(text.substr(begin, end - begin));
  };
  // Does the cut at i continue the piece of the cut before it?
  const auto joins = [&](size_t i) {
    switch (behavior) {
      case Behavior::isolated:
      case Behavior::removed: return false;
      case Behavior::contiguous: return cuts[i].match == cuts[i - 1].match;
      case Behavior::merged_with_previous: return cuts[i].match && !cuts[i - 1].match;
      case Behavior::merged_with_next: return cuts[i - 1].match && !cuts[i].match;
    }
    return false;
  };
  for (size_t i = 0; i < cuts.size();) {
    const size_t begin = cuts[i].begin;
    if (behavior == Behavior::removed && cuts[i].match) {
      ++i;
      continue;
    }
    size_t end = cuts[i].end;
    for (++i; i < cuts.size() && joins(i); ++i) end = cuts[i].end;
    push(begin, end);
  }
}

}  // namespace asap
