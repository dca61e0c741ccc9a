#include "asap/model/dummy_weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "asap/base/check.h"
#include "asap/base/prng.h"

namespace asap {

namespace {

constexpr uint64_t kChunkBytes = 256 * 1024;  // made at once
constexpr size_t kWords = 512;                // random words drawn at once

// What a byte range is filled with. `pattern` repeats every `width` bytes.
enum class Fill : uint8_t { pattern, f32, bf16, f16, f8_e4m3, random };

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return hash;
}

// Root mean square of the values that random MXFP4 codes stand for: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
constexpr double kMxfp4Rms = 2.926;
// Standard deviation of the FP8 codes below. Codes reach 3 of them, far from the largest, 448.
constexpr double kFp8Deviation = 32;

// The FP8 code closest to a positive value in [0.25, 240].
uint8_t f8_code(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);              // in [0.5, 1)
  const int eighths = static_cast<int>(std::lround(fraction * 16));  // in [8, 16]
  return static_cast<uint8_t>((exponent + 6) * 8 + eighths - 8);
}

// The code of each random byte: quantiles of a normal distribution. The quantile function comes
// from its inverse, by bisection.
std::array<uint8_t, 256> make_normal_codes() {
  std::array<uint8_t, 256> codes{};
  for (int i = 0; i < 128; ++i) {
    const double share = (i + 0.5) / 128;  // of |x| below the quantile
    double low = 0;
    double high = 8;
    for (int step = 0; step < 60; ++step) {
      const double middle = (low + high) / 2;
      (std::erf(middle / std::sqrt(2.0)) < share ? low : high) = middle;
    }
    const uint8_t code = f8_code(std::max(0.25, low * kFp8Deviation));
    codes[static_cast<size_t>(i)] = code;
    codes[static_cast<size_t>(i + 128)] = code | 0x80;
  }
  return codes;
}

uint16_t bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// The bits of `value` as an element of that type.
uint32_t bits_of(const std::string& dtype, float value) {
  if (dtype == "BF16") return bf16_bits(value);
  if (dtype == "F32") return std::bit_cast<uint32_t>(value);
  CHECK(value == 1.0f && dtype == "F16", "{} as {}", value, dtype);
  return 0x3C00;
}

uint64_t bytes_of_dtype(const std::string& dtype) {
  return dtype == "F32" ? 4 : dtype == "BF16" || dtype == "F16" ? 2 : 1;
}

// `values` from the bits of `words`, by type. Uniform with the wanted deviation where the type can
// express it.
void write_f32(std::span<const uint64_t> words, float deviation, std::byte* out) {
  std::array<int32_t, 2 * kWords> draws;
  std::array<float, 2 * kWords> values;
  std::memcpy(draws.data(), words.data(), words.size_bytes());
  const float scale = deviation * std::sqrt(3.0f) / 0x1.0p31f;
  const size_t n = words.size() * 2;
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(draws[i]) * scale;
  std::memcpy(out, values.data(), words.size_bytes());
}

void write_bf16(std::span<const uint64_t> words, float deviation, std::byte* out) {
  std::array<int16_t, 4 * kWords> draws;
  std::array<uint16_t, 4 * kWords> values;
  std::memcpy(draws.data(), words.data(), words.size_bytes());
  const float scale = deviation * std::sqrt(3.0f) / 0x1.0p15f;
  const size_t n = words.size() * 4;
  for (size_t i = 0; i < n; ++i) values[i] = bf16_bits(static_cast<float>(draws[i]) * scale);
  std::memcpy(out, values.data(), words.size_bytes());
}

// Random sign and fraction, and the one exponent that fits best: deviations are right within a
// factor of sqrt(2).
void write_f16(std::span<const uint64_t> words, float deviation, std::byte* out) {
  // Root mean square of a fraction in [1, 2): sqrt(7/3).
  const int exponent = static_cast<int>(std::lround(std::log2(deviation / std::sqrt(7.0 / 3))));
  const auto field = static_cast<uint64_t>(std::clamp(exponent + 15, 1, 30)) << 10;
  const uint64_t fields = field * 0x0001'0001'0001'0001ull;
  std::array<uint64_t, kWords> values;
  for (size_t i = 0; i < words.size(); ++i) {
    values[i] = (words[i] & 0x83FF'83FF'83FF'83FFull) | fields;
  }
  std::memcpy(out, values.data(), words.size_bytes());
}

void write_f8(std::span<const uint64_t> words, std::byte* out) {
  static const std::array<uint8_t, 256> codes = make_normal_codes();
  for (const uint64_t word : words) {
    uint64_t packed = 0;
    for (int i = 0; i < 64; i += 8) packed |= uint64_t{codes[(word >> i) & 0xFF]} << i;
    std::memcpy(out, &packed, sizeof(packed));
    out += sizeof(packed);
  }
}

float nearest_power_of_two(double value) {
  return static_cast<float>(std::exp2(std::lround(std::log2(value))));
}

}  // namespace

struct DummyWeights::Recipe {
  std::string dtype;
  Fill fill = Fill::pattern;
  uint32_t pattern = 0;  // of one element
  uint64_t width = 1;    // bytes of one element
  float deviation = 0;
};

// One tensor, made in chunks: threads that want different chunks do not wait for each other.
class DummyWeights::Tensor final : public LazyBytes {
 public:
  Tensor(const Recipe& recipe, uint64_t stream, uint64_t bytes)
      : recipe_(recipe),
        stream_(stream),
        bytes_(bytes),
        chunks_((bytes + kChunkBytes - 1) / kChunkBytes) {}

  uint64_t size() const override { return bytes_; }

  const std::byte* make(uint64_t begin, uint64_t count) override {
    CHECK(begin + count <= bytes_, "bytes [{}, {}) of {}", begin, begin + count, bytes_);
    std::byte* base = base_.load(std::memory_order_acquire);
    if (base == nullptr) base = allocate();
    const uint64_t end = count == 0 ? begin : begin + count;
    for (uint64_t chunk = begin / kChunkBytes; chunk * kChunkBytes < end; ++chunk) {
      make_chunk(chunk, base);
    }
    return base;
  }

  void release() {
    if (base_.load() == nullptr) return;
    memory_.reset();
    base_.store(nullptr);
    for (auto& chunk : chunks_) chunk.store(kMissing);
  }

 private:
  enum State : uint8_t { kMissing, kBusy, kThere };

  std::byte* allocate() {
    const std::lock_guard lock(mutex_);
    if (base_.load() == nullptr) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(padded());
      base_.store(memory_.get(), std::memory_order_release);
    }
    return base_.load();
  }

  // Whole words, so that the last one needs no care.
  uint64_t padded() const { return (bytes_ + 7) / 8 * 8; }

  void make_chunk(uint64_t chunk, std::byte* base) {
    std::atomic<uint8_t>& state = chunks_[chunk];
    uint8_t seen = state.load(std::memory_order_acquire);
    if (seen == kThere) return;
    if (seen == kMissing && state.compare_exchange_strong(seen, kBusy)) {
      const uint64_t begin = chunk * kChunkBytes;
      write(begin, std::min(padded() - begin, kChunkBytes), base + begin);
      state.store(kThere, std::memory_order_release);
      state.notify_all();
      return;
    }
    state.wait(kBusy, std::memory_order_acquire);
  }

  // Word i of the tensor depends on the stream and i alone.
  void write(uint64_t begin, uint64_t bytes, std::byte* out) const {
    if (recipe_.fill == Fill::pattern) {
      write_pattern(bytes, out);
      return;
    }
    std::array<uint64_t, kWords> words;
    for (uint64_t at = 0; at < bytes; at += kWords * 8) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(kWords, (bytes - at) / 8));
      const uint64_t first = (begin + at) / 8;
      for (size_t i = 0; i < n; ++i) words[i] = mix(stream_ + first + i);
      const std::span<const uint64_t> drawn(words.data(), n);
      switch (recipe_.fill) {
        case Fill::f32: write_f32(drawn, recipe_.deviation, out + at); break;
        case Fill::bf16: write_bf16(drawn, recipe_.deviation, out + at); break;
        case Fill::f16: write_f16(drawn, recipe_.deviation, out + at); break;
        case Fill::f8_e4m3: write_f8(drawn, out + at); break;
        default: std::memcpy(out + at, words.data(), n * 8);
      }
    }
  }

  void write_pattern(uint64_t bytes, std::byte* out) const {
    uint64_t word = 0;
    for (uint64_t i = 0; i < 8; i += recipe_.width) word |= uint64_t{recipe_.pattern} << (8 * i);
    for (uint64_t at = 0; at < bytes; at += 8) std::memcpy(out + at, &word, sizeof(word));
  }

  const Recipe recipe_;
  const uint64_t stream_;
  const uint64_t bytes_;
  std::mutex mutex_;
  std::unique_ptr<std::byte[]> memory_;
  std::atomic<std::byte*> base_{nullptr};
  std::vector<std::atomic<uint8_t>> chunks_;  // State
};

DummyWeights::DummyWeights(DummyFormat format) : format_(std::move(format)) {}
DummyWeights::~DummyWeights() = default;

bool DummyWeights::offers(const std::string& name) const {
  if (tensors_.contains(name)) return true;
  return format_.stored == DummyFormat::Stored::mxfp4 && name.ends_with("_blocks");
}

// Checkpoints leave embedding, head, routers and the indexer's head weights unquantised.
bool DummyWeights::quantised(const std::string& name, const std::vector<int64_t>& shape) const {
  if (format_.stored != DummyFormat::Stored::fp8 || shape.size() < 2) return false;
  for (const char* kept : {"embed_tokens.weight", "lm_head.weight", ".gate.weight", "router.weight",
                           "_gate.weight", "weights_proj.weight", "bias"}) {
    if (name.ends_with(kept)) return false;
  }
  return std::none_of(format_.kept.begin(), format_.kept.end(), [&](const std::string& part) {
    return ("." + name + ".").find("." + part + ".") != std::string::npos;
  });
}

DummyWeights::Recipe DummyWeights::recipe_of(const std::string& name,
                                             const std::vector<int64_t>& shape) const {
  const auto deviation_of = [](int64_t fan_in) {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, fan_in))));
  };
  const std::string scale_suffix = "_scale_inv";
  if (name.ends_with(scale_suffix)) {
    const auto weight = tensors_.find(name.substr(0, name.size() - scale_suffix.size()));
    CHECK(weight != tensors_.end(), "{} without its weight", name);
    const double scale = deviation_of(weight->second.shape.back()) / kFp8Deviation;
    const float value =
        format_.power_of_two_scales ? nearest_power_of_two(scale) : static_cast<float>(scale);
    return {"F32", Fill::pattern, std::bit_cast<uint32_t>(value), 4, 0};
  }
  if (name.ends_with("_blocks")) return {"U8", Fill::random, 0, 1, 0};
  if (name.ends_with("_scales")) {
    const double scale = deviation_of(shape.back() * 32) / kMxfp4Rms;
    return {"U8", Fill::pattern, static_cast<uint32_t>(127 + std::lround(std::log2(scale))), 1, 0};
  }
  const std::string& dtype = format_.dtype;
  if (name.ends_with("bias") || name.ends_with("sinks")) return {dtype, Fill::pattern, 0, 1, 0};
  if (shape.size() < 2) {
    return {dtype, Fill::pattern, bits_of(dtype, 1.0f), bytes_of_dtype(dtype), 0};
  }
  // A lookup adds nothing up: its rows are as large as normed ones.
  const bool lookup = name.ends_with("embed_tokens.weight");
  const float deviation = lookup ? 1.0f : deviation_of(shape.back());
  if (quantised(name, shape)) return {"F8_E4M3", Fill::f8_e4m3, 0, 1, deviation};
  const Fill fill = dtype == "F32" ? Fill::f32 : dtype == "F16" ? Fill::f16 : Fill::bf16;
  return {dtype, fill, 0, bytes_of_dtype(dtype), deviation};
}

const StoredTensor* DummyWeights::find(const std::string& name, const std::vector<int64_t>& shape) {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return &found->second;
  const Recipe recipe = recipe_of(name, shape);
  StoredTensor tensor;
  tensor.dtype = recipe.dtype;
  tensor.shape = shape;
  tensor.bytes = bytes_of_dtype(recipe.dtype);
  for (const int64_t size : shape) tensor.bytes *= static_cast<uint64_t>(size);
  made_.push_back(
      std::make_unique<Tensor>(recipe, mix(format_.seed ^ hash_of(name)), tensor.bytes));
  tensor.data = TensorBytes(*made_.back());
  return &tensors_.emplace(name, std::move(tensor)).first->second;
}

void DummyWeights::release() {
  for (const auto& tensor : made_) tensor->release();
}

}  // namespace asap
