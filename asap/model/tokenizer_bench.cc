// Encoding and decoding speed in bytes per second, on prose and on the texts that are hard for BPE.
//
// With ASAP_TOKENIZER=DIR the tokenizer of that model directory is measured, else the one of the
// demo model.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "asap/base/check.h"
#include "asap/base/prng.h"
#include "asap/model/tokenizer.h"

namespace {

const asap::Tokenizer& tokenizer() {
  static const auto loaded = [] {
    const char* directory = std::getenv("ASAP_TOKENIZER");
    return asap::Tokenizer::load(directory != nullptr ? directory
                                                      : ASAP_SOURCE_DIR "/models/asap-tiny-moe");
  }();
  CHECK(loaded.has_value(), "{}", loaded.error().message);
  return *loaded;
}

// Words of a made-up language with the skew of a real one: word k comes up about as often as 1/k.
std::string prose(size_t bytes) {
  constexpr const char* kSyllables[] = {"the", "ing", "er",  "an", "ou", "st",   "re", "al",
                                        "ti",  "com", "pro", "ly", "en", "ment", "un", "s"};
  asap::Prng random(1);
  std::string out;
  while (out.size() < bytes) {
    const double skew = random.uniform();
    uint64_t word = asap::mix(static_cast<uint64_t>(20000.0 * skew * skew * skew));
    for (uint64_t i = 0, parts = 1 + word % 4; i < parts; ++i) {
      word = asap::mix(word);
      out += kSyllables[word % std::size(kSyllables)];
    }
    out += random.below(12) == 0 ? (random.below(3) == 0 ? ".\n" : ", ") : " ";
  }
  return out;
}

std::string repeated(const std::string& unit, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

void encode(benchmark::State& state, const std::string& text) {
  const asap::Tokenizer& loaded = tokenizer();
  for (auto _ : state) benchmark::DoNotOptimize(loaded.encode(text, false));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void decode(benchmark::State& state, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer().encode(text, false);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer().decode(ids, false));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void stream(benchmark::State& state, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer().encode(text, false);
  for (auto _ : state) {
    asap::StreamDecoder decoder(tokenizer(), true);
    for (const int32_t id : ids) benchmark::DoNotOptimize(decoder.push(id));
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

constexpr size_t kMega = 1'000'000;

BENCHMARK_CAPTURE(encode, prose_200, prose(200));
BENCHMARK_CAPTURE(encode, prose_16k, prose(16'000));
BENCHMARK_CAPTURE(encode, prose_1m, prose(kMega));
BENCHMARK_CAPTURE(encode, chinese_1m, repeated("预填充服务把提示变成第一个词。", kMega));
BENCHMARK_CAPTURE(encode, one_letter_1m, std::string(kMega, 'a'));
BENCHMARK_CAPTURE(encode, spaces_1m, std::string(kMega, ' '));
BENCHMARK_CAPTURE(encode, digits_1m, std::string(kMega, '7'));
BENCHMARK_CAPTURE(decode, prose_1m, prose(kMega));
BENCHMARK_CAPTURE(stream, prose_16k, prose(16'000));

}  // namespace

BENCHMARK_MAIN();
