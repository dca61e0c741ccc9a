// Blocking messages: nothing is written before the receiver looks, the sender waits for the
// acknowledgement, and devices that all send at once come through.
#include "asap/transport/link_p2p.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "asap/transport/link_shm.h"
#include "asap/transport/shared_memory.h"

namespace asap {
namespace {

Geometry one_stage() {
  Geometry g;
  g.groups = 2, g.ranks = 2, g.expert_ranks = 2, g.stages = 1;
  g.max_batch_tokens = 8, g.max_batch_seqs = 2, g.max_seq_blocks = 1;
  g.hidden = 4, g.layers = 3, g.moe_layers = 2, g.experts = 4, g.top_k = 2, g.vocab = 16;
  g.gather_width = 4, g.activation = DType::f32;
  return g;
}

// Windows, and links over them, one for each process that shares them.
class Instance {
 public:
  explicit Instance(const Geometry& g) : geometry_(g) {
    for (int device = 0; device < g.devices(); ++device) {
      fds_.push_back(*create_shared_memory("asap-test", window_bytes(g, device)));
    }
  }
  ~Instance() {
    for (const int fd : fds_) close(fd);
  }
  std::unique_ptr<Link> link() const {
    return make_link_p2p(geometry_, std::move(*make_link_shm(geometry_, fds_)));
  }

 private:
  const Geometry geometry_;
  std::vector<int> fds_;
};

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
}

TEST(LinkP2p, TheSenderWaitsForTheReceiver) {
  const Geometry g = one_stage();
  const Instance instance(g);
  // As two processes, which share the windows alone.
  const auto sending = instance.link();
  const auto receiving = instance.link();
  const int from = attention_device(g, 0, 0);
  const int to = attention_device(g, 0, 1);
  const AttentionLayout layout(g);
  const uint64_t payload = layout.gather.payload(0);
  const uint64_t flag = layout.gather.flag(0);
  auto receiver = receiving->attach(to);
  const std::byte* window = receiver->window();  // nobody has asked yet

  std::atomic<int> step{0};
  std::thread sender([&] {
    auto port = sending->attach(from);
    for (uint64_t round = 1; round <= 3; ++round) {
      port->put(to, payload, &round, sizeof(round));
      step.fetch_add(1);
      port->put_flag(to, flag, round);
      step.fetch_add(1);
    }
  });
  for (uint64_t round = 1; round <= 3; ++round) {
    nap();
    EXPECT_EQ(step, static_cast<int>(2 * round - 2));  // not even the first put is through
    EXPECT_EQ(load_flag(window + flag), round - 1);
    receiver->window();  // grants, receives and acknowledges
    EXPECT_EQ(load_flag(window + flag), round);
    uint64_t value = 0;
    std::memcpy(&value, window + payload, sizeof(value));
    EXPECT_EQ(value, round);
  }
  sender.join();
  EXPECT_EQ(step, 6);
}

TEST(LinkP2p, MessagesToTheOwnDeviceDoNotWait) {
  const Geometry g = one_stage();
  const Instance instance(g);
  const auto link = instance.link();
  auto port = link->attach(kFrontDevice);
  const FrontLayout layout(g);
  port->put_flag(kFrontDevice, layout.result.flag(0), 7);
  EXPECT_EQ(load_flag(port->window() + layout.result.flag(0)), 7u);
}

// Every device sends to every other, all at once and in different orders.
TEST(LinkP2p, AllToAllComesThrough) {
  constexpr uint64_t kRounds = 300;
  const Geometry g = one_stage();
  const Instance instance(g);
  const int devices = g.devices();
  std::atomic<int> finished{0};
  const auto run = [&](int me) {
    const auto link = instance.link();
    auto port = link->attach(me);
    // A line that nothing else uses here.
    const auto slot = [](int peer) { return kDoorbellBytes + kLine * static_cast<uint64_t>(peer); };
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (int i = 1; i < devices; ++i) {
        const int to = (me + i * (1 + static_cast<int>(round % 2) * (devices - 2))) % devices;
        port->put(to, slot(me) + 8, &round, sizeof(round));
        port->put_flag(to, slot(me), round);
      }
      for (int peer = 0; peer < devices; ++peer) {
        if (peer == me) continue;
        while (load_flag(port->window() + slot(peer)) < round) std::this_thread::yield();
      }
    }
    // Others may still be sending to this one.
    finished.fetch_add(1);
    while (finished < devices) {
      port->window();
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int device = 0; device < devices; ++device) threads.emplace_back(run, device);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(finished, devices);
}

}  // namespace
}  // namespace asap
