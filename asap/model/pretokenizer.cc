#include "asap/model/pretokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/model/json_reader.h"
#include "asap/model/utf8.h"

namespace asap {

namespace {

constexpr size_t kMaxPretokenizerSteps = 64;
constexpr int kMaxPretokenizerDepth = 8;

// What Hugging Face's other steps look for, as patterns.
constexpr std::string_view kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";
constexpr std::string_view kWordPattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|)"
    R"([^\s\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+)";

constexpr char kPretokenizerWhere[] = "tokenizer.json: pre_tokenizer";

}  // namespace

Result<Pretokenizer> Pretokenizer::parse(const nlohmann::json& config) {
  Pretokenizer out;
  if (!config.is_null()) ASAP_TRY(out.add(config, 0));
  return out;
}

Result<Pretokenizer> Pretokenizer::kimi() {
  Pretokenizer out;
  out.byte_level_ = true;
  ASAP_TRY(out.add_regex(kKimiPattern, Step{}));
  return out;
}

Status Pretokenizer::add(const nlohmann::json& config, int depth) {
  if (!config.is_object()) return fail(Code::invalid, "{} is not an object", kPretokenizerWhere);
  JsonReader reader(config, kPretokenizerWhere);
  const std::string type = reader.string_or("type", "");
  ASAP_TRY(reader.status());
  if (steps_.size() >= kMaxPretokenizerSteps || depth > kMaxPretokenizerDepth) {
    return fail(Code::invalid, "{}: more than {} steps or {} nested sequences", kPretokenizerWhere,
                kMaxPretokenizerSteps, kMaxPretokenizerDepth);
  }
  if (byte_level_) {
    return fail(Code::unsupported, "{}: {} after ByteLevel is not supported", kPretokenizerWhere,
                type);
  }
  if (type == "Sequence") return add_sequence(config, depth);
  if (type == "Split") return add_split(config);
  if (type == "Digits") return add_digits(config);
  if (type == "Punctuation") return add_punctuation(config);
  if (type == "CharDelimiterSplit" || type == "Delimiter") return add_delimiter(config);
  if (type == "Metaspace") return add_metaspace(config);
  if (type == "ByteLevel") return add_byte_level(config);
  if (type == "Whitespace") return add_removal(kWordPattern, true);
  if (type == "WhitespaceSplit") return add_removal(R"(\s)", false);
  return fail(Code::unsupported,
              "{}: type \"{}\" is not supported; known are Sequence, Split, Digits, Punctuation, "
              "Whitespace, WhitespaceSplit, CharDelimiterSplit, Metaspace, ByteLevel",
              kPretokenizerWhere, type);
}

Status Pretokenizer::add_sequence(const nlohmann::json& config, int depth) {
  const auto list = config.find("pretokenizers");
  if (list == config.end() || !list->is_array()) {
    return fail(Code::invalid, "{}: Sequence has no list \"pretokenizers\"", kPretokenizerWhere);
  }
  for (const nlohmann::json& step : *list) ASAP_TRY(add(step, depth + 1));
  return {};
}

Result<Pretokenizer::Behavior> Pretokenizer::behavior_of(const nlohmann::json& config,
                                                         const std::string& where,
                                                         const std::string& fallback) {
  static constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Isolated", Behavior::isolated},
      {"Removed", Behavior::removed},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous},
  };
  JsonReader reader(config, where);
  const std::string behavior = reader.string_or("behavior", fallback);
  ASAP_TRY(reader.status());
  const auto known = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                  [&](const auto& entry) { return entry.first == behavior; });
  if (known != std::end(kBehaviors)) return known->second;
  return fail(Code::invalid, "{}: behavior \"{}\" is unknown", where, behavior);
}

Status Pretokenizer::add_split(const nlohmann::json& config) {
  const std::string where = fmt::format("{}: Split", kPretokenizerWhere);
  JsonReader reader(config, where);
  Step step;
  step.invert = reader.boolean_or("invert", false);
  ASAP_TRY(reader.status());
  ASAP_ASSIGN(step.behavior, behavior_of(config, where, ""));
  ASAP_ASSIGN(step.pattern, Pattern::parse(config, where));
  steps_.push_back(std::move(step));
  return {};
}

Status Pretokenizer::add_digits(const nlohmann::json& config) {
  JsonReader reader(config, fmt::format("{}: Digits", kPretokenizerWhere));
  const bool individual = reader.boolean_or("individual_digits", false);
  ASAP_TRY(reader.status());
  return add_regex(individual ? R"(\p{N})" : R"(\p{N}+)", Step{});
}

Status Pretokenizer::add_punctuation(const nlohmann::json& config) {
  Step step;
  ASAP_ASSIGN(step.behavior,
              behavior_of(config, fmt::format("{}: Punctuation", kPretokenizerWhere), "Isolated"));
  return add_regex(kPunctuation, std::move(step));
}

// The matches of `pattern` go, or all but them.
Status Pretokenizer::add_removal(std::string_view pattern, bool invert) {
  Step step;
  step.behavior = Behavior::removed;
  step.invert = invert;
  return add_regex(pattern, std::move(step));
}

Status Pretokenizer::add_delimiter(const nlohmann::json& config) {
  JsonReader reader(config, fmt::format("{}: CharDelimiterSplit", kPretokenizerWhere));
  std::string delimiter = reader.string_or("delimiter", "");
  ASAP_TRY(reader.status());
  if (!is_one_char(delimiter)) {
    return fail(Code::invalid, "{}: delimiter \"{}\" is not one character", reader.file(),
                delimiter);
  }
  Step step;
  step.pattern = Pattern::literal(std::move(delimiter));
  step.behavior = Behavior::removed;
  steps_.push_back(std::move(step));
  return {};
}

Status Pretokenizer::add_metaspace(const nlohmann::json& config) {
  ASAP_ASSIGN(MetaspaceOptions options, MetaspaceOptions::parse(config, kPretokenizerWhere));
  Step step;
  step.space = step.prefix = options.replacement;
  step.where = options.prepend;
  if (step.where == Prepend::first) {
    const auto moves = [](const Step& earlier) { return !earlier.space.empty(); };
    if (std::any_of(steps_.begin(), steps_.end(), moves)) {
      return fail(
          Code::unsupported,
          "{}: Metaspace: prepend_scheme \"first\" after another Metaspace is not supported",
          kPretokenizerWhere);
    }
    minds_beginning_ = true;
  }
  if (options.split) {
    step.pattern = Pattern::literal(std::move(options.replacement));
    step.behavior = Behavior::merged_with_next;
  }
  steps_.push_back(std::move(step));
  return {};
}

Status Pretokenizer::add_byte_level(const nlohmann::json& config) {
  JsonReader reader(config, fmt::format("{}: ByteLevel", kPretokenizerWhere));
  Step step;
  const bool prefixed = reader.boolean_or("add_prefix_space", true);
  const bool use_regex = reader.boolean_or("use_regex", true);
  ASAP_TRY(reader.status());  // trim_offsets concerns offsets, which nobody asks for here
  byte_level_ = true;
  if (prefixed) {
    step.prefix = " ";
    step.where = Prepend::always;
  }
  if (use_regex) return add_regex(kGpt2Pattern, std::move(step));
  if (prefixed) steps_.push_back(std::move(step));
  return {};
}

Status Pretokenizer::add_regex(std::string_view pattern, Step step) {
  ASAP_ASSIGN(step.pattern, Pattern::regex(pattern, kPretokenizerWhere));
  steps_.push_back(std::move(step));
  return {};
}

bool Pretokenizer::removes() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.pattern && step.behavior == Behavior::removed;
  });
}

void Pretokenizer::split(std::string_view text, bool beginning, std::deque<std::string>* arena,
                         std::vector<std::string_view>* pieces) const {
  if (text.empty()) return;
  std::vector<std::string_view> current = {text};
  std::vector<std::string_view> next;
  std::vector<Span> matches;
  std::vector<Cut> cuts;
  for (const Step& step : steps_) {
    next.clear();
    for (std::string_view piece : current) {
      const bool first = beginning && piece.data() == text.data();
      if (!step.space.empty()) {
        piece = arena->emplace_back(Pattern::literal(" ").replaced(piece, step.space));
      }
      const bool wanted = step.where == Prepend::always || (step.where == Prepend::first && first);
      if (wanted && !piece.starts_with(step.prefix)) {
        piece = arena->emplace_back(step.prefix).append(piece);
      }
      if (!step.pattern) {
        next.push_back(piece);
        continue;
      }
      matches.clear();
      step.pattern->find_all(piece, &matches);
      find_cuts(step, piece, matches, &cuts);
      emit(step.behavior, piece, cuts, &next);
    }
    current.swap(next);
  }
  pieces->insert(pieces->end(), current.begin(), current.end());
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
