// Shared by the tests of this folder: the golden cases of tests/golden/templates.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <fstream>
#include <sstream>
#include <string>

#include "asap/chat/json.h"
#include "asap/chat/value.h"

namespace asap::jinja::test {

inline constexpr int64_t kNow = 1'754'000'000;  // as reference.py has it; Unix time, seconds

// The cases show the time in UTC.
inline void use_utc() {
  setenv("TZ", "UTC", 1);
  tzset();
}

inline std::string golden_text(const std::string& name) {
  const std::string path = std::string(ASAP_SOURCE_DIR) + "/tests/golden/templates/" + name;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file) << path;
  return text.str();
}

inline Value golden(const std::string& name) {
  auto value = parse_json(golden_text(name));
  EXPECT_TRUE(value) << name << ": " << value.error().message;
  return value.value_or(Value());
}

inline const Value& field(const Value& object, std::string_view name) {
  static const Value kMissing;
  const Value* found = object.dict().find(name);
  EXPECT_TRUE(found) << name;
  return found ? *found : kMissing;
}

// The variables of one conversation of conversations.json.
inline const Value& conversation(const Value& conversations, std::string_view name) {
  for (const Value& one : field(conversations, "cases").sequence().items) {
    if (field(one, "name").as_string() == name) return field(one, "variables");
  }
  ADD_FAILURE() << "no conversation is named " << name;
  static const Value kNone = DictBuilder().finish();
  return kNone;
}

}  // namespace asap::jinja::test
