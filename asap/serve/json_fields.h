// The fields of a request's JSON object: read with their types and ranges, refused by name.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "asap/serve/http_error.h"

namespace asap {

using Checked = tl::expected<void, ApiError>;

inline constexpr int kMaxJsonDepth = 64;
inline constexpr double kLargestNumber = std::numeric_limits<double>::max();

// Returns the refusal of a Checked to the caller, or goes on.
#define ASAP_CHECKED(expression)                                   \
  do {                                                             \
    if (auto checked = (expression); !checked) {                   \
      return tl::unexpected<ApiError>(std::move(checked).error()); \
    }                                                              \
  } while (false)

// A 400 about the field `param`.
template <typename... Args>
tl::unexpected<ApiError> bad(std::string_view param, fmt::format_string<Args...> format,
                             Args&&... args) {
  return tl::unexpected<ApiError>(
      ApiError{400, fmt::format(format, std::forward<Args>(args)...), std::string(param)});
}

// What came, for a message: kind and, if short, value ("string \"abc\"", "array").
std::string describe(const nlohmann::json& value);

// The body as an object, or a refusal that says where it is none. Never throws.
tl::expected<nlohmann::json, ApiError> parse_object(std::string_view body);

// `null` counts as absent, as clients send it for "default". Readers leave `out` alone then.
class Fields {
 public:
  using Json = nlohmann::json;
  explicit Fields(const Json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(std::string_view name) const;
  Checked boolean(std::string_view name, bool& out) const;
  // Integers may also come as 16.0, as some languages have no other numbers.
  Checked integer(std::string_view name, int64_t low, int64_t high, int64_t& out) const;
  Checked number(std::string_view name, double low, double high, double& out) const;
  Checked string(std::string_view name, std::string& out) const;
  // Of token ids in [0, vocab), at most so many.
  Checked ids(std::string_view name, int vocab, size_t most, std::vector<int32_t>& out) const;

  tl::unexpected<ApiError> wrong(std::string_view name, const Json& value,
                                 std::string_view expected) const;

 private:
  const Json& object_;
  std::string prefix_;
};

// The field "model": absent, or the name that is served; 404 for another.
Checked check_model(const Fields& fields, const std::string& served);

// The ids of an array; errors name the place as `name`[i] and blame `param`.
tl::expected<std::vector<int32_t>, ApiError> parse_ids(const nlohmann::json& array,
                                                       std::string_view param,
                                                       std::string_view name, int vocab);

}  // namespace asap
