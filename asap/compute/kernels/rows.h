// Row-wise kernels: softmax over key blocks, norms, rotary embedding, conversions. For kernels.cc
// only.
#pragma once

#include "asap/compute/kernels/table.h"
#include "asap/compute/kernels/vec.h"

namespace asap {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Scores of keys outside [hidden, visible) become -inf. Only lanes of the row's own counts: what
// lies beyond may be anything.
ASAP_INLINE V masked(const float* s, int key, int hidden, int visible) {
  const V v = load(s + key);
  if (key >= hidden && key + kWidth <= visible) return v;
  const VI at = lanes() + key;
  const V shown = at < VI{} + visible ? v : broadcast(kMinusInfinity);
  return at < VI{} + hidden ? broadcast(kMinusInfinity) : shown;
}

// fn(key, scores) for the vectors of row r.
template <typename Fn>
ASAP_INLINE void for_scores(const SoftmaxArgs& a, int r, const Fn& fn) {
  const float* s = a.s + r * kKeyBlock;
  const int hidden = a.hidden == nullptr ? 0 : a.hidden[r];
  const int visible = a.visible[r];
  if (hidden <= a.begin && visible >= a.end) [[likely]] {
#pragma GCC unroll 4
    for (int key = a.begin; key < a.end; key += kWidth) fn(key, load(s + key));
  } else {
    for (int key = a.begin; key < a.end; key += kWidth) fn(key, masked(s, key, hidden, visible));
  }
}

// New maxima into a.alpha, then max and alpha = 2^(old - new), a vector of rows at a time. A row of
// which nothing counts keeps its maximum, and gets alpha = 1.
ASAP_INLINE void update_maxima(const SoftmaxArgs& a) {
  for (int r = 0; r < a.rows; ++r) {
    V most = broadcast(kMinusInfinity);
    for_scores(a, r, [&](int, V s) ASAP_INLINE_LAMBDA { most = max(most, s); });
    const float block = reduce_max(most);
    a.alpha[r] = block > a.max[r] ? block : a.max[r];
  }
  for (int r = 0; r < a.rows; r += kWidth) {
    const int left = a.rows - r;
    const bool whole = left >= kWidth;
    const V after = whole ? load(a.alpha + r) : load_part(a.alpha + r, left);
    const V before = whole ? load(a.max + r) : load_part(a.max + r, left);
    const V alpha = exp2(before - after);
    if (whole) {
      store(a.max + r, after);
      store(a.alpha + r, alpha);
    } else {
      store_part(a.max + r, after, left);
      store_part(a.alpha + r, alpha, left);
    }
  }
}

void softmax(const SoftmaxArgs& a) {
  update_maxima(a);
  for (int r = 0; r < a.rows; ++r) {
    float* to = a.s + r * kKeyBlock;
    const V most = broadcast(a.max[r]);
    V sum = {};
    for_scores(a, r, [&](int key, V s) ASAP_INLINE_LAMBDA {
      const V p = exp2_below(s - most);
      store(to + key, p);
      sum += p;
    });
    a.sum[r] = a.sum[r] * a.alpha[r] + reduce_add(sum);
  }
}

void scale_rows(const float* x, int64_t ldx, const float* scale, int rows, int width, float* y,
                int64_t ldy) {
  for (int r = 0; r < rows; ++r, x += ldx, y += ldy) {
    const V factor = broadcast(scale[r]);
    int i = 0;
    for (; i + kWidth <= width; i += kWidth) store(y + i, load(x + i) * factor + V{});
    if (i < width) store_part(y + i, load_part(x + i, width - i) * factor + V{}, width - i);
  }
}

void scale(const float* x, float factor, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(y + i, load(x + i) * broadcast(factor));
  for (; i < count; ++i) y[i] = x[i] * factor;
}

typedef float V4 __attribute__((vector_size(16)));
typedef float V4m __attribute__((vector_size(16), aligned(1), may_alias));

// Blocks of 4x4: four loads, eight shuffles, four stores.
void transpose(const float* x, int64_t ldx, int width, float* panel) {
  constexpr int kC = kTileColumns;
  for (int j = 0; j < kPanel; j += 4) {
    float* tile = panel + int64_t{j / kC} * width * kC + j % kC;
    for (int i = 0; i < width; i += 4) {
      const float* from = x + j * ldx + i;
      const V4 a = *reinterpret_cast<const V4m*>(from);
      const V4 b = *reinterpret_cast<const V4m*>(from + ldx);
      const V4 c = *reinterpret_cast<const V4m*>(from + 2 * ldx);
      const V4 d = *reinterpret_cast<const V4m*>(from + 3 * ldx);
      const V4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const V4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const V4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
      const V4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      float* to = tile + i * kC;
      *reinterpret_cast<V4m*>(to) = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
      *reinterpret_cast<V4m*>(to + kC) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
      *reinterpret_cast<V4m*>(to + 2 * kC) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
      *reinterpret_cast<V4m*>(to + 3 * kC) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
    }
  }
}

void pack_columns(const float* x, int64_t ldx, int rows, int width, float* out, int64_t ld) {
  for (int column = 0; column < width; column += kTileColumns, out += ld * kTileColumns) {
    for (int r = 0; r < rows; ++r) {
      const float* from = x + r * ldx + column;
      store(out + r * kTileColumns, load(from));
      store(out + r * kTileColumns + kWidth, load(from + kWidth));
    }
  }
}

void relu_sum(const float* s, const float* w, int heads, float* scores) {
  for (int key = 0; key < kKeyBlock; key += kWidth) {
    V sum = {};
    for (int h = 0; h < heads; ++h) {
      sum = fma(broadcast(w[h]), max(load(s + h * kKeyBlock + key), V{}), sum);
    }
    store(scores + key, sum);
  }
}

// Σ f(x[i]) with lane i % kWidth taking element i; lanes past `width` take f(0) = 0.
template <typename Fn>
ASAP_INLINE float sum_of(const float* x, int width, Fn f) {
  V sum = {};
  int i = 0;
  for (; i + kWidth <= width; i += kWidth) sum = f(load(x + i), sum);
  if (i < width) sum = f(load_part(x + i, width - i), sum);
  return reduce_add(sum);
}

ASAP_INLINE float inverse_root(float x) {
  return 1.0f / __builtin_sqrtf(x);
}

void rms_norm(const float* x, int width, const float* w, float eps, float* y) {
  const float squares = sum_of(x, width, [](V v, V sum) { return fma(v, v, sum); });
  const float factor = inverse_root(squares / static_cast<float>(width) + eps);
  const V scale_all = broadcast(factor);
  int i = 0;
  for (; i + kWidth <= width; i += kWidth) store(y + i, load(x + i) * scale_all * load(w + i));
  for (; i < width; ++i) y[i] = x[i] * factor * w[i];
}

void layer_norm(const float* x, int width, const float* w, const float* b, float eps, float* y) {
  const float n = static_cast<float>(width);
  const float mean = sum_of(x, width, [](V v, V sum) { return v + sum; }) / n;
  float squares = 0;
  for (int i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float factor = inverse_root(squares / n + eps);
  for (int i = 0; i < width; ++i) y[i] = (x[i] - mean) * factor * w[i] + b[i];
}

void rope(float* x, int dim, bool interleaved, const float* angles) {
  const int half = dim / 2;
  const int stride = interleaved ? 2 : 1;
  float* first = x;
  float* second = interleaved ? x + 1 : x + half;
  for (int j = 0; j < half; ++j) {
    const float cosine = angles[2 * j];
    const float sine = angles[2 * j + 1];
    const float a = first[j * stride];
    const float b = second[j * stride];
    first[j * stride] = a * cosine - b * sine;
    second[j * stride] = b * cosine + a * sine;
  }
}

void narrow(const float* x, int64_t count, uint16_t* y) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store_bf16(y + i, load(x + i));
  if (i == count) return;
  uint16_t buffer[kWidth];
  store_bf16(buffer, load_part(x + i, static_cast<int>(count - i)));
  for (int j = 0; i < count; ++i, ++j) y[i] = buffer[j];
}

ASAP_INLINE float widen_one(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float out;
  __builtin_memcpy(&out, &bits, sizeof(out));
  return out;
}

void widen(const uint16_t* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(y + i, load_bf16(x + i));
  for (; i < count; ++i) y[i] = widen_one(x[i]);
}

void add(const float* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(y + i, load(y + i) + load(x + i));
  for (; i < count; ++i) y[i] += x[i];
}

void add_bf16(const uint16_t* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(y + i, load(y + i) + load_bf16(x + i));
  for (; i < count; ++i) y[i] += widen_one(x[i]);
}

}  // namespace
}  // namespace asap
