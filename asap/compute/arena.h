// Arena: private memory for packed weights, from anonymous mappings with transparent huge pages
// (shared memory gets none, see docs/performance.md). Blocks are 64-byte aligned and live as long
// as the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace asap {

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zeroed. Without memory it calls the new-handler, if there is one, then aborts: sizes were
  // checked before (runtime/memory_plan.h).
  std::byte* allocate(uint64_t bytes);
  uint64_t used() const { return used_; }

 private:
  struct Chunk {
    std::byte* base;
    uint64_t size;
  };
  std::vector<Chunk> chunks_;
  uint64_t chunk_used_ = 0;
  uint64_t used_ = 0;
};

}  // namespace asap
