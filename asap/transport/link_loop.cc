#include "asap/transport/link_loop.h"

#include <cstring>
#include <queue>
#include <vector>

#include "asap/base/check.h"
#include "asap/base/prng.h"

namespace asap {

namespace {

// Windows are large and mostly untouched: calloc leaves their pages to the kernel until they are
// used.
struct Window {
  std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
  std::byte* base = nullptr;  // aligned to kLine
  uint64_t bytes = 0;
};

// A piece of payload, or a flag (bytes.empty()), on its way.
struct Flight {
  Instant due;
  uint64_t order;  // ties: as sent
  int from, device;
  std::byte* to;
  uint64_t flag;
  std::vector<std::byte> bytes;
};
struct Later {
  bool operator()(const Flight& a, const Flight& b) const {
    return a.due != b.due ? a.due > b.due : a.order > b.order;
  }
};

class LoopLink final : public Link {
 public:
  LoopLink(const Geometry& geometry, LoopOptions options)
      : options_(options), prng_(options.seed), windows_(static_cast<size_t>(geometry.devices())) {
    for (size_t device = 0; device < windows_.size(); ++device) {
      Window& window = windows_[device];
      window.bytes = window_bytes(geometry, static_cast<int>(device));
      window.memory.reset(static_cast<std::byte*>(std::calloc(window.bytes + kLine, 1)));
      CHECK(window.memory != nullptr, "no memory for a window of {} bytes", window.bytes);
      const auto address = reinterpret_cast<uintptr_t>(window.memory.get());
      window.base = window.memory.get() + (kLine - address % kLine) % kLine;
    }
  }

  std::unique_ptr<Port> attach(int device) override;
  Doorbell& doorbell(int device) override {
    return *reinterpret_cast<Doorbell*>(windows_[static_cast<size_t>(device)].base);
  }

  Instant deliver(Instant now) override {
    now_ = now;
    while (!flights_.empty() && flights_.top().due <= now) {
      land(flights_.top());
      flights_.pop();
    }
    return flights_.empty() ? Instant::never() : flights_.top().due;
  }

  void fence(int device) override {
    decltype(flights_) others;
    for (; !flights_.empty(); flights_.pop()) {
      const Flight& flight = flights_.top();
      if (flight.from == device) continue;
      if (flight.device == device) {
        land(flight);
      } else {
        others.push(flight);
      }
    }
    flights_.swap(others);
  }

  std::byte* at(int device, uint64_t offset, uint64_t bytes) {
    Window& window = windows_[static_cast<size_t>(device)];
    CHECK(offset + bytes <= window.bytes, "{} bytes at {} leave window {} of {}", bytes, offset,
          device, window.bytes);
    return window.base + offset;
  }
  bool immediate() const { return options_.max_delay.ns == 0; }
  Duration draw(Duration limit) {
    return {static_cast<int64_t>(prng_.below(static_cast<uint64_t>(limit.ns) + 1))};
  }
  Duration max_delay() const { return options_.max_delay; }
  Instant now() const { return now_; }
  void fly(Flight flight) {
    flight.order = order_++;
    flights_.push(std::move(flight));
  }

 private:
  static void land(const Flight& flight) {
    if (flight.bytes.empty()) {
      store_flag(flight.to, flight.flag);
    } else {
      std::memcpy(flight.to, flight.bytes.data(), flight.bytes.size());
    }
  }

  LoopOptions options_;
  Prng prng_;
  std::vector<Window> windows_;
  std::priority_queue<Flight, std::vector<Flight>, Later> flights_;
  uint64_t order_ = 0;
  Instant now_{0};
};

class LoopPort final : public Port {
 public:
  LoopPort(LoopLink& link, int device, size_t devices)
      : link_(link), device_(device), waiting_(devices) {}

  void put(int device, uint64_t offset, const void* data, uint64_t bytes) override {
    if (bytes == 0) return;
    std::byte* to = link_.at(device, offset, bytes);
    if (link_.immediate()) {
      std::memcpy(to, data, bytes);
      return;
    }
    const auto* from = static_cast<const std::byte*>(data);
    waiting_[static_cast<size_t>(device)].push_back(
        {{}, 0, device_, device, to, 0, {from, from + bytes}});
  }

  void put_flag(int device, uint64_t offset, uint64_t value) override {
    std::byte* to = link_.at(device, offset, sizeof(value));
    if (link_.immediate()) {
      store_flag(to, value);
      return;
    }
    // The flag is last; each piece of its payload lands somewhere between now and then.
    const Duration delay = link_.draw(link_.max_delay());
    for (Flight& piece : waiting_[static_cast<size_t>(device)]) {
      piece.due = link_.now() + link_.draw(delay);
      link_.fly(std::move(piece));
    }
    waiting_[static_cast<size_t>(device)].clear();
    link_.fly({link_.now() + delay, 0, device_, device, to, value, {}});
  }

  std::byte* window() override { return link_.at(device_, 0, 0); }

 private:
  LoopLink& link_;
  int device_;
  std::vector<std::vector<Flight>> waiting_;  // per destination: payload put since the last flag
};

std::unique_ptr<Port> LoopLink::attach(int device) {
  return std::make_unique<LoopPort>(*this, device, windows_.size());
}

}  // namespace

std::unique_ptr<Link> make_link_loop(const Geometry& geometry, LoopOptions options) {
  return std::make_unique<LoopLink>(geometry, options);
}

}  // namespace asap
