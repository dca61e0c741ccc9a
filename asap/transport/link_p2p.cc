#include "asap/transport/link_p2p.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "asap/base/check.h"

namespace asap {

namespace {

constexpr int kSpins = 1000;        // looks at a word before the thread sleeps
constexpr int kLongestHold = 5000;  // turns of a receive, each up to kNap once it sleeps
constexpr Duration kNap = Duration::micros(200);

// Message n from 1 is requested with the word 2n and complete with 2n + 1; the receiver answers
// with the same words.
constexpr uint64_t request_word(uint64_t message) {
  return 2 * message;
}
constexpr uint64_t complete_word(uint64_t message) {
  return 2 * message + 1;
}
constexpr bool is_request(uint64_t word) {
  return word % 2 == 0;
}

size_t sz(int n) {
  return static_cast<size_t>(n);
}

// What the ports of one device share.
struct Device {
  std::mutex receiving;            // guards `answered`
  std::vector<uint64_t> answered;  // by peer: the last word
  std::mutex sending;              // guards what follows
  std::vector<uint64_t> messages;  // by peer: the last one begun
  std::vector<uint8_t> open;       // by peer: begun and not complete
};

// Spins, then sleeps until somebody rings. It does not yield: a thread that yields over and over
// goes to the end of a busy core's queue for much longer than it waits for.
class Backoff {
 public:
  explicit Backoff(Doorbell& bell) : bell_(bell) {}
  // `changed` is looked at once more before the thread sleeps.
  template <typename Changed>
  void wait(Changed&& changed) {
    ++turns_;
    if (turns_ < kSpins) return;
    const uint32_t ticket = bell_.prepare();
    if (changed()) return bell_.abandon();
    bell_.sleep(ticket, kNap);
  }

 private:
  Doorbell& bell_;
  int turns_ = 0;
};

class P2pPort final : public Port {
 public:
  P2pPort(std::unique_ptr<Port> inner, const std::vector<Area>& areas, int device, Device& state,
          const std::atomic<bool>& abandoned, Doorbell& bell)
      : inner_(std::move(inner)),
        areas_(areas),
        device_(device),
        devices_(static_cast<int>(areas.size())),
        state_(state),
        abandoned_(abandoned),
        bell_(bell),
        message_(areas.size(), 0) {}

  void put(int device, uint64_t offset, const void* data, uint64_t bytes) override {
    if (abandoned_) return;
    begin(device);
    inner_->put(device, offset, data, bytes);
  }

  void put_flag(int device, uint64_t offset, uint64_t value) override {
    if (abandoned_) return;
    begin(device);
    inner_->put_flag(device, offset, value);
    if (device == device_) return;
    const uint64_t word = complete_word(message_[sz(device)]);
    inner_->put_flag(device, areas_[sz(device)].flag(device_), word);
    wait_for(device, word);
    message_[sz(device)] = 0;
    const std::lock_guard lock(state_.sending);
    state_.open[sz(device)] = 0;
  }

  std::byte* window() override {
    serve(true);
    return inner_->window();
  }

 private:
  // Requests a message to `device`, unless this port is in one.
  void begin(int device) {
    if (device == device_ || message_[sz(device)] != 0) return;
    {
      const std::lock_guard lock(state_.sending);
      CHECK(state_.open[sz(device)] == 0, "two ports of device {} send to device {} at once",
            device_, device);
      state_.open[sz(device)] = 1;
      message_[sz(device)] = ++state_.messages[sz(device)];
    }
    const uint64_t word = request_word(message_[sz(device)]);
    inner_->put_flag(device, areas_[sz(device)].flag(device_), word);
    wait_for(device, word);
  }

  // Until `device` has answered `word`.
  void wait_for(int device, uint64_t word) {
    const std::byte* at = inner_->window() + areas_[sz(device_)].flag(devices_ + device);
    const auto answered = [&] { return load_flag(at) == word; };
    Backoff backoff(bell_);
    while (!answered() && !abandoned_) {
      serve(false);
      backoff.wait(answered);
    }
  }

  // Answers what peers have asked; with `hold` a request is answered by receiving its message.
  void serve(bool hold) {
    std::unique_lock lock(state_.receiving, std::defer_lock);
    // A look must not miss what came before it. A wait comes again, and must not wait for a receive
    // of another agent.
    if (hold) {
      lock.lock();
    } else if (!lock.try_lock()) {
      return;
    }
    const std::byte* window = inner_->window();
    for (int peer = 0; peer < devices_; ++peer) {
      if (peer == device_) continue;
      const std::byte* at = window + areas_[sz(device_)].flag(peer);
      const uint64_t word = load_flag(at);
      if (word == state_.answered[sz(peer)]) continue;
      answer(peer, word);
      if (hold && is_request(word)) receive(peer, at, word + 1);
    }
  }

  void receive(int peer, const std::byte* at, uint64_t complete) {
    const auto arrived = [&] { return load_flag(at) == complete; };
    Backoff backoff(bell_);
    for (int turn = 0; turn < kLongestHold && !arrived(); ++turn) backoff.wait(arrived);
    if (arrived()) answer(peer, complete);
  }

  void answer(int peer, uint64_t word) {
    state_.answered[sz(peer)] = word;
    inner_->put_flag(peer, areas_[sz(peer)].flag(devices_ + device_), word);
  }

  const std::unique_ptr<Port> inner_;
  const std::vector<Area>& areas_;  // rendezvous, by device
  const int device_, devices_;
  Device& state_;
  const std::atomic<bool>& abandoned_;
  Doorbell& bell_;
  std::vector<uint64_t> message_;  // by peer: the message that this port is in, or 0
};

class P2pLink final : public Link {
 public:
  P2pLink(const Geometry& geometry, std::unique_ptr<Link> inner)
      : inner_(std::move(inner)), devices_(sz(geometry.devices())) {
    for (size_t device = 0; device < devices_.size(); ++device) {
      areas_.push_back(rendezvous_area(geometry, static_cast<int>(device)));
      devices_[device].answered.resize(devices_.size());
      devices_[device].messages.resize(devices_.size());
      devices_[device].open.resize(devices_.size());
    }
  }

  std::unique_ptr<Port> attach(int device) override {
    return std::make_unique<P2pPort>(inner_->attach(device), areas_, device, devices_[sz(device)],
                                     abandoned_, inner_->doorbell(device));
  }
  void abandon() override { abandoned_ = true; }
  Doorbell& doorbell(int device) override { return inner_->doorbell(device); }
  Instant deliver(Instant now) override { return inner_->deliver(now); }

 private:
  std::unique_ptr<Link> inner_;
  std::vector<Area> areas_;
  std::vector<Device> devices_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace

std::unique_ptr<Link> make_link_p2p(const Geometry& geometry, std::unique_ptr<Link> inner) {
  return std::make_unique<P2pLink>(geometry, std::move(inner));
}

}  // namespace asap
