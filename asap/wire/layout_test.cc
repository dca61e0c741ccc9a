// The windows: areas never overlap, slots are aligned, every message fits, and slot numbers are
// one-to-one.
#include "asap/wire/layout.h"

#include <gtest/gtest.h>

#include <set>

#include "asap/wire/messages.h"

namespace asap {
namespace {

Geometry geometry(int d, int t, int e, int r) {
  Geometry g;
  g.groups = d, g.ranks = t, g.expert_ranks = e, g.stages = r;
  g.max_batch_tokens = 101, g.max_batch_seqs = 7, g.max_seq_blocks = 5;
  g.hidden = 40, g.layers = 3, g.moe_layers = 2, g.experts = 16, g.top_k = 4, g.vocab = 128;
  g.gather_width = 60, g.index_topk = 8, g.logits_rows = 1;
  return g;
}

void expect_disjoint(const Layout& layout) {
  uint64_t end = kDoorbellBytes;
  for (const Area& area : layout.areas()) {
    EXPECT_EQ(area.offset, end) << area.name;
    EXPECT_EQ(area.offset % kLine, 0u) << area.name;
    EXPECT_EQ(area.slot_bytes % kLine, 0u) << area.name;
    EXPECT_GE(area.payload_bytes(), 0u) << area.name;
    end = area.offset + area.slot_bytes * static_cast<uint64_t>(area.slots);
  }
  EXPECT_EQ(end, layout.bytes());
}

TEST(Layout, AreasFollowEachOtherOnWholeLines) {
  for (int d : {1, 2, 3}) {
    for (int t : {1, 2, 4}) {
      for (int e : {1, 3, 4}) {
        const Geometry g = geometry(d, t, e, 2);
        expect_disjoint(ExpertLayout(g));
        expect_disjoint(AttentionLayout(g));
        expect_disjoint(FrontLayout(g));
      }
    }
  }
}

TEST(Layout, SlotsAreOneToOne) {
  const Geometry g = geometry(3, 2, 4, 3);
  const ExpertLayout expert(g);
  std::set<int> seen;
  for (int group = 0; group < 3; ++group) {
    for (int stage = 0; stage < 3; ++stage) {
      for (int rank = 0; rank < 2; ++rank) seen.insert(expert.slot(group, stage, rank));
    }
  }
  EXPECT_EQ(seen.size(), 18u);
  EXPECT_EQ(*seen.rbegin(), expert.dispatch.slots - 1);
}

TEST(Layout, LargestDispatchFits) {
  const Geometry g = geometry(2, 2, 3, 2);
  const ExpertLayout layout(g);
  const uint64_t rows = static_cast<uint64_t>(g.slice_tokens()) * g.local_top_k();
  EXPECT_LE(layout.counts_at + sizeof(int32_t) * static_cast<uint64_t>(g.local_experts()),
            layout.rows_at);
  EXPECT_LE(layout.rows_at + sizeof(RowEntry) * rows, layout.tokens_at);
  EXPECT_LE(layout.tokens_at + g.row_bytes() * static_cast<uint64_t>(g.slice_tokens()),
            layout.dispatch.payload_bytes());
}

TEST(Layout, PictureNamesEveryArea) {
  const AttentionLayout layout(geometry(1, 2, 2, 2));
  const std::string picture = layout.picture();
  for (const Area& area : layout.areas()) {
    EXPECT_NE(picture.find(area.name), std::string::npos) << picture;
  }
}

TEST(Geometry, CompareNamesTheFieldAndBothValues) {
  const Geometry front = geometry(2, 2, 2, 2);
  Geometry peer = front;
  EXPECT_TRUE(compare(front, peer, "moe e1"));
  peer.hidden = 44;
  const Status status = compare(front, peer, "moe e1");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("moe e1"), std::string::npos);
  EXPECT_NE(status.error().message.find("hidden size"), std::string::npos);
  EXPECT_NE(status.error().message.find("40"), std::string::npos);
  EXPECT_NE(status.error().message.find("44"), std::string::npos);
}

TEST(Geometry, DeviceNamesRoundTrip) {
  const Geometry g = geometry(2, 2, 3, 2);
  EXPECT_EQ(device_name(g, kFrontDevice), "front");
  EXPECT_EQ(device_name(g, attention_device(g, 1, 0)), "attention g1 t0");
  EXPECT_EQ(device_name(g, expert_device(g, 2)), "moe e2");
  EXPECT_EQ(expert_device(g, 2) + 1, g.devices());
}

TEST(Lockstep, RanksMeetInAreasOfTheirOwnAndShareAProcess) {
  Geometry g = geometry(3, 2, 6, 1);
  EXPECT_EQ(AttentionLayout(g).areas().size(), 10u);
  EXPECT_EQ(host_device(g, expert_device(g, 5)), expert_device(g, 5));
  g.lockstep = true;
  const AttentionLayout layout(g);
  expect_disjoint(layout);
  EXPECT_EQ(layout.enter.slots, 6);
  EXPECT_EQ(layout.leave.slots, 6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(host_device(g, expert_device(g, i)), 1 + i);
    EXPECT_EQ(host_device(g, 1 + i), 1 + i);
  }
  EXPECT_EQ(host_device(g, kFrontDevice), kFrontDevice);
}

TEST(Flag, CarriesEpochAndSequence) {
  alignas(8) std::byte word[8] = {};
  EXPECT_EQ(load_flag(word), 0u);
  store_flag(word, make_flag(3, 17));
  EXPECT_EQ(load_flag(word), make_flag(3, 17));
  EXPECT_NE(make_flag(3, 17), make_flag(4, 17));
}

}  // namespace
}  // namespace asap
