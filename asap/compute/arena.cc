#include "asap/compute/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kChunk = uint64_t{16}
                            << 20;  // least size of a mapping; untouched pages are free
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kMaxBlock = uint64_t{1} << 46;  // beyond any address space: a size gone wrong

constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Maps `size` zeroed bytes (whole huge pages) that start at a huge-page border, so that the kernel
// can back all of them with huge pages: maps one huge page too many and trims both ends.
std::byte* map_chunk(uint64_t size) {
  void* raw = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  // As operator new does: whoever runs this process may end it with better words.
  if (const auto handler = std::get_new_handler(); raw == MAP_FAILED && handler) handler();
  CHECK(raw != MAP_FAILED, "no memory for {} bytes of weights or cache", size);
  auto* begin = static_cast<std::byte*>(raw);
  const uint64_t head =
      round_up(reinterpret_cast<uintptr_t>(raw), kHugePage) - reinterpret_cast<uintptr_t>(raw);
  if (head > 0) munmap(begin, head);
  munmap(begin + head + size, kHugePage - head);
  madvise(begin + head, size, MADV_HUGEPAGE);  // advice: a kernel without huge pages just says no
  return begin + head;
}

}  // namespace

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) munmap(chunk.base, chunk.size);
}

Arena::Arena(Arena&& other) noexcept {
  *this = std::move(other);
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(chunks_, other.chunks_);
  std::swap(chunk_used_, other.chunk_used_);
  std::swap(used_, other.used_);
  return *this;
}

std::byte* Arena::allocate(uint64_t bytes) {
  CHECK(bytes <= kMaxBlock, "a block of {} bytes", bytes);
  bytes = round_up(std::max<uint64_t>(bytes, 1), kAlignment);
  if (chunks_.empty() || bytes > chunks_.back().size - chunk_used_) {
    // Growing, so that ends of chunks that no block fits into stay a small part of the whole.
    const uint64_t grown = std::max(kChunk, used_ / 4);
    const uint64_t size = round_up(std::max(bytes, grown), kHugePage);
    chunks_.push_back({map_chunk(size), size});
    chunk_used_ = 0;
  }
  std::byte* out = chunks_.back().base + chunk_used_;
  chunk_used_ += bytes;
  used_ += bytes;
  return out;
}

}  // namespace asap
