#include "asap/model/text_decoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "asap/model/bpe.h"
#include "asap/model/json_reader.h"
#include "asap/model/metaspace.h"
#include "asap/model/utf8.h"

namespace asap {

namespace {

constexpr size_t kMaxDecoderSteps = 64;
constexpr int kMaxDecoderDepth = 8;
constexpr size_t kMaxDecoderGrowth = 1024;
constexpr int kMaxStripped = 1 << 20;
constexpr size_t kMaxStreamedPattern = 64;  // longer ones are looked for when the text is complete

constexpr char kDecoderWhere[] = "tokenizer.json: decoder";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte that the token "<0x..>" stands for.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  if (high < 0 || low < 0) return {};
  return static_cast<char>(high << 4 | low);
}

}  // namespace

Result<TextDecoder> TextDecoder::parse(const nlohmann::json& config) {
  if (config.is_null()) {
    return fail(Code::unsupported, "{}: there is none, which is not supported", kDecoderWhere);
  }
  TextDecoder out;
  ASAP_TRY(out.add(config, 0));
  return out;
}

TextDecoder TextDecoder::bytes() {
  TextDecoder out;
  out.steps_.emplace_back(Kind::byte_level).prepared = true;
  return out;
}

Status TextDecoder::add(const nlohmann::json& config, int depth) {
  if (!config.is_object()) return fail(Code::invalid, "{} is not an object", kDecoderWhere);
  JsonReader reader(config, kDecoderWhere);
  const std::string type = reader.string_or("type", "");
  ASAP_TRY(reader.status());
  if (depth > kMaxDecoderDepth) {
    return fail(Code::invalid, "{}: more than {} nested sequences", kDecoderWhere,
                kMaxDecoderDepth);
  }
  if (type == "Sequence") return add_sequence(config, depth);
  if (type == "Replace") return add_replace(config);
  if (type == "Strip") return add_strip(config);
  if (type == "Metaspace") return add_metaspace(config);
  if (type == "ByteLevel") return add_step(Step(Kind::byte_level));
  if (type == "ByteFallback") return add_step(Step(Kind::byte_fallback));
  if (type == "Fuse") return add_step(Step(Kind::fuse));
  return fail(Code::unsupported,
              "{}: type \"{}\" is not supported; known are Sequence, ByteLevel, ByteFallback, "
              "Fuse, Metaspace, Replace, Strip",
              kDecoderWhere, type);
}

Status TextDecoder::add_sequence(const nlohmann::json& config, int depth) {
  const auto list = config.find("decoders");
  if (list == config.end() || !list->is_array()) {
    return fail(Code::invalid, "{}: Sequence has no list \"decoders\"", kDecoderWhere);
  }
  for (const nlohmann::json& step : *list) ASAP_TRY(add(step, depth + 1));
  return {};
}

Status TextDecoder::add_replace(const nlohmann::json& config) {
  JsonReader reader(config, fmt::format("{}: Replace", kDecoderWhere));
  Step step(Kind::replace);
  step.content = reader.string_or("content", "");
  ASAP_TRY(reader.status());
  ASAP_ASSIGN(Pattern pattern, Pattern::parse(config, reader.file()));
  step.pattern = std::make_shared<const Pattern>(std::move(pattern));
  // Steps multiply; without a bound a file of a few lines could ask for more memory than there is.
  growth_ *= std::min(step.pattern->growth(step.content), kMaxDecoderGrowth + 1);
  if (growth_ > kMaxDecoderGrowth) {
    return fail(Code::invalid, "{}: replacements may make a text over {} times as long",
                kDecoderWhere, kMaxDecoderGrowth);
  }
  return add_step(std::move(step));
}

Status TextDecoder::add_strip(const nlohmann::json& config) {
  JsonReader reader(config, fmt::format("{}: Strip", kDecoderWhere));
  Step step(Kind::strip);
  step.content = reader.string_or("content", "");
  step.start = static_cast<size_t>(reader.integer_or("start", 0, 0, kMaxStripped));
  step.stop = static_cast<size_t>(reader.integer_or("stop", 0, 0, kMaxStripped));
  ASAP_TRY(reader.status());
  if (!is_one_char(step.content)) {
    return fail(Code::invalid, "{}: content \"{}\" is not one character", reader.file(),
                step.content);
  }
  return add_step(std::move(step));
}

Status TextDecoder::add_metaspace(const nlohmann::json& config) {
  ASAP_ASSIGN(MetaspaceOptions options, MetaspaceOptions::parse(config, kDecoderWhere));
  Step step(Kind::metaspace);
  step.content = std::move(options.replacement);
  step.drop_first = options.prepend != MetaspaceOptions::Prepend::never;
  return add_step(std::move(step));
}

Status TextDecoder::add_step(Step step) {
  if (steps_.size() + first_.size() >= kMaxDecoderSteps) {
    return fail(Code::invalid, "{}: more than {} steps", kDecoderWhere, kMaxDecoderSteps);
  }
  step.joined = joined_;
  joined_ = joined_ || step.kind == Kind::fuse || step.kind == Kind::byte_level;
  const bool by_token =
      step.kind == Kind::byte_level || step.kind == Kind::replace || step.kind == Kind::strip;
  if (by_token && steps_.empty()) {
    first_.push_back(step);
    if (step.kind != Kind::byte_level) return {};
    step.prepared = true;
  }
  steps_.push_back(std::move(step));
  return {};
}

std::string TextDecoder::changed(const Step& step, std::string_view token, bool first) {
  switch (step.kind) {
    case Kind::byte_level: return bytes_of_alphabet(token).value_or(std::string(token));
    case Kind::replace: return step.pattern->replaced(token, step.content);
    case Kind::metaspace:
      return Pattern::literal(step.content).replaced(token, first && step.drop_first ? "" : " ");
    case Kind::byte_fallback: {
      const std::optional<char> byte = fallback_byte(token);
      return byte ? repair_utf8(std::string(1, *byte)) : std::string(token);
    }
    case Kind::strip:
      for (size_t i = 0; i < step.start && token.starts_with(step.content); ++i) {
        token.remove_prefix(step.content.size());
      }
      for (size_t i = 0; i < step.stop && token.ends_with(step.content); ++i) {
        token.remove_suffix(step.content.size());
      }
      return std::string(token);
    case Kind::fuse: return std::string(token);
  }
  return std::string(token);
}

std::string TextDecoder::prepared(std::string_view text) const {
  std::string token(text);
  for (const Step& step : first_) token = changed(step, token, false);
  return token;
}

std::string TextDecoder::alone(std::string_view prepared) const {
  std::string token(prepared);
  for (const Step& step : steps_) {
    if (step.kind == Kind::byte_fallback) {
      if (const std::optional<char> byte = fallback_byte(token)) return std::string(1, *byte);
    }
    if (step.kind == Kind::metaspace) token = changed(step, token, false);
  }
  return token;
}

bool TextDecoder::just_bytes() const {
  return steps_.size() == 1 && steps_[0].kind == Kind::byte_level && steps_[0].prepared;
}

void TextDecoder::push(std::string_view prepared, State* state, std::string* out) const {
  state->steps_.resize(steps_.size());
  Run run{state, out};
  feed(0, prepared, run);
}

void TextDecoder::finish(State* state, std::string* out) const {
  state->steps_.resize(steps_.size());
  Run run{state, out};
  for (size_t index = 0; index < steps_.size(); ++index) end(index, run);
  state->steps_.clear();
}

void TextDecoder::feed(size_t index, std::string_view token, Run& run) const {
  if (index == steps_.size()) {
    run.out->append(token);
    return;
  }
  const Step& step = steps_[index];
  State::Step& state = run.state->steps_[index];
  switch (step.kind) {
    case Kind::fuse: return feed_part(index + 1, token, run);
    case Kind::replace:
    case Kind::strip: return feed(index + 1, changed(step, token, false), run);
    case Kind::metaspace: return feed(index + 1, changed(step, token, state.count++ == 0), run);
    case Kind::byte_fallback:
      if (const std::optional<char> byte = fallback_byte(token)) {
        state.held.push_back(*byte);
        return;
      }
      end_byte_run(index, run);
      return feed(index + 1, token, run);
    case Kind::byte_level: break;
  }
  if (step.prepared) {
    state.held += token;
  } else {
    state.held += changed(step, token, false);
  }
  const size_t whole = state.held.size() - utf8_incomplete_tail(state.held);
  if (whole == 0) return;
  const std::string text = repair_utf8(std::string_view(state.held).substr(0, whole));
  state.held.erase(0, whole);
  feed_part(index + 1, text, run);
}

void TextDecoder::feed_part(size_t index, std::string_view part, Run& run) const {
  if (index == steps_.size()) {
    run.out->append(part);
    return;
  }
  switch (steps_[index].kind) {
    case Kind::fuse: return feed_part(index + 1, part, run);
    case Kind::metaspace: return feed_part(index + 1, changed(steps_[index], part, true), run);
    case Kind::strip: return strip_part(index, part, run);
    case Kind::replace: return replace_part(index, part, run);
    // Odd orders of steps, which look at the whole text.
    case Kind::byte_fallback:
    case Kind::byte_level: run.state->steps_[index].held += part;
  }
}

void TextDecoder::strip_part(size_t index, std::string_view part, Run& run) const {
  const Step& step = steps_[index];
  State::Step& state = run.state->steps_[index];
  while (!state.open && state.count < step.start && part.starts_with(step.content)) {
    part.remove_prefix(step.content.size());
    ++state.count;
  }
  if (part.empty()) return;
  state.open = true;
  if (step.stop == 0) return feed_part(index + 1, part, run);
  // What the end of the text may lose stays here.
  state.held += part;
  size_t certain = state.held.size();
  for (size_t i = 0; i < step.stop; ++i) {
    if (!std::string_view(state.held).substr(0, certain).ends_with(step.content)) break;
    certain -= step.content.size();
  }
  const std::string text = state.held.substr(0, certain);
  state.held.erase(0, certain);
  feed_part(index + 1, text, run);
}

void TextDecoder::replace_part(size_t index, std::string_view part, Run& run) const {
  const Step& step = steps_[index];
  State::Step& state = run.state->steps_[index];
  const std::string& literal = step.pattern->literal();
  state.held += part;
  if (literal.empty() || literal.size() > kMaxStreamedPattern) return;
  std::vector<Span> matches;
  step.pattern->find_all(state.held, &matches);
  const size_t done = matches.empty() ? 0 : matches.back().end;
  // The beginning of a match that may be completed stays here.
  size_t open = std::min(literal.size() - 1, state.held.size() - done);
  while (open > 0 && !state.held.ends_with(std::string_view(literal).substr(0, open))) --open;
  const size_t certain = state.held.size() - open;
  const std::string text =
      step.pattern->replaced(std::string_view(state.held).substr(0, certain), step.content);
  state.held.erase(0, certain);
  feed_part(index + 1, text, run);
}

void TextDecoder::end_byte_run(size_t index, Run& run) const {
  std::string& held = run.state->steps_[index].held;
  if (held.empty()) return;
  const std::string bytes = std::exchange(held, {});
  if (is_utf8(bytes)) return feed(index + 1, bytes, run);
  for (size_t i = 0; i < bytes.size(); ++i) feed(index + 1, kReplacement, run);
}

void TextDecoder::end(size_t index, Run& run) const {
  const Step& step = steps_[index];
  if (step.kind == Kind::byte_fallback && !step.joined) return end_byte_run(index, run);
  const std::string held = std::exchange(run.state->steps_[index].held, {});
  switch (step.kind) {
    case Kind::fuse:
    case Kind::metaspace:
    case Kind::strip: return;  // what Strip held back is what it strips
    case Kind::replace: break;
    case Kind::byte_fallback: break;
    case Kind::byte_level:
      if (!step.joined) return feed_part(index + 1, repair_utf8(held), run);
  }
  if (held.empty()) return;
  const std::string text = changed(step, held, false);
  feed_part(index + 1, step.kind == Kind::byte_level ? repair_utf8(text) : text, run);
}

}  // namespace asap
