#include "asap/compute/fp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr int kGroup = 128;
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
  if (std::isnan(x)) return x;
  const float magnitude = std::min(std::fabs(x), kLargest);
  // The step between neighbours: 2^-9 below 2^-6, else an eighth of the power of two below.
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const float step = std::ldexp(1.0f, std::max(exponent - 1, -6) - 3);
  return std::copysign(std::nearbyint(magnitude / step) * step, x);
}

void fp8_round_trip(float* x, int n, int ld, int width) {
  for (int i = 0; i < n; ++i, x += ld) {
    for (int begin = 0; begin < width; begin += kGroup) {
      float* group = x + begin;
      const int size = std::min(kGroup, width - begin);
      float amax = kFloor;
      for (int j = 0; j < size; ++j) amax = std::max(amax, std::fabs(group[j]));
      const float scale = power_of_two_above(amax * (1.0f / kLargest));
      for (int j = 0; j < size; ++j) group[j] = round_to_e4m3(group[j] / scale) * scale;
    }
  }
}

void hadamard(float* x, int n, int ld, int width) {
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
