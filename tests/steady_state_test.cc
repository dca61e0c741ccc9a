// What a layer costs beside its arithmetic: in steady state, the agents take nothing from the heap.
// Counted over whole batches of models of two depths: what differs is the layers' doing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "asap/compute/ops.h"
#include "asap/runtime/clock.h"
#include "asap/runtime/layer_rig.h"
#include "asap/transport/link_shm.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Not inlined: the compiler would see free() of what it thinks its own operator new returned.
__attribute__((noinline)) void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
__attribute__((noinline)) void* operator new(size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto unit = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return memory;
  std::abort();
}
__attribute__((noinline)) void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace asap {
namespace {

struct Shape {
  const char* preset;
  const char* overrides;
};

const Shape kShapes[] = {
    {"qwen3-30b-a3b", R"("hidden_size": 128, "head_dim": 32, "num_attention_heads": 4,
      "num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 64, "intermediate_size": 64, "vocab_size": 512)"},
    {"gpt-oss-20b", R"("hidden_size": 128, "head_dim": 32, "num_attention_heads": 4,
      "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
      "intermediate_size": 64, "vocab_size": 512, "quantization_config": null)"},
    {"deepseek-v3.2", R"("hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
      "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
      "v_head_dim": 32, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1,
      "topk_group": 1, "moe_intermediate_size": 64, "intermediate_size": 64, "vocab_size": 512,
      "first_k_dense_replace": 1, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 16,
      "quantization_config": null)"},
};

// Allocations of the third batch of 100 tokens.
int64_t allocations_of_a_batch(const Shape& shape, int layers) {
  LayerRig::Options options;
  options.config.preset = shape.preset;
  options.config.hf_overrides = std::string("{") + shape.overrides + "}";
  options.config.num_hidden_layers = layers;
  options.config.load_format = "dummy";
  options.config.threads_per_device = 2;
  options.config.num_moe_ranks = 1;
  options.max_tokens = options.max_context = 128;
  options.max_sequences = 2;
  options.clock = &monotonic_now;
  Platform platform;
  platform.make_ops = [](const std::string&, const std::string&, Team& team) {
    return make_ops_cpu(team);
  };
  platform.make_process_link = [](const std::string&, const Geometry& geometry,
                                  const std::vector<int>& fds) {
    return make_link_shm(geometry, fds);
  };
  auto rig = LayerRig::open(options, platform);
  EXPECT_TRUE(rig) << rig.error().message;
  if (!rig) return -1;
  const RigSequence batch[] = {{60, 0}, {40, 20}};
  (*rig)->run(batch);
  (*rig)->run(batch);
  const int64_t before = allocations.load();
  EXPECT_GT(before, 100) << "nothing is counted";
  (*rig)->run(batch);
  return allocations.load() - before;
}

class SteadyState : public testing::TestWithParam<Shape> {};

TEST_P(SteadyState, ALayerTakesNothingFromTheHeap) {
  EXPECT_EQ(allocations_of_a_batch(GetParam(), 8), allocations_of_a_batch(GetParam(), 4));
}

INSTANTIATE_TEST_SUITE_P(Models, SteadyState, testing::ValuesIn(kShapes));

}  // namespace
}  // namespace asap
