// JSON to values and back, exactly: integers of any length, the order of keys, and Python's
// json.dumps as the `tojson` filter of Hugging Face calls it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "asap/base/result.h"
#include "asap/chat/budget.h"
#include "asap/chat/value.h"

namespace asap::jinja {

inline constexpr int kMaxJsonDepth = 64;

// The message says where the text stops being JSON.
Result<Value> parse_json(std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; without: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Invalid: a value that JSON has no form for (undefined, an iterator).
Status append_json(const Value& value, const JsonStyle& style, std::string& out, Budget& budget);

}  // namespace asap::jinja
