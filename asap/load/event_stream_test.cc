#include "asap/load/event_stream.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

const char* const kCompletion =
    "data: {\"choices\":[{\"text\":\"\",\"index\":0}]}\n\n"
    ": ping\r\n"
    "data:{\"choices\":[{\"text\":\"b\"}]}\r\n\r\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n"
    "data: [DONE]\n\n";

TEST(EventStream, OfACompletionCutAnywhere) {
  const std::string text = kCompletion;
  for (size_t cut = 1; cut <= text.size(); ++cut) {
    EventStream stream;
    std::vector<StreamEvent> events;
    for (size_t at = 0; at < text.size(); at += cut) {
      for (const StreamEvent& event : stream.push(text.substr(at, cut))) events.push_back(event);
    }
    ASSERT_EQ(events.size(), 3u) << "pieces of " << cut;
    EXPECT_TRUE(events[0].token);  // half a character has no text yet, but it is a token
    EXPECT_TRUE(events[1].token);
    EXPECT_FALSE(events[2].token);
    EXPECT_EQ(events[2].prompt_tokens, 7);
    EXPECT_EQ(events[2].completion_tokens, 2);
  }
}

TEST(EventStream, TheRoleOfAChatIsNoToken) {
  EventStream stream;
  const auto events = stream.push(
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n"
      "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"so\"}}]}\n"
      "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n");
  ASSERT_EQ(events.size(), 4u);
  EXPECT_FALSE(events[0].token);
  EXPECT_TRUE(events[1].token);
  EXPECT_TRUE(events[2].token);
  EXPECT_FALSE(events[3].token);
}

TEST(EventStream, TimePartsIfTheyAreTimes) {
  EventStream stream;
  const auto events = stream.push(
      "data: {\"asap_timing\":{\"queueing_ms\":1.5,\"attention_ms\":2,\"experts_ms\":3,"
      "\"dispatch_ms\":4,\"combine_ms\":5,\"turn_ms\":6,\"barrier_ms\":7,\"host_ms\":8}}\n"
      "data: {\"asap_timing\":{\"host_ms\":1,\"of_another_release\":\"x\"}}\n"
      "data: {\"asap_timing\":{\"host_ms\":-1}}\n"
      "data: {\"asap_timing\":{\"host_ms\":\"1\"}}\n"
      "data: {\"asap_timing\":7}\n"
      "data: {\"choices\":[]}\n");
  ASSERT_EQ(events.size(), 6u);
  ASSERT_TRUE(events[0].parts);
  EXPECT_EQ(events[0].parts->queueing, 1.5);
  double sum = 0;
  for (const TimePart& part : kTimeParts) sum += *events[0].parts.*part.value;
  EXPECT_EQ(sum, 36.5);
  ASSERT_TRUE(events[1].parts);
  EXPECT_EQ(events[1].parts->host, 1);
  EXPECT_EQ(events[1].parts->queueing, 0);
  for (size_t i = 2; i < 6; ++i) EXPECT_FALSE(events[i].parts) << i;
}

TEST(EventStream, ErrorsAndRubbish) {
  EventStream stream;
  const auto events = stream.push(
      "data: {\"error\":{\"message\":\"died\"}}\n"
      "data: {broken\n"
      "data: [1,2]\n"
      "data: {\"usage\":{\"prompt_tokens\":4294967295,\"completion_tokens\":99999999999}}\n"
      "data: {\"choices\":7,\"usage\":{\"prompt_tokens\":-1}}\n");
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[3].prompt_tokens, 1 << 29);
  EXPECT_EQ(events[3].completion_tokens, 1 << 29);
  EXPECT_EQ(events[0].error, "\"died\"");
  for (const StreamEvent& event : events) EXPECT_FALSE(event.token);
}

}  // namespace
}  // namespace asap
