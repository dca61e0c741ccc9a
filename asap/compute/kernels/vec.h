// V: one vector of floats of the ISA that this file is compiled for. For kernels.cc only.
//
// GCC's vector types give arithmetic, comparisons and selects in one notation for all widths; the
// few operations without a notation (fused multiply-add, max, reductions) are intrinsics. The
// scalar table uses four-wide vectors, which every machine can lower, and multiplies and adds in
// two roundings: software fma would be a hundred times slower.
#pragma once

#include <cstdint>

#if ASAP_VECTOR > 4
#include <immintrin.h>
#endif

namespace asap {
namespace {

constexpr int kWidth = ASAP_VECTOR;       // floats of a vector
constexpr int kTileColumns = 2 * kWidth;  // of a GEMM tile

typedef float V __attribute__((vector_size(4 * ASAP_VECTOR)));
typedef int32_t VI __attribute__((vector_size(4 * ASAP_VECTOR)));
typedef uint32_t VU __attribute__((vector_size(4 * ASAP_VECTOR)));
typedef uint16_t VH __attribute__((vector_size(2 * ASAP_VECTOR)));
// The same at any address, aliasing anything.
typedef float Vm __attribute__((vector_size(4 * ASAP_VECTOR), aligned(1), may_alias));
typedef int32_t VIm __attribute__((vector_size(4 * ASAP_VECTOR), aligned(1), may_alias));
typedef uint32_t VUm __attribute__((vector_size(4 * ASAP_VECTOR), aligned(1), may_alias));
typedef uint16_t VHm __attribute__((vector_size(2 * ASAP_VECTOR), aligned(1), may_alias));

#define ASAP_INLINE static inline __attribute__((always_inline))
#define ASAP_INLINE_LAMBDA __attribute__((always_inline))

ASAP_INLINE V load(const float* p) {
  return *reinterpret_cast<const Vm*>(p);
}
ASAP_INLINE void store(float* p, V v) {
  *reinterpret_cast<Vm*>(p) = v;
}
ASAP_INLINE VU load_bits(const void* p) {
  return *reinterpret_cast<const VUm*>(p);
}
ASAP_INLINE V as_float(VU bits) {
  return reinterpret_cast<V>(bits);
}
ASAP_INLINE VU as_bits(V v) {
  return reinterpret_cast<VU>(v);
}

// bf16 pairs (even element in the low half of each word) to the floats of one parity.
ASAP_INLINE V even_of(VU pairs) {
  return as_float(pairs << 16);
}
ASAP_INLINE V odd_of(VU pairs) {
  return as_float(pairs & 0xFFFF0000u);
}

// The same from memory. With 16 registers a tile has none left for the pairs or for a mask between
// the two uses, so AVX2 reads both again; the loads cost nothing there.
ASAP_INLINE V even_at(const char* p) {
#if ASAP_VECTOR == 8
  V out;
  asm("vmovups %1, %0\n\tvpslld $16, %0, %0" : "=x"(out) : "m"(*reinterpret_cast<const VUm*>(p)));
  return out;
#else
  return even_of(load_bits(p));
#endif
}
ASAP_INLINE V odd_at(const char* p) {
#if ASAP_VECTOR == 8
  alignas(32) static const VU mask = VU{} + 0xFFFF0000u;
  V out;
  asm("vmovaps %1, %0\n\tvandps %2, %0, %0"
      : "=&x"(out)
      : "m"(mask), "m"(*reinterpret_cast<const VUm*>(p)));
  return out;
#else
  return odd_of(load_bits(p));
#endif
}

ASAP_INLINE V load_bf16(const uint16_t* p) {
  return as_float(__builtin_convertvector(*reinterpret_cast<const VHm*>(p), VU) << 16);
}
// Round to nearest even; a NaN stays a NaN.
ASAP_INLINE void store_bf16(uint16_t* p, V v) {
  const VU bits = as_bits(v);
  const VU rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const VU quiet = (bits >> 16) | 0x40u;
  const VU out = (bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded;
  *reinterpret_cast<VHm*>(p) = __builtin_convertvector(out, VH);
}

#if ASAP_VECTOR == 16
ASAP_INLINE V broadcast(float x) {
  return _mm512_set1_ps(x);
}
ASAP_INLINE V fma(V a, V b, V c) {
  return _mm512_fmadd_ps(a, b, c);
}
ASAP_INLINE V max(V a, V b) {
  return _mm512_max_ps(a, b);
}
ASAP_INLINE V min(V a, V b) {
  return _mm512_min_ps(a, b);
}
ASAP_INLINE float reduce_add(V v) {
  return _mm512_reduce_add_ps(v);
}
ASAP_INLINE float reduce_max(V v) {
  return _mm512_reduce_max_ps(v);
}
#elif ASAP_VECTOR == 8
ASAP_INLINE V broadcast(float x) {
  return _mm256_set1_ps(x);
}
ASAP_INLINE V fma(V a, V b, V c) {
  return _mm256_fmadd_ps(a, b, c);
}
ASAP_INLINE V max(V a, V b) {
  return _mm256_max_ps(a, b);
}
ASAP_INLINE V min(V a, V b) {
  return _mm256_min_ps(a, b);
}
ASAP_INLINE float reduce_add(V v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
ASAP_INLINE float reduce_max(V v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
#else
ASAP_INLINE V broadcast(float x) {
  return V{x, x, x, x};
}
ASAP_INLINE V fma(V a, V b, V c) {
  return a * b + c;
}
ASAP_INLINE V max(V a, V b) {
  return a > b ? a : b;
}
ASAP_INLINE V min(V a, V b) {
  return a < b ? a : b;
}
ASAP_INLINE float reduce_add(V v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}
ASAP_INLINE float reduce_max(V v) {
  const float a = v[0] > v[2] ? v[0] : v[2];
  const float b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}
#endif

// acc += a·b in one rounding, in place. The compiler copies and spills the accumulators of a tile
// when the intrinsic is used there (GCC 12); the instruction itself leaves it no choice.
ASAP_INLINE void fma_into(V& acc, V a, V b) {
#if ASAP_VECTOR == 16
  asm("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
#elif ASAP_VECTOR == 8
  asm("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b));
#else
  acc = fma(a, b, acc);
#endif
}

// Lane numbers 0, 1, 2, ...
ASAP_INLINE VI lanes() {
#if ASAP_VECTOR == 16
  return VI{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif ASAP_VECTOR == 8
  return VI{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return VI{0, 1, 2, 3};
#endif
}

// The first `count` < kWidth floats, the other lanes 0.
ASAP_INLINE V load_part(const float* p, int count) {
  float buffer[kWidth] = {};
  for (int i = 0; i < count; ++i) buffer[i] = p[i];
  return load(buffer);
}
ASAP_INLINE void store_part(float* p, V v, int count) {
  float buffer[kWidth];
  store(buffer, v);
  for (int i = 0; i < count; ++i) p[i] = buffer[i];
}

// 2^x for -126 <= x <= 127. x = n + f with |f| <= 1/2; a degree-6 polynomial in f (relative error
// < 2e-7, exact at f = 0), then n is added to the exponent.
ASAP_INLINE V exp2_in_range(V x) {
  const V magic =
      broadcast(12582912.0f);  // 1.5·2^23: adding it rounds to an integer in the low bits
  const V rounded = x + magic;
  const V f = x - (rounded - magic);
  V p = broadcast(1.535336188319500e-4f);
  p = fma(p, f, broadcast(1.339887440266574e-3f));
  p = fma(p, f, broadcast(9.618437357674640e-3f));
  p = fma(p, f, broadcast(5.550332471162809e-2f));
  p = fma(p, f, broadcast(2.402264791363012e-1f));
  p = fma(p, f, broadcast(6.931472028550421e-1f));
  p = fma(p, f, broadcast(1.0f));
  return as_float(as_bits(p) + (as_bits(rounded) << 23));
}

// 2^x for x <= 127: 0 below -126; a NaN stays one.
ASAP_INLINE V exp2_below(V x) {
  const V least = broadcast(-126.0f);
  const VI tiny = x < least;
  const V out = exp2_in_range(max(least, x));  // of a NaN, max gives its second operand
  return as_float(as_bits(out) & ~reinterpret_cast<VU>(tiny));
}

// 2^x: 0 below -126, at most 2^127.
ASAP_INLINE V exp2(V x) {
  const V most = broadcast(127.0f);
  return exp2_below(x > most ? most : x);
}

ASAP_INLINE V silu(V x) {
  const V one = broadcast(1.0f);
  return x / (one + exp2(x * broadcast(-1.44269504088896340736f)));
}

ASAP_INLINE V sigmoid(V x) {
  const V one = broadcast(1.0f);
  return one / (one + exp2(x * broadcast(-1.44269504088896340736f)));
}

}  // namespace
}  // namespace asap
