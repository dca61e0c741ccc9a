#include "asap/load/event_stream.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace asap {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxTokens = uint64_t{1} << 29;  // of any count that a server claims
constexpr size_t kMaxLine = size_t{16} << 20;

int count_of(const Json& usage, const char* key) {
  if (!usage.contains(key) || !usage[key].is_number_unsigned()) return 0;
  return static_cast<int>(std::min(usage[key].get<uint64_t>(), kMaxTokens));
}

// A completion's choice has text; a chat's has a delta, whose first event is the role alone.
bool has_token(const Json& choice) {
  if (choice.contains("text")) return true;
  if (!choice.contains("delta") || !choice["delta"].is_object()) return false;
  const Json& delta = choice["delta"];
  for (const char* key : {"content", "reasoning_content", "reasoning"}) {
    if (delta.contains(key) && delta[key].is_string() && delta[key] != "") return true;
  }
  return delta.contains("tool_calls");
}

// Parts that are missing are 0. Nothing at all if one is no time.
std::optional<TimeParts> parts_of(const Json& timing) {
  if (!timing.is_object()) return std::nullopt;
  TimeParts out;
  for (const TimePart& part : kTimeParts) {
    if (!timing.contains(part.key)) continue;
    const Json& value = timing[part.key];
    if (!value.is_number()) return std::nullopt;
    out.*part.value = value.get<double>();
    if (!std::isfinite(out.*part.value) || out.*part.value < 0) return std::nullopt;
  }
  return out;
}

StreamEvent event_of(const Json& data) {
  StreamEvent out;
  if (!data.is_object()) return out;
  if (data.contains("error")) {
    const Json& error = data["error"];
    const bool named = error.is_object() && error.contains("message");
    out.error = named ? error["message"].dump() : error.dump();
  }
  if (data.contains("choices") && data["choices"].is_array()) {
    for (const Json& choice : data["choices"]) out.token = out.token || has_token(choice);
  }
  if (data.contains("usage") && data["usage"].is_object()) {
    out.prompt_tokens = count_of(data["usage"], "prompt_tokens");
    out.completion_tokens = count_of(data["usage"], "completion_tokens");
  }
  if (data.contains("asap_timing")) out.parts = parts_of(data["asap_timing"]);
  return out;
}

}  // namespace

std::vector<StreamEvent> EventStream::push(std::string_view bytes) {
  std::vector<StreamEvent> out;
  for (const char c : bytes) {
    if (c != '\n') {
      if (line_.size() < kMaxLine) line_ += c;
      continue;
    }
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      if (line != "[DONE]") out.push_back(event_of(Json::parse(line, nullptr, false)));
    }
    line_.clear();
  }
  return out;
}

}  // namespace asap
