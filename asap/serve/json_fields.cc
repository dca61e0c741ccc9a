#include "asap/serve/json_fields.h"

#include <cmath>
#include <optional>

namespace asap {
namespace {

using Json = nlohmann::json;

// Byte position of the first bracket nested deeper than the limit. The parser itself does not
// recurse, but what is built from its output and later destroyed or walked might.
std::optional<size_t> too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> integral(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  // Above 2^53 a double no longer says which integer was meant.
  if (std::floor(number) != number || std::abs(number) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

std::string describe(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_array() || value.is_object()) return value.type_name();
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 40) + "...";
  return fmt::format("{} {}", value.type_name(), text);
}

tl::expected<Json, ApiError> parse_object(std::string_view body) {
  if (body.empty()) return bad("", "the request's body is empty: a JSON object is expected");
  if (const auto at = too_deep(body)) {
    return bad("", "invalid JSON at byte {}: nested deeper than {} levels", *at, kMaxJsonDepth);
  }
  Json object;
  try {
    object = Json::parse(body);
  } catch (const Json::parse_error& error) {
    // The library's message carries line, column and what it met; its own tag in front is of no use
    // to a client.
    const std::string_view what = error.what();
    const size_t tag = what.find("] ");
    return bad("", "invalid JSON at byte {}: {}", error.byte,
               tag == what.npos ? what : what.substr(tag + 2));
  } catch (const Json::exception& error) {
    return bad("", "invalid JSON: {}", error.what());  // a number beyond the range of doubles
  }
  if (!object.is_object()) {
    return bad("", "the request's body is {}: a JSON object is expected", describe(object));
  }
  return object;
}

const Json* Fields::find(std::string_view name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

Checked Fields::boolean(std::string_view name, bool& out) const {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_boolean()) return wrong(name, *value, "true or false");
  out = value->get<bool>();
  return {};
}

Checked Fields::integer(std::string_view name, int64_t low, int64_t high, int64_t& out) const {
  const Json* value = find(name);
  if (!value) return {};
  const auto number = integral(*value);
  if (!number || *number < low || *number > high) {
    return wrong(name, *value, fmt::format("an integer from {} to {}", low, high));
  }
  out = *number;
  return {};
}

Checked Fields::number(std::string_view name, double low, double high, double& out) const {
  const Json* value = find(name);
  if (!value) return {};
  const double got = value->is_number() ? value->get<double>() : NAN;
  if (!(got >= low && got <= high)) {
    return wrong(name, *value,
                 high == kLargestNumber ? fmt::format("a number of at least {}", low)
                                        : fmt::format("a number from {} to {}", low, high));
  }
  out = got;
  return {};
}

Checked Fields::string(std::string_view name, std::string& out) const {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_string()) return wrong(name, *value, "a string");
  out = value->get<std::string>();
  return {};
}

Checked Fields::ids(std::string_view name, int vocab, size_t most,
                    std::vector<int32_t>& out) const {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_array() || value->size() > most) {
    return wrong(name, *value, fmt::format("an array of at most {} token ids", most));
  }
  auto ids = parse_ids(*value, prefix_ + std::string(name), name, vocab);
  if (!ids) return tl::unexpected(std::move(ids).error());
  out = *std::move(ids);
  return {};
}

tl::unexpected<ApiError> Fields::wrong(std::string_view name, const Json& value,
                                       std::string_view expected) const {
  const std::string param = prefix_ + std::string(name);
  return bad(param, "{} is {}: expected {}", param, describe(value), expected);
}

Checked check_model(const Fields& fields, const std::string& served) {
  const Json* value = fields.find("model");
  if (!value) return {};
  if (!value->is_string()) return fields.wrong("model", *value, "a string");
  if (*value == served) return {};
  return tl::unexpected(ApiError{
      404,
      fmt::format("the model {} does not exist: this server has \"{}\"", value->dump(), served),
      "model"});
}

tl::expected<std::vector<int32_t>, ApiError> parse_ids(const Json& array, std::string_view param,
                                                       std::string_view name, int vocab) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& value : array) {
    if (!value.is_number_integer() || value < 0 || value >= vocab) {
      return bad(param, "{}[{}] is {}: expected a token id from 0 to {}", name, ids.size(),
                 describe(value), vocab - 1);
    }
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

}  // namespace asap
