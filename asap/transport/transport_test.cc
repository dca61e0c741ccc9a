// The verbs over both links: what arrives is what was sent, nothing arrives early, whatever the
// delays.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "asap/base/prng.h"
#include "asap/transport/link_loop.h"
#include "asap/transport/link_shm.h"
#include "asap/transport/shared_memory.h"
#include "asap/transport/verbs.h"

namespace asap {
namespace {

Geometry small() {
  Geometry g;
  g.groups = 2, g.ranks = 2, g.expert_ranks = 2, g.stages = 2;
  g.max_batch_tokens = 8, g.max_batch_seqs = 2, g.max_seq_blocks = 1;
  g.hidden = 4, g.layers = 3, g.moe_layers = 2, g.experts = 4, g.top_k = 2, g.vocab = 16;
  g.gather_width = 4, g.activation = DType::f32;
  return g;
}

struct Owned {
  std::vector<int> fds;
  std::unique_ptr<Link> link;
  Owned() = default;
  Owned(Owned&&) = default;
  ~Owned() {
    link.reset();
    for (int fd : fds) close(fd);
  }
};

Owned shm_link(const Geometry& g) {
  Owned owned;
  for (int device = 0; device < g.devices(); ++device) {
    owned.fds.push_back(*create_shared_memory("asap-test", window_bytes(g, device)));
  }
  owned.link = std::move(*make_link_shm(g, owned.fds));
  return owned;
}

// Rank t of group 1 sends two tokens; token values tell who they are.
void send_share(Port& port, const Geometry& g, const ExpertLayout& layout, int rank,
                const ItemId& item) {
  const float base = static_cast<float>(100 * rank);
  const float hidden[2][4] = {{base, base + 1, base + 2, base + 3}, {base + 4, 5, 6, 7}};
  const int32_t counts[2] = {1, 2};
  const RowEntry rows[3] = {{0, 0.5f}, {0, 0.25f}, {1, 1.0f}};
  const int32_t tokens[2] = {0, 1};
  dispatch_send(port, g, layout, 1, rank, item,
                {counts, rows, tokens, reinterpret_cast<const std::byte*>(hidden)});
}

void expect_share(const DispatchView& view, int rank) {
  EXPECT_EQ(view.header->tokens, 2);
  EXPECT_EQ(view.header->rows, 3);
  EXPECT_EQ(view.header->layer, 2);
  EXPECT_EQ(view.counts[1], 2);
  EXPECT_EQ(view.rows[2].token, 1);
  float value;
  std::memcpy(&value, view.hidden + 4 * sizeof(float), sizeof(value));
  EXPECT_EQ(value, static_cast<float>(100 * rank + 4));
}

TEST(Verbs, DispatchArrivesWhenAllRanksWrote) {
  const Geometry g = small();
  const Owned owned = shm_link(g);
  const ExpertLayout layout(g);
  const ItemId item{.group = 1, .stage = 1, .layer = 2, .epoch = 1, .seq = 7};
  auto t0 = owned.link->attach(attention_device(g, 1, 0));
  auto t1 = owned.link->attach(attention_device(g, 1, 1));
  auto expert = owned.link->attach(expert_device(g, 1));
  DispatchView views[2];
  EXPECT_FALSE(dispatch_recv(expert->window(), g, layout, 2, item, views));
  send_share(*t0, g, layout, 0, item);
  EXPECT_FALSE(dispatch_recv(expert->window(), g, layout, 2, item, views));
  send_share(*t1, g, layout, 1, item);
  ASSERT_TRUE(dispatch_recv(expert->window(), g, layout, 2, item, views));
  expect_share(views[0], 0);
  expect_share(views[1], 1);
  ItemId next = item;
  next.seq = 8;
  EXPECT_FALSE(dispatch_recv(expert->window(), g, layout, 2, next, views));
}

TEST(Verbs, LoopDeliversPayloadBeforeItsFlagForEverySeed) {
  const Geometry g = small();
  const ExpertLayout layout(g);
  const ItemId item{.group = 1, .stage = 0, .layer = 2, .epoch = 1, .seq = 1};
  int late = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    auto link = make_link_loop(g, {.seed = seed, .max_delay = Duration::micros(100)});
    auto t0 = link->attach(attention_device(g, 1, 0));
    auto t1 = link->attach(attention_device(g, 1, 1));
    auto expert = link->attach(expert_device(g, 1));
    send_share(*t0, g, layout, 0, item);
    send_share(*t1, g, layout, 1, item);
    DispatchView views[2];
    Instant now{0};
    while (!dispatch_recv(expert->window(), g, layout, 2, item, views)) {
      now = link->deliver(now);
      ASSERT_NE(now, Instant::never()) << "seed " << seed;
      link->deliver(now);
      ++late;
    }
    expect_share(views[0], 0);
    expect_share(views[1], 1);
  }
  EXPECT_GT(late, 200);
}

TEST(Verbs, CombineAnswersInPieces) {
  const Geometry g = small();
  const Owned owned = shm_link(g);
  const AttentionLayout layout(g);
  const ItemId item{.group = 0, .stage = 1, .layer = 1, .epoch = 1, .seq = 3};
  auto attention = owned.link->attach(attention_device(g, 0, 1));
  const float rows[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  for (int e = 0; e < 2; ++e) {
    EXPECT_FALSE(combine_recv(attention->window(), g, layout, item));
    auto expert = owned.link->attach(expert_device(g, e));
    const int count = e == 0 ? 2 : 0;  // expert rank 1 answers an empty item
    for (int i = 0; i < count; ++i) {
      combine_put_rows(*expert, g, layout, item, 1, e, i, 1,
                       reinterpret_cast<const std::byte*>(rows[i]));
    }
    combine_finish(*expert, g, layout, item, 1, e, count);
  }
  ASSERT_TRUE(combine_recv(attention->window(), g, layout, item));
  float back[2][4];
  std::memcpy(back, combine_rows(attention->window(), layout, item, 0, 2), sizeof(back));
  EXPECT_EQ(std::memcmp(back, rows, sizeof(rows)), 0);
  EXPECT_DEATH(combine_rows(attention->window(), layout, item, 0, 1), "expected .* 1 rows");
}

TEST(Verbs, CollectiveWaitsForEveryRank) {
  const Geometry g = small();
  const Owned owned = shm_link(g);
  const AttentionLayout layout(g);
  auto t0 = owned.link->attach(attention_device(g, 1, 0));
  auto t1 = owned.link->attach(attention_device(g, 1, 1));
  const uint64_t flag = make_flag(1, 9);
  const float part[4] = {1, 2, 3, 4};
  group_put(*t0, g, layout, layout.gather, {1, 0, 1, flag}, 0, part, sizeof(part));
  EXPECT_FALSE(group_ready(t0->window(), layout, layout.gather, 2, 1, flag));
  group_put(*t1, g, layout, layout.gather, {1, 1, 1, flag}, 0, part, sizeof(part));
  EXPECT_TRUE(group_ready(t0->window(), layout, layout.gather, 2, 1, flag));
  EXPECT_FALSE(group_ready(t1->window(), layout, layout.gather, 2, 1, flag));
}

TEST(LoopLink, AFenceLosesWhatTheDeadSentAndLandsWhatTheyWereSent) {
  const Geometry g = small();
  const auto link = make_link_loop(g, {.seed = 5, .max_delay = Duration::micros(50)});
  const AttentionLayout layout(g);
  const int dead = attention_device(g, 0, 0);
  const int peer = attention_device(g, 0, 1);
  auto from_dead = link->attach(dead);
  auto from_peer = link->attach(peer);
  const float part[4] = {1, 2, 3, 4};
  link->deliver(Instant{1});
  group_put(*from_dead, g, layout, layout.gather, {0, 0, 0, make_flag(1, 9)}, 1, part,
            sizeof(part));
  group_put(*from_peer, g, layout, layout.gather, {0, 1, 0, make_flag(1, 9)}, 0, part,
            sizeof(part));
  group_put(*from_peer, g, layout, layout.gather, {0, 1, 0, make_flag(1, 9)}, 1, part,
            sizeof(part));
  link->fence(dead);
  const auto flag_at = [&](Port& at, int rank) {
    return load_flag(at.window() + layout.gather.flag(layout.peer_slot(0, rank)));
  };
  EXPECT_EQ(flag_at(*from_dead, 1), make_flag(1, 9));
  EXPECT_EQ(flag_at(*from_peer, 1), 0U);  // still on its way
  EXPECT_EQ(link->deliver(Instant{1'000'000}), Instant::never());
  EXPECT_EQ(flag_at(*from_peer, 1), make_flag(1, 9));
  EXPECT_EQ(flag_at(*from_peer, 0), 0U);
}

TEST(Verbs, AHeaderThatContradictsItsFlagIsCaught) {
  const Geometry g = small();
  const Owned owned = shm_link(g);
  const ExpertLayout layout(g);
  const ItemId item{.group = 0, .stage = 0, .layer = 0, .epoch = 1, .seq = 1};
  auto expert = owned.link->attach(expert_device(g, 0));
  const int device = expert_device(g, 0);
  for (int rank = 0; rank < 2; ++rank) {
    expert->put_flag(device, layout.dispatch.flag(layout.slot(0, 0, rank)), make_flag(1, 1));
  }
  DispatchView views[2];
  EXPECT_DEATH(dispatch_recv(expert->window(), g, layout, 2, item, views), "magic");
}

// Two threads, each sleeping until the other's flag: no wake may be lost.
TEST(Doorbell, PingPong) {
  const Geometry g = small();
  const Owned owned = shm_link(g);
  constexpr uint64_t kRounds = 20000;
  const AttentionLayout layout(g);
  const int devices[2] = {attention_device(g, 0, 0), attention_device(g, 0, 1)};
  auto run = [&](int me) {
    auto port = owned.link->attach(devices[me]);
    Doorbell& bell = owned.link->doorbell(devices[me]);
    for (uint64_t round = 1; round <= kRounds; ++round) {
      if (me == 0) port->put_flag(devices[1], layout.gather.flag(0), round);
      while (load_flag(port->window() + layout.gather.flag(0)) != round) {
        const uint32_t ticket = bell.prepare();
        if (load_flag(port->window() + layout.gather.flag(0)) == round) {
          bell.abandon();
          break;
        }
        bell.sleep(ticket, Duration::seconds(10));
      }
      if (me == 1) port->put_flag(devices[0], layout.gather.flag(0), round);
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

// Prompts and weights cross windows: nobody else may open one, not even by the name that /proc has.
TEST(SharedMemory, IsItsOwnersAlone) {
  const int fd = *create_shared_memory("asap-test", 4096);
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(status.st_size, 4096);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  close(fd);
}

}  // namespace
}  // namespace asap
