// TensorBytes: where the bytes of a stored tensor are, or will be. Those of a file are there; those
// of dummy weights (dummy_weights.h) are made when somebody looks at them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace asap {

// Bytes that are made on demand. Thread-safe.
class LazyBytes {
 public:
  virtual ~LazyBytes() = default;
  virtual uint64_t size() const = 0;
  // The address of byte 0; bytes [begin, begin + count) are valid there from now on.
  virtual const std::byte* make(uint64_t begin, uint64_t count) = 0;
};

// Behaves as a pointer to const bytes; turning it into one makes the whole tensor.
class TensorBytes {
 public:
  TensorBytes() = default;
  TensorBytes(const std::byte* at) : at_(at) {}  // implicit: a file's bytes are just there
  explicit TensorBytes(LazyBytes& lazy) : lazy_(&lazy) {}

  operator const std::byte*() const {
    return lazy_ == nullptr ? at_ : lazy_->make(0, lazy_->size()) + offset_;
  }
  // The address of byte `begin` from here, with `count` bytes made.
  const std::byte* part(int64_t begin, int64_t count) const {
    if (lazy_ == nullptr) return at_ + begin;
    const int64_t from = offset_ + begin;
    return lazy_->make(static_cast<uint64_t>(from), static_cast<uint64_t>(count)) + from;
  }

  // Null where bytes are made on demand.
  const std::byte* stored() const { return at_; }

  explicit operator bool() const { return at_ != nullptr || lazy_ != nullptr; }
  friend bool operator==(const TensorBytes& bytes, std::nullptr_t) { return !bytes; }

  TensorBytes& operator+=(int64_t count) {
    if (lazy_ == nullptr) {
      at_ += count;
    } else {
      offset_ += count;
    }
    return *this;
  }
  TensorBytes& operator-=(int64_t count) { return *this += -count; }
  friend TensorBytes operator+(TensorBytes bytes, int64_t count) { return bytes += count; }

 private:
  const std::byte* at_ = nullptr;
  LazyBytes* lazy_ = nullptr;
  int64_t offset_ = 0;  // in lazy_
};

}  // namespace asap
