#include "asap/model/json_reader.h"

#include <cmath>

namespace asap {

namespace {

constexpr int kMaxJsonDepth = 32;
constexpr size_t kShownCharacters = 80;

bool is_whole(const nlohmann::json& value, int low, int high) {
  // Some writers store whole numbers as floats.
  if (!value.is_number()) return false;
  const double number = value.get<double>();
  return number >= low && number <= high && number == std::floor(number);
}

}  // namespace

Result<nlohmann::json> parse_json_object(const std::string& text, const std::string& file) {
  const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    return depth < kMaxJsonDepth;
  };
  nlohmann::json object = nlohmann::json::parse(text, shallow, false);
  if (object.is_discarded()) {
    return fail(Code::invalid, "{}: not valid JSON; restore it from the model's release", file);
  }
  if (!object.is_object()) {
    return fail(Code::invalid, "{}: holds {}; it must be a JSON object", file, shown(object));
  }
  return object;
}

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kShownCharacters) text = text.substr(0, kShownCharacters) + "...";
  return text;
}

int JsonReader::integer(const char* key, int low, int high) {
  if (!has(key)) {
    problem(key, fmt::format("is missing; it must be a whole number between {} and {}", low, high));
    return low;
  }
  return integer_or(key, low, low, high);
}

int JsonReader::integer_or(const char* key, int fallback, int low, int high) {
  if (!has(key)) return fallback;
  const nlohmann::json& value = object_[key];
  if (!is_whole(value, low, high)) {
    problem(key, fmt::format("is {}; it must be a whole number between {} and {}", shown(value),
                             low, high));
    return low;
  }
  return static_cast<int>(value.get<double>());
}

double JsonReader::number_or(const char* key, double fallback, double low, double high) {
  if (!has(key)) return fallback;
  const nlohmann::json& value = object_[key];
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (!(number >= low && number <= high)) {
    problem(key,
            fmt::format("is {}; it must be a number between {} and {}", shown(value), low, high));
    return low;
  }
  return number;
}

bool JsonReader::boolean_or(const char* key, bool fallback) {
  if (!has(key)) return fallback;
  if (!object_[key].is_boolean()) {
    problem(key, fmt::format("is {}; it must be true or false", shown(object_[key])));
    return fallback;
  }
  return object_[key].get<bool>();
}

std::string JsonReader::string_or(const char* key, const std::string& fallback) {
  if (!has(key)) return fallback;
  if (!object_[key].is_string()) {
    problem(key, fmt::format("is {}; it must be a string", shown(object_[key])));
    return fallback;
  }
  return object_[key].get<std::string>();
}

std::vector<int> JsonReader::integers_or_empty(const char* key, int low, int high) {
  if (!has(key)) return {};
  const nlohmann::json& value = object_[key];
  std::vector<int> out;
  const auto add = [&](const nlohmann::json& item) {
    if (!is_whole(item, low, high)) {
      problem(key, fmt::format("holds {}; it must hold whole numbers between {} and {}",
                               shown(item), low, high));
      return;
    }
    out.push_back(static_cast<int>(item.get<double>()));
  };
  if (!value.is_array()) {
    add(value);
  } else {
    for (const nlohmann::json& item : value) add(item);
  }
  return out;
}

void JsonReader::problem(const char* key, const std::string& what, Code code) {
  if (error_.message.empty()) error_ = {code, fmt::format("{}: {} {}", file_, key, what)};
}

void JsonReader::adopt(const Status& status) {
  if (!status && error_.message.empty()) error_ = status.error();
}

Status JsonReader::status() const {
  if (error_.message.empty()) return {};
  return tl::unexpected<Error>(error_);
}

}  // namespace asap
