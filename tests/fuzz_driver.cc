// Runs a fuzz target without libFuzzer: every file of a folder as it is, then for one second
// mutations of them, from a fixed seed. What libFuzzer finds in hours this does not; it keeps
// targets and their corpus working on every machine.
//   NAME_fuzz FOLDER [SECONDS]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "asap/base/prng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

// A few edits: bits, bytes, cut pieces, repeated pieces, pieces of another input.
std::string mutated(std::string text, const std::string& other, asap::Prng& prng) {
  for (uint64_t edits = 1 + prng.below(4); edits > 0; --edits) {
    const size_t at = prng.below(text.size() + 1);
    const size_t length = prng.below(std::min<size_t>(text.size() - at, 64) + 1);
    switch (prng.below(5)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << prng.below(8)));
        break;
      case 1: text.insert(at, 1, static_cast<char>(prng.below(256))); break;
      case 2: text.erase(at, length); break;
      case 3: text.insert(at, text.substr(at, length)); break;
      default: {
        const size_t from = prng.below(other.size() + 1);
        text.insert(at, other.substr(from, prng.below(64)));
      }
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> inputs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(argc > 1 ? argv[1] : ".", error)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "fuzz: no inputs in %s\n", argc > 1 ? argv[1] : "(no folder given)");
    return 1;
  }
  for (const std::string& input : inputs) run(input);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1.0;
  const auto start = std::chrono::high_resolution_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::high_resolution_clock::now() - start).count();
  };
  asap::Prng prng(1);
  long runs = 0;
  for (; elapsed() < seconds; ++runs) {
    const std::string& input = inputs[prng.below(inputs.size())];
    run(mutated(input, inputs[prng.below(inputs.size())], prng));
  }
  std::printf("%zu inputs, %ld mutations\n", inputs.size(), runs);
  return 0;
}
