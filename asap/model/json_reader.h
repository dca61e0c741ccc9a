// JsonReader: typed, range-checked access to one object of a configuration file that nobody vouches
// for.
//
// The first wrong key is remembered with its value and with what is expected, and reading goes on
// with a harmless value, so that a family file reads straight through and its caller looks at
// status() once.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asap/base/result.h"

namespace asap {

// Parses `text` as one JSON object; values nested deeper than 32 levels are dropped.
Result<nlohmann::json> parse_json_object(const std::string& text, const std::string& file);

// `value` as ASCII JSON for a message, at most about 80 characters.
std::string shown(const nlohmann::json& value);

class JsonReader {
 public:
  // `object` must outlive the reader; `file` opens every message.
  JsonReader(const nlohmann::json& object, std::string file)
      : object_(object), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  // Present and not null.
  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  bool is_null(const char* key) const { return object_.contains(key) && object_[key].is_null(); }
  const nlohmann::json& raw(const char* key) const { return object_[key]; }  // only if has(key)

  // A null or missing key gives the fallback, which is not checked; without one it is a problem,
  // and gives `low`.
  int integer(const char* key, int low, int high);
  int integer_or(const char* key, int fallback, int low, int high);
  double number_or(const char* key, double fallback, double low, double high);
  bool boolean_or(const char* key, bool fallback);
  std::string string_or(const char* key, const std::string& fallback);
  // A list of whole numbers, or one of them; empty if missing.
  std::vector<int> integers_or_empty(const char* key, int low, int high);

  // Records "FILE: KEY WHAT" unless something was recorded before.
  void problem(const char* key, const std::string& what, Code code = Code::invalid);
  void adopt(const Status& status);  // records another reader's problem
  Status status() const;

 private:
  const nlohmann::json& object_;
  std::string file_;
  Error error_;
};

}  // namespace asap
