#include "asap/model/pattern.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/model/json_reader.h"

namespace asap {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr std::string_view kKimiPattern =
    R"re([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm})re"
    R"re(\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt})re"
    R"re(\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|)re"
    R"re('ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

namespace {

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
    // o200k: gpt-oss, MiniMax
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?)re"
    R"re(i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L})re"
    R"re(\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
    kKimiPattern,
};

}  // namespace

Result<Pattern> Pattern::parse(const nlohmann::json& owner, const std::string& where) {
  JsonReader reader(owner, where);
  if (!reader.has("pattern") || !reader.raw("pattern").is_object()) {
    return fail(Code::invalid, "{} has no object \"pattern\"", where);
  }
  JsonReader pattern(reader.raw("pattern"), fmt::format("{}: pattern", where));
  const std::string source = pattern.string_or("Regex", "");
  std::string text = pattern.string_or("String", "");
  ASAP_TRY(pattern.status());
  if (source.empty() == text.empty()) {
    return fail(Code::invalid, "{}: pattern needs one text, \"Regex\" or \"String\"", where);
  }
  if (source.empty()) return literal(std::move(text));
  return regex(source, where);
}

Result<Pattern> Pattern::regex(std::string_view source, const std::string& where) {
  Result<Regex> regex = Regex::compile(source);
  if (!regex) return fail(regex.error().code, "{}: {}", where, regex.error().message);
  Pattern out;
  out.regex_.emplace(std::move(*regex));
  out.ascii_words_ = std::find(std::begin(kAsciiWordPatterns), std::end(kAsciiWordPatterns),
                               source) != std::end(kAsciiWordPatterns);
  return out;
}

Pattern Pattern::literal(std::string text) {
  Pattern out;
  out.literal_ = std::move(text);
  return out;
}

void Pattern::find_all(std::string_view text, std::vector<Span>* matches) const {
  if (text.empty()) return;  // not even for a pattern that matches nothing at all
  if (regex_) return regex_->find_all(text, ascii_words_, matches);
  for (size_t at = text.find(literal_); at != text.npos;) {
    matches->push_back({at, at + literal_.size()});
    at = text.find(literal_, at + literal_.size());
  }
}

size_t Pattern::growth(std::string_view by) const {
  if (regex_) return 1 + by.size();  // it may match the nothing between two characters
  return std::max<size_t>(1, (by.size() + literal_.size() - 1) / literal_.size());
}

std::string Pattern::replaced(std::string_view text, std::string_view by) const {
  std::vector<Span> matches;
  find_all(text, &matches);
  std::string out;
  out.reserve(text.size() + matches.size() * by.size());
  size_t done = 0;
  for (const Span& match : matches) {
    out.append(text, done, match.begin - done).append(by);
    done = match.end;
  }
  return out.append(text, done);
}

}  // namespace asap
