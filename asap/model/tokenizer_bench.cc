// Encoding and decoding speed in bytes per second, on prose and on the texts that are hard for BPE,
// for the tokenizers of the demo model and of tests/golden/tokenizers.
//
// With ASAP_TOKENIZER=DIR only the tokenizer of that model directory is measured.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "asap/base/check.h"
#include "asap/base/prng.h"
#include "asap/model/tokenizer.h"

namespace {

namespace fs = std::filesystem;

const fs::path kSource = ASAP_SOURCE_DIR;

// A golden whose tokenizer.json is packed.
asap::Result<asap::Tokenizer> load_packed(const fs::path& file) {
  const fs::path out = fs::temp_directory_path() / fmt::format("tokenizer_bench.{}", ::getpid());
  const std::string command = fmt::format("xz -dc '{}' > '{}'", file.string(), out.string());
  CHECK(std::system(command.c_str()) == 0, "{}", command);
  std::ostringstream text;
  text << std::ifstream(out, std::ios::binary).rdbuf();
  fs::remove(out);
  return asap::Tokenizer::parse(text.str(), "");
}

// The tokenizer of a directory, loaded when it is first asked for.
const asap::Tokenizer& tokenizer(const fs::path& directory) {
  static std::map<fs::path, asap::Tokenizer> loaded;
  const auto it = loaded.find(directory);
  if (it != loaded.end()) return it->second;
  const fs::path packed = directory / "tokenizer.json.xz";
  auto one = fs::exists(packed) ? load_packed(packed) : asap::Tokenizer::load(directory.string());
  CHECK(one.has_value(), "{}", one.error().message);
  return loaded.emplace(directory, *std::move(one)).first->second;
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

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

std::string repeated(const std::string& unit, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

void encode(benchmark::State& state, const fs::path& directory, const std::string& text) {
  const asap::Tokenizer& loaded = tokenizer(directory);
  for (auto _ : state) benchmark::DoNotOptimize(loaded.encode(text, false));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void decode(benchmark::State& state, const fs::path& directory, const std::string& text) {
  const asap::Tokenizer& loaded = tokenizer(directory);
  const std::vector<int32_t> ids = loaded.encode(text, false);
  for (auto _ : state) benchmark::DoNotOptimize(loaded.decode(ids, false));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void stream(benchmark::State& state, const fs::path& directory, const std::string& text) {
  const asap::Tokenizer& loaded = tokenizer(directory);
  const std::vector<int32_t> ids = loaded.encode(text, false);
  for (auto _ : state) {
    asap::StreamDecoder decoder(loaded, true);
    for (const int32_t id : ids) benchmark::DoNotOptimize(decoder.push(id));
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

void load(benchmark::State& state, const fs::path& directory) {
  for (auto _ : state) CHECK(asap::Tokenizer::load(directory.string()).has_value());
}

void add(const fs::path& directory) {
  constexpr size_t kMega = 1'000'000;
  const std::string name = directory.filename().string();
  const auto run = [&](const char* what, const auto& function, const std::string& text) {
    benchmark::RegisterBenchmark(fmt::format("{}/{}", name, what).c_str(), function, directory,
                                 text)
        ->Unit(benchmark::kMillisecond);
  };
  // English, as far as this repository holds any.
  std::ostringstream tale;
  tale << std::ifstream(kSource / "tools/demo_tale.txt").rdbuf();
  run("encode_tale_1m", encode, repeated(tale.str(), kMega));
  run("encode_prose_200", encode, prose(200));
  run("encode_prose_1m", encode, prose(kMega));
  run("encode_chinese_1m", encode, repeated("预填充服务把提示变成第一个词。", kMega));
  run("encode_one_letter_1m", encode, std::string(kMega, 'a'));
  run("encode_spaces_1m", encode, std::string(kMega, ' '));
  run("encode_a_b_1m", encode, repeated("a b ", kMega));
  run("encode_digits_1m", encode, std::string(kMega, '7'));
  run("encode_no_spaces_1m", encode, without_spaces(prose(kMega)));
  run("decode_prose_1m", decode, prose(kMega));
  run("stream_prose_16k", stream, prose(16'000));
  if (!fs::exists(directory / "tokenizer.json.xz")) {
    benchmark::RegisterBenchmark(fmt::format("{}/load", name).c_str(), load, directory)
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* directory = std::getenv("ASAP_TOKENIZER"); directory != nullptr) {
    add(directory);
  } else {
    add(kSource / "models/asap-tiny-moe");
    for (const char* name : {"bytelevel_gpt2", "bytelevel_split", "deepseek_v3", "gptoss", "qwen3",
                             "spm_metaspace", "spm_prepend", "tiktoken_kimi"}) {
      add(kSource / "tests/golden/tokenizers" / name);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
