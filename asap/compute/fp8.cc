#include "asap/compute/fp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr float kLargest = 448.0f;
constexpr float kFloor = 1e-4f;  // of a group's largest magnitude: a group of zeros has a scale

// The smallest power of two >= x, for normal x.
float power_of_two_above(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1 : 0);
  return std::bit_cast<float>(exponent << 23);
}

}  // namespace

float round_to_e4m3(float x) {
  // Ties to even, by the carry of an addition: in the mantissa for normal values; below 2^-6, where
  // neighbours are 2^-9 apart, in a float whose last bit is worth that.
  constexpr float kSubnormal = 0x1.8p14f;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits & 0x80000000u;
  const uint32_t magnitude = bits ^ sign;
  if (magnitude > 0x7F800000u) return x;  // NaN
  const float clamped = std::min(std::bit_cast<float>(magnitude), kLargest);
  const auto u = std::bit_cast<uint32_t>(clamped);
  const uint32_t normal = (u + 0x7FFFFu + (u >> 20 & 1u)) & 0xFFF00000u;
  const auto subnormal = std::bit_cast<uint32_t>((clamped + kSubnormal) - kSubnormal);
  return std::bit_cast<float>((clamped < 0x1p-6f ? subnormal : normal) | sign);
}

void fp8_round_trip(float* x, int n, int64_t ld, int width, bool power_of_two, int first) {
  for (int i = 0; i < n; ++i, x += ld) {
    for (int begin = 0, end = first; begin < width; begin = end, end += kFp8Group) {
      float* group = x + begin;
      const int size = std::min(end, width) - begin;
      float amax = kFloor;
      for (int j = 0; j < size; ++j) amax = std::max(amax, std::fabs(group[j]));
      const float least = amax * (1.0f / kLargest);
      const float scale = power_of_two ? power_of_two_above(least) : amax / kLargest;
      for (int j = 0; j < size; ++j) group[j] = round_to_e4m3(group[j] / scale) * scale;
    }
  }
}

void hadamard(float* x, int n, int64_t ld, int width) {
  CHECK(std::has_single_bit(static_cast<unsigned>(width)), "width {}", width);
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  for (int i = 0; i < n; ++i, x += ld) {
    for (int half = 1; half < width; half *= 2) {
      for (int block = 0; block < width; block += 2 * half) {
        for (int j = block; j < block + half; ++j) {
          const float a = x[j];
          const float b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
      }
    }
    for (int j = 0; j < width; ++j) x[j] *= scale;
  }
}

}  // namespace asap
