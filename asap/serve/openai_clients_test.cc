// Load generators, replayed: each one's request body, and its own rule for reading the stream.
//
// The rules are those of the clients' sources, faults included: what they strip, skip, index and
// count.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asap/serve/front.h"
#include "asap/serve/test_support.h"

namespace asap {
namespace {

using nlohmann::json;

// What a client would report of a stream.
struct Reading {
  int tokens = 0;     // as the client counts them
  int first_at = -1;  // index of the network read that it takes for the first token
  std::string text;
  int usage_tokens = -1;  // completion_tokens of the usage it found
  bool done = false;      // saw [DONE]
};

// The text of an event, of a completion or of a chat.
std::string text_of(const json& event) {
  const json& choice = event.at("choices").at(0);
  return choice.contains("delta") ? choice["delta"].value("content", "")
                                  : choice.at("text").get<std::string>();
}

std::string strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  size_t at = 0;
  for (size_t end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    lines.push_back(text.substr(at, end - at));
  }
  return lines;
}

// vLLM: strips every network read, then splits at blank lines; a rest that is whole JSON counts
// too. The first event with choices is the first token, whatever its text; usage is read only where
// choices are empty.
Reading read_as_vllm(const std::vector<std::string>& reads) {
  Reading reading;
  std::string buffer;
  for (size_t i = 0; i < reads.size(); ++i) {
    buffer += strip(reads[i]);
    std::vector<std::string> messages;
    for (size_t end; (end = buffer.find("\n\n")) != std::string::npos;) {
      messages.push_back(strip(buffer.substr(0, end)));
      buffer.erase(0, end + 2);
    }
    if (buffer == "data: [DONE]" ||
        (buffer.starts_with("data: ") && json::accept(buffer.substr(6)))) {
      messages.push_back(std::exchange(buffer, {}));
    }
    for (const std::string& message : messages) {
      EXPECT_TRUE(message.starts_with("data: ")) << message;
      if (message == "data: [DONE]") {
        reading.done = true;
        continue;
      }
      const auto data = json::parse(message.substr(6));
      if (!data["choices"].empty()) {
        if (reading.first_at < 0) reading.first_at = static_cast<int>(i);
        ++reading.tokens;
        reading.text += text_of(data);
      } else if (data.contains("usage")) {
        reading.usage_tokens = data["usage"]["completion_tokens"];
      }
    }
  }
  EXPECT_EQ(buffer, "");
  return reading;
}

// SGLang and llmperf: line by line; every line that is not blank is "data: " and JSON with
// choices[0].
Reading read_by_line(const std::vector<std::string>& reads, bool count_empty) {
  Reading reading;
  for (size_t i = 0; i < reads.size(); ++i) {
    for (const std::string& raw : lines_of(reads[i])) {
      const std::string line = strip(raw);
      if (line.empty()) continue;
      const std::string data = line.substr(std::string_view("data: ").size());
      if (data == "[DONE]") {
        reading.done = true;
        continue;
      }
      const auto event = json::parse(data);
      EXPECT_FALSE(event.contains("error"));
      const std::string text = text_of(event);
      if (text.empty() && !count_empty) continue;
      if (reading.first_at < 0) reading.first_at = static_cast<int>(i);
      ++reading.tokens;
      reading.text += text;
    }
  }
  return reading;
}

// guidellm: "data:" in front, text may be missing; usage from whatever event carries one.
Reading read_as_guidellm(const std::vector<std::string>& reads) {
  Reading reading;
  for (size_t i = 0; i < reads.size(); ++i) {
    for (const std::string& raw : lines_of(reads[i])) {
      const std::string line = strip(raw);
      if (!line.starts_with("data:")) continue;
      const std::string data = strip(line.substr(5));
      if (data == "[DONE]") {
        reading.done = true;
        break;
      }
      const auto event = json::parse(data);
      if (event.contains("usage")) reading.usage_tokens = event["usage"]["completion_tokens"];
      if (event["choices"].empty() || text_of(event).empty()) continue;
      if (reading.first_at < 0) reading.first_at = static_cast<int>(i);
      ++reading.tokens;
      reading.text += text_of(event);
    }
  }
  return reading;
}

// AIPerf: fields of server-sent events; dispatches on "object", indexes choices[0], skips empty
// text.
Reading read_as_aiperf(const std::vector<std::string>& reads) {
  Reading reading;
  for (size_t i = 0; i < reads.size(); ++i) {
    for (const std::string& line : lines_of(strip(reads[i]) + "\n")) {
      const size_t colon = line.find(':');
      EXPECT_EQ(line.substr(0, colon), "data") << line;
      const std::string data = strip(line.substr(colon + 1));
      if (data == "[DONE]") {
        reading.done = true;
        continue;
      }
      const auto event = json::parse(data);
      EXPECT_EQ(event["object"], event["choices"][0].contains("delta") ? "chat.completion.chunk"
                                                                       : "text_completion");
      const std::string text = text_of(event);
      if (text.empty()) continue;
      if (reading.first_at < 0) reading.first_at = static_cast<int>(i);
      ++reading.tokens;
      reading.text += text;
    }
  }
  return reading;
}

class ClientsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ServeOptions options;
    options.port = 0;
    options.served_model_name = "M";
    auto front = HttpFront::start(options, engine_, test::byte_tokenizer(), test::chat_template());
    ASSERT_TRUE(front) << front.error().message;
    front_ = *std::move(front);
  }

  std::vector<std::string> stream(const std::string& body, std::string_view headers = "",
                                  std::string_view path = "/v1/completions") {
    const auto response = test::fetch(front_->port(), test::post(path, body, headers));
    EXPECT_TRUE(response && response->status == 200) << (response ? response->body : "no answer");
    return response ? response->chunks : std::vector<std::string>{};
  }

  std::vector<std::string> stream_chat(const std::string& body, std::string_view headers = "") {
    return stream(body, headers, "/v1/chat/completions");
  }

  static void expect_reading(const Reading& reading, int tokens, int usage_tokens) {
    EXPECT_TRUE(reading.done);
    EXPECT_EQ(reading.first_at, 0);
    EXPECT_EQ(reading.tokens, tokens);
    EXPECT_EQ(reading.text, std::string("abcdefgh").substr(0, static_cast<size_t>(tokens)));
    EXPECT_EQ(reading.usage_tokens, usage_tokens);
  }

  test::FakeEngine engine_;
  std::unique_ptr<HttpFront> front_;
};

TEST_F(ClientsTest, VllmBenchServe) {
  const std::string rest = R"("temperature":0.0,"repetition_penalty":1.0,"max_tokens":3,
      "logprobs":null,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true})";
  const char* headers = "Authorization: Bearer None\r\nx-request-id: bench-0\r\n";
  auto reads = stream(R"({"model":"M","prompt":"some text",)" + rest, headers);
  expect_reading(read_as_vllm(reads), 3, 3);
  // The network may join events into one read.
  std::string joined;
  for (const std::string& read : reads) joined += read;
  expect_reading(read_as_vllm({joined}), 3, 3);
  // timed_trace sends ids.
  reads = stream(R"({"model":"M","prompt":[5,6,7],"best_of":1,)" + rest, headers);
  expect_reading(read_as_vllm(reads), 3, 3);
  EXPECT_EQ(engine_.last_request().prompt, (std::vector<int32_t>{5, 6, 7}));
}

TEST_F(ClientsTest, SglangBenchServing) {
  const auto reads = stream(R"({"model":"M","prompt":"some text","temperature":0.0,"best_of":1,
      "max_tokens":4,"stream":true,"ignore_eos":true,"lora_path":null})");
  expect_reading(read_by_line(reads, /*count_empty=*/false), 4, -1);
}

TEST_F(ClientsTest, Guidellm) {
  const auto reads = stream(R"({"prompt":"some text","model":"M","stream":true,
      "stream_options":{"include_usage":true,"continuous_usage_stats":true},
      "max_tokens":5,"stop":null,"ignore_eos":true})");
  expect_reading(read_as_guidellm(reads), 5, 5);
}

TEST_F(ClientsTest, AiPerf) {
  const auto reads = stream(R"({"prompt":["some text"],"model":"M","stream":true,"max_tokens":6,
      "min_tokens":6,"ignore_eos":true})",
                            "Accept: text/event-stream\r\n");
  expect_reading(read_as_aiperf(reads), 6, -1);
}

TEST_F(ClientsTest, Llmperf) {
  const auto reads = stream(R"({"model":"M","prompt":"some text","stream":true,"max_tokens":7})",
                            "Authorization: Bearer x\r\n");
  expect_reading(read_by_line(reads, /*count_empty=*/true), 7, -1);
}

// genai-bench: needs the finish reason before the usage, skips empty text, and takes the usage from
// the event whose choices are empty.
Reading read_as_genai_bench(const std::vector<std::string>& reads) {
  Reading reading;
  bool finished = false;
  for (size_t i = 0; i < reads.size(); ++i) {
    const std::string data = strip(reads[i].substr(std::string_view("data: ").size()));
    if (data == "[DONE]") {
      reading.done = true;
      continue;
    }
    const auto event = json::parse(data);
    if (event["choices"].empty()) {
      EXPECT_TRUE(finished);
      reading.usage_tokens = event["usage"]["completion_tokens"];
      continue;
    }
    finished = finished || !event["choices"][0]["finish_reason"].is_null();
    if (text_of(event).empty()) continue;
    if (reading.first_at < 0) reading.first_at = static_cast<int>(i);
    ++reading.tokens;
    reading.text += text_of(event);
  }
  return reading;
}

TEST_F(ClientsTest, ChatOfVllmBenchServe) {
  const auto reads = stream_chat(
      R"({"model":"M","messages":[{"role":"user","content":[{"type":"text","text":"some text"}]}],
          "temperature":0.0,"max_completion_tokens":3,"stream":true,
          "stream_options":{"include_usage":true},"ignore_eos":true})",
      "Authorization: Bearer None\r\nx-request-id: bench-0\r\n");
  expect_reading(read_as_vllm(reads), 3, 3);
}

TEST_F(ClientsTest, ChatOfSglangBenchServing) {
  const auto reads = stream_chat(
      R"({"model":"M","messages":[{"role":"user","content":"some text"}],"temperature":0.0,
          "max_completion_tokens":4,"stream":true,"ignore_eos":true,"lora_path":null})");
  expect_reading(read_by_line(reads, /*count_empty=*/false), 4, -1);
}

TEST_F(ClientsTest, ChatOfGuidellm) {
  const auto reads = stream_chat(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"some text"}],
          "model":"M","stream":true,
          "stream_options":{"include_usage":true,"continuous_usage_stats":true},
          "max_completion_tokens":5,"stop":null,"ignore_eos":true})");
  expect_reading(read_as_guidellm(reads), 5, 5);
}

TEST_F(ClientsTest, ChatOfAiPerf) {
  const auto reads = stream_chat(
      R"({"messages":[{"role":"user","name":"user","content":"some text"}],"model":"M",
          "stream":true,"max_completion_tokens":6,"min_tokens":6,"ignore_eos":true})",
      "Accept: text/event-stream\r\n");
  expect_reading(read_as_aiperf(reads), 6, -1);
}

TEST_F(ClientsTest, ChatOfLlmperf) {
  const auto reads = stream_chat(
      R"({"model":"M","messages":[{"role":"system","content":""},
          {"role":"user","content":"some text"}],"stream":true,"max_tokens":7})",
      "Authorization: Bearer x\r\n");
  expect_reading(read_by_line(reads, /*count_empty=*/true), 7, -1);
}

TEST_F(ClientsTest, ChatOfGenaiBench) {
  const auto reads = stream_chat(
      R"({"model":"M","messages":[{"role":"user","content":"some text"}],"max_tokens":2,
          "temperature":0.0,"ignore_eos":true,"stream":true,
          "stream_options":{"include_usage":true}})",
      "Authorization: Bearer x\r\n");
  expect_reading(read_as_genai_bench(reads), 2, 2);
}

TEST_F(ClientsTest, PrefillOnlyWithHalfACharacterStillHasATtft) {
  test::Script script;
  script.tokens = {0xE2};  // one token, one third of a character
  engine_.set_script(script);
  for (const auto& reads :
       {stream(R"({"model":"M","prompt":"x","max_tokens":1,"stream":true})"),
        stream_chat(R"({"model":"M","messages":[{"role":"user","content":"x"}],"max_tokens":1,
                        "stream":true})")}) {
    for (const Reading& reading :
         {read_as_vllm(reads), read_by_line(reads, false), read_as_guidellm(reads),
          read_as_aiperf(reads), read_as_genai_bench(reads)}) {
      EXPECT_EQ(reading.first_at, 0);
      EXPECT_EQ(reading.tokens, 1);
      EXPECT_TRUE(reading.done);
    }
  }
}

}  // namespace
}  // namespace asap
