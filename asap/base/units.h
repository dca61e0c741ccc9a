// Units and element types that every layer shares.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace asap {

// A length of time, in nanoseconds.
struct Duration {
  int64_t ns = 0;
  static constexpr Duration micros(int64_t us) { return {us * 1000}; }
  static constexpr Duration millis(int64_t ms) { return {ms * 1'000'000}; }
  static constexpr Duration seconds(double s) { return {static_cast<int64_t>(s * 1e9)}; }
  constexpr double to_seconds() const { return static_cast<double>(ns) * 1e-9; }
  constexpr double to_millis() const { return static_cast<double>(ns) * 1e-6; }
  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration other) const { return {ns + other.ns}; }
  constexpr Duration operator-(Duration other) const { return {ns - other.ns}; }
};

// A point of the monotonic (or virtual) clock. Policies and agents receive it; they never read a
// clock.
struct Instant {
  int64_t ns = 0;
  static constexpr Instant never() { return {INT64_MAX}; }
  constexpr auto operator<=>(const Instant&) const = default;
  constexpr Instant operator+(Duration d) const { return {ns + d.ns}; }
  constexpr Instant operator-(Duration d) const { return {ns - d.ns}; }
  constexpr Duration operator-(Instant other) const { return {ns - other.ns}; }
};

// Element type of a stored tensor, a cache or a row on the wire. MXFP4 exists in stored tensors
// only: two 4-bit values per byte, 32 values share a power-of-two scale. E8M0 is a table of such
// scales. Int8 has one scale per row.
enum class DType : uint8_t {
  f32 = 0,
  bf16 = 1,
  f16 = 2,
  f8_e4m3 = 3,
  mxfp4 = 4,
  f8_e8m0 = 5,
  i8 = 6
};

constexpr size_t dtype_bits(DType type) {
  switch (type) {
    case DType::f32: return 32;
    case DType::bf16:
    case DType::f16: return 16;
    case DType::f8_e4m3:
    case DType::f8_e8m0:
    case DType::i8: return 8;
    case DType::mxfp4: return 4;
  }
  return 0;
}

// Of types whose elements are whole bytes; 0 for MXFP4.
constexpr size_t dtype_bytes(DType type) {
  return dtype_bits(type) / 8;
}

constexpr std::string_view dtype_name(DType type) {
  switch (type) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    case DType::f8_e4m3: return "float8_e4m3";
    case DType::mxfp4: return "mxfp4";
    case DType::f8_e8m0: return "float8_e8m0";
    case DType::i8: return "int8";
  }
  return "?";
}

// Part `index` of `n` things cut into `parts` contiguous, nearly equal parts: [begin, end). Used
// for the tokens of a group's ranks, the experts of expert ranks and the rows of a vocabulary, so
// that all sides agree on one formula.
struct Part {
  int begin = 0;
  int end = 0;
  constexpr int size() const { return end - begin; }
};
constexpr Part part_of(int n, int parts, int index) {
  return {static_cast<int>(static_cast<int64_t>(n) * index / parts),
          static_cast<int>(static_cast<int64_t>(n) * (index + 1) / parts)};
}

}  // namespace asap
