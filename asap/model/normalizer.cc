#include "asap/model/normalizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/model/json_reader.h"

namespace asap {

namespace {

constexpr size_t kMaxNormalizerSteps = 64;
constexpr int kMaxNormalizerDepth = 8;
constexpr size_t kMaxPrependBytes = 4096;
constexpr size_t kMaxNormalizerGrowth = 1024;
constexpr size_t kMaxNormalizerShrinkage = 1024;

constexpr char kNormalizerWhere[] = "tokenizer.json: normalizer";

}  // namespace

Result<Normalizer> Normalizer::parse(const nlohmann::json& config) {
  Normalizer out;
  if (!config.is_null()) ASAP_TRY(out.add(config, 0));
  return out;
}

Status Normalizer::add(const nlohmann::json& config, int depth) {
  static constexpr std::pair<std::string_view, NormalForm> kForms[] = {
      {"NFC", NormalForm::nfc},
      {"NFD", NormalForm::nfd},
      {"NFKC", NormalForm::nfkc},
      {"NFKD", NormalForm::nfkd},
  };
  if (!config.is_object()) return fail(Code::invalid, "{} is not an object", kNormalizerWhere);
  JsonReader reader(config, kNormalizerWhere);
  const std::string type = reader.string_or("type", "");
  ASAP_TRY(reader.status());
  if (steps_.size() >= kMaxNormalizerSteps || depth > kMaxNormalizerDepth) {
    return fail(Code::invalid, "{}: more than {} steps or {} nested sequences", kNormalizerWhere,
                kMaxNormalizerSteps, kMaxNormalizerDepth);
  }
  if (type == "Sequence") return add_sequence(config, depth);
  if (type == "Replace") return add_text_step(config, Kind::replace);
  if (type == "Prepend") return add_text_step(config, Kind::prepend);
  Step step{};
  const auto form = std::find_if(std::begin(kForms), std::end(kForms),
                                 [&](const auto& entry) { return entry.first == type; });
  if (form != std::end(kForms)) {
    step.kind = Kind::normal_form;
    step.form = form->second;
  } else if (type == "Lowercase") {
    step.kind = Kind::lowercase;
  } else if (type == "StripAccents") {
    step.kind = Kind::strip_accents;
  } else if (type == "Strip") {
    step.kind = Kind::strip;
    step.left = reader.boolean_or("strip_left", false);
    step.right = reader.boolean_or("strip_right", false);
    ASAP_TRY(reader.status());
  } else {
    return fail(Code::unsupported,
                "{}: type \"{}\" is not supported; known are Sequence, NFC, NFD, NFKC, NFKD, "
                "Lowercase, StripAccents, Strip, Prepend, Replace",
                kNormalizerWhere, type);
  }
  steps_.push_back(std::move(step));
  return {};
}

Status Normalizer::add_sequence(const nlohmann::json& config, int depth) {
  const auto list = config.find("normalizers");
  if (list == config.end() || !list->is_array()) {
    return fail(Code::invalid, "{}: Sequence has no list \"normalizers\"", kNormalizerWhere);
  }
  for (const nlohmann::json& step : *list) ASAP_TRY(add(step, depth + 1));
  return {};
}

Status Normalizer::add_text_step(const nlohmann::json& config, Kind kind) {
  const bool prepend = kind == Kind::prepend;
  JsonReader reader(config,
                    fmt::format("{}: {}", kNormalizerWhere, prepend ? "Prepend" : "Replace"));
  const char* key = prepend ? "prepend" : "content";
  Step step{};
  step.kind = kind;
  step.content = reader.string_or(key, "");
  ASAP_TRY(reader.status());
  if (!reader.has(key)) {
    return fail(Code::invalid, "{}: there is no \"{}\"", reader.file(), key);
  }
  if (prepend) {
    if (step.content.size() > kMaxPrependBytes) {
      return fail(Code::invalid, "{}: {} bytes exceed {}", reader.file(), step.content.size(),
                  kMaxPrependBytes);
    }
  } else {
    ASAP_ASSIGN(step.pattern, Pattern::parse(config, reader.file()));
    ASAP_TRY(grow(step.pattern->growth(step.content)));
  }
  steps_.push_back(std::move(step));
  return {};
}

// Steps multiply; without a bound a file of a few lines could ask for more memory than there is.
Status Normalizer::grow(size_t factor) {
  growth_ *= std::min(factor, kMaxNormalizerGrowth + 1);
  if (growth_ <= kMaxNormalizerGrowth) return {};
  return fail(Code::invalid, "{}: replacements may make a text over {} times as long",
              kNormalizerWhere, kMaxNormalizerGrowth);
}

size_t Normalizer::most_bytes_per_byte() const {
  size_t product = 1;
  for (const Step& step : steps_) {
    product *= most_bytes_per_byte(step);
    if (product > kMaxNormalizerShrinkage) return 0;
  }
  return product;
}

size_t Normalizer::most_bytes_per_byte(const Step& step) {
  switch (step.kind) {
    // A mathematical A of four bytes becomes an A of one. What is composed shrinks less: three
    // letters of three bytes make a Hangul syllable of three.
    case Kind::normal_form:
    case Kind::lowercase: return 4;
    case Kind::strip_accents:
    case Kind::strip: return 0;
    case Kind::prepend: return 1;
    case Kind::replace: {
      const size_t found = step.pattern->literal().size();
      const size_t put = step.content.size();
      return found == 0 || put == 0 ? 0 : (found + put - 1) / put;
    }
  }
  return 0;
}

std::string_view Normalizer::apply(std::string_view text, std::deque<std::string>* arena) const {
  if (steps_.empty() || text.empty()) return text;
  return arena->emplace_back(apply(text));
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    if (!out.empty()) out = run(step, out);
  }
  return out;
}

std::string Normalizer::run(const Step& step, std::string_view text) {
  switch (step.kind) {
    case Kind::normal_form: return normalized(text, step.form);
    case Kind::lowercase: return lowercase(text);
    case Kind::strip_accents: return without_marks(text);
    case Kind::strip: {
      const size_t begin = step.left ? space_end(text, 0) : 0;
      const size_t end = step.right ? space_begin(text, text.size(), begin) : text.size();
      return std::string(text.substr(begin, end - begin));
    }
    case Kind::prepend: return step.content + std::string(text);
    case Kind::replace: return step.pattern->replaced(text, step.content);
  }
  return std::string(text);
}

}  // namespace asap
