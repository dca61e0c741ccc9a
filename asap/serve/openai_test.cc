// The whole front over real sockets with a scripted engine: replies, streams, errors, cancellation,
// the GET pages.
#include "asap/serve/openai.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "asap/serve/front.h"
#include "asap/serve/test_support.h"

namespace asap {
namespace {

using nlohmann::json;
using test::Client;
using test::fetch;
using test::get;
using test::post;

class OpenAiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ServeOptions options;
    options.port = 0;
    options.max_queued_bytes = size_t{64} << 10;
    options.socket_send_bytes = 64 << 10;
    options.served_model_name = "tiny";
    options.model_root = "/models/tiny";
    auto front = HttpFront::start(options, engine_, test::byte_tokenizer(), test::chat_template());
    ASSERT_TRUE(front) << front.error().message;
    front_ = *std::move(front);
  }

  test::Response complete(const std::string& body, std::string_view headers = "") {
    const auto response = fetch(front_->port(), post("/v1/completions", body, headers));
    EXPECT_TRUE(response) << body;
    return response.value_or(test::Response{});
  }

  // The events of a stream, without [DONE]. Each must be one chunk.
  std::vector<json> stream(const std::string& body) {
    const auto response = complete(body);
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<json> events;
    for (const std::string& chunk : response.chunks) {
      EXPECT_TRUE(chunk.starts_with("data: ") && chunk.ends_with("\n\n")) << chunk;
      EXPECT_EQ(chunk.find('\n'), chunk.size() - 2) << chunk;
      if (chunk != "data: [DONE]\n\n") events.push_back(json::parse(chunk.substr(6)));
    }
    EXPECT_EQ(response.chunks.empty() ? "" : response.chunks.back(), "data: [DONE]\n\n");
    EXPECT_EQ(events.size() + 1, response.chunks.size());
    return events;
  }

  test::FakeEngine engine_;
  std::unique_ptr<HttpFront> front_;
};

TEST_F(OpenAiTest, AnswersInOnePiece) {
  const auto response = complete(R"({"model":"tiny","prompt":"hello","max_tokens":3})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  const auto reply = json::parse(response.body);
  EXPECT_TRUE(std::string(reply["id"]).starts_with("cmpl-"));
  EXPECT_EQ(reply["object"], "text_completion");
  EXPECT_EQ(reply["model"], "tiny");
  EXPECT_GT(reply["created"], 1'600'000'000);
  ASSERT_EQ(reply["choices"].size(), 1u);
  EXPECT_EQ(reply["choices"][0],
            json::parse(R"({"index":0,"text":"abc","logprobs":null,"finish_reason":"length",
                            "stop_reason":null})"));
  EXPECT_EQ(reply["usage"], json::parse(R"({"prompt_tokens":5,"completion_tokens":3,
      "total_tokens":8,"prompt_tokens_details":{"cached_tokens":0}})"));
  EXPECT_EQ(engine_.last_request().prompt, (std::vector<int32_t>{'h', 'e', 'l', 'l', 'o'}));
}

TEST_F(OpenAiTest, HandsTheSamplingOver) {
  complete(R"({"prompt":[1,2],"max_tokens":2,"temperature":0.5,"seed":7,"logprobs":3,
               "ignore_eos":true})",
           "X-Request-Id: abc-1\r\n");
  const auto request = engine_.last_request();
  EXPECT_EQ(request.id, "cmpl-abc-1");
  EXPECT_EQ(request.prompt, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(request.sampling.max_tokens, 2);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.seed, 7u);
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_TRUE(request.sampling.ignore_eos);
  std::set<uint64_t> seeds;
  for (int i = 0; i < 10; ++i) {
    complete(R"({"prompt":"x"})");
    seeds.insert(engine_.last_request().sampling.seed);
  }
  EXPECT_EQ(seeds.size(), 10u);  // without a seed: a new one each time
}

TEST_F(OpenAiTest, StreamsOneEventPerTokenInOneChunkEach) {
  const auto events = stream(R"({"prompt":"hello","max_tokens":4,"stream":true})");
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["object"], "text_completion");
    EXPECT_EQ(events[i]["id"], events[0]["id"]);
    EXPECT_FALSE(events[i].contains("usage"));
    const auto& choice = events[i]["choices"][0];
    EXPECT_EQ(choice["text"], std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(choice["finish_reason"], i == 3 ? json("length") : json(nullptr));
    EXPECT_TRUE(choice["logprobs"].is_null());
  }
}

TEST_F(OpenAiTest, SendsUsageOnlyIfAsked) {
  const auto events = stream(
      R"({"prompt":"hi","max_tokens":2,"stream":true,"stream_options":{"include_usage":true}})");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(events[2]["choices"].empty());
  EXPECT_EQ(events[2]["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(events[2]["usage"]["completion_tokens"], 2);
}

TEST_F(OpenAiTest, TheFirstEventIsNeverEmpty) {
  test::Script script;
  script.tokens = {0xC3, 0xA9, 'x'};  // an e with an acute accent in two tokens
  engine_.set_script(script);
  auto events = stream(R"({"prompt":"x","max_tokens":3,"stream":true})");
  EXPECT_EQ(events[0]["choices"][0]["text"], "\xEF\xBF\xBD");
  EXPECT_EQ(events[1]["choices"][0]["text"], "\xC3\xA9");
  EXPECT_EQ(events[2]["choices"][0]["text"], "x");
  // In one piece there is no need for it.
  EXPECT_EQ(json::parse(complete(R"({"prompt":"x","max_tokens":3})").body)["choices"][0]["text"],
            "\xC3\xA9x");
  // Half a character at the end becomes U+FFFD, once.
  EXPECT_EQ(json::parse(complete(R"({"prompt":"x","max_tokens":1})").body)["choices"][0]["text"],
            "\xEF\xBF\xBD");
  events = stream(R"({"prompt":"x","max_tokens":1,"stream":true})");
  EXPECT_EQ(events[0]["choices"][0]["text"], "\xEF\xBF\xBD");

  script.eos_after = 0;
  engine_.set_script(script);
  events = stream(R"({"prompt":"x","max_tokens":3,"stream":true})");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["text"], "\xEF\xBF\xBD");
  EXPECT_EQ(events[0]["choices"][0]["finish_reason"], "stop");
}

TEST_F(OpenAiTest, StopsAtEosUnlessTold) {
  test::Script script;
  script.eos_after = 2;
  engine_.set_script(script);
  auto reply = json::parse(complete(R"({"prompt":"x","max_tokens":9})").body);
  EXPECT_EQ(reply["choices"][0]["text"], "ab");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(reply["usage"]["completion_tokens"], 3);
  reply = json::parse(complete(R"({"prompt":"x","max_tokens":9,"ignore_eos":true})").body);
  EXPECT_EQ(reply["usage"]["completion_tokens"], 9);
}

TEST_F(OpenAiTest, StopStringsEndTheTextAndTheWork) {
  test::Script script;
  script.gap = Duration::millis(5);
  engine_.set_script(script);
  const auto reply =
      json::parse(complete(R"({"prompt":"x","max_tokens":1000,"stop":["zz","de"]})").body);
  EXPECT_EQ(reply["choices"][0]["text"], "abc");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(reply["choices"][0]["stop_reason"], "de");
  EXPECT_TRUE(engine_.wait_cancelled(1));
  const auto events = stream(R"({"prompt":"x","max_tokens":1000,"stop":"de","stream":true})");
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[3]["choices"][0]["text"], "");  // "d" is held back
  EXPECT_EQ(events[4]["choices"][0]["finish_reason"], "stop");
}

TEST_F(OpenAiTest, SeveralPromptsBecomeSeveralChoices) {
  const auto reply = json::parse(complete(R"({"prompt":["one","three"],"max_tokens":2})").body);
  ASSERT_EQ(reply["choices"].size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(reply["choices"][i]["index"], i);
    EXPECT_EQ(reply["choices"][i]["text"], "ab");
  }
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(reply["usage"]["completion_tokens"], 4);
  const auto events = stream(R"({"prompt":[[1],[2]],"max_tokens":3,"stream":true})");
  int of_second = 0;
  for (const auto& event : events) of_second += event["choices"][0]["index"] == 1;
  EXPECT_EQ(events.size(), 6u);
  EXPECT_EQ(of_second, 3);
}

TEST_F(OpenAiTest, LogprobsInTheLegacyForm) {
  test::Script script;
  script.tokens = {'a', 0xC3, 0xA9, 'b'};
  engine_.set_script(script);
  const auto reply = json::parse(complete(R"({"prompt":"x","max_tokens":4,"logprobs":2})").body);
  const auto& logprobs = reply["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (json{"a", "bytes:\\xc3", "bytes:\\xa9", "b"}));
  EXPECT_EQ(logprobs["token_logprobs"], (json{-0.5, -0.5, -0.5, -0.5}));
  EXPECT_EQ(logprobs["top_logprobs"][0], (json{{"A", -1.0}, {"B", -2.0}, {"a", -0.5}}));
  EXPECT_EQ(logprobs["text_offset"], (json{0, 1, 1, 2}));
  const auto events = stream(R"({"prompt":"x","max_tokens":2,"logprobs":0,"stream":true})");
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["tokens"], json::array({"a"}));
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["top_logprobs"][0], (json{{"a", -0.5}}));
}

TEST_F(OpenAiTest, TokenIdsOnRequest) {
  const std::string body = R"({"prompt":[9,8],"max_tokens":2,"return_token_ids":true)";
  const auto choice = json::parse(complete(body + "}").body)["choices"][0];
  EXPECT_EQ(choice["token_ids"], (json{'a', 'b'}));
  EXPECT_EQ(choice["prompt_token_ids"], (json{9, 8}));
  const auto events = stream(body + R"(,"stream":true})");
  EXPECT_EQ(events[0]["choices"][0]["prompt_token_ids"], (json{9, 8}));
  EXPECT_FALSE(events[1]["choices"][0].contains("prompt_token_ids"));
  EXPECT_EQ(events[1]["choices"][0]["token_ids"], json::array({'b'}));
}

TEST_F(OpenAiTest, TimingOnRequest) {
  test::Script script;
  script.first_delay = Duration::millis(20);
  script.times.queueing_ns = 2'000'000;
  script.times.experts_ns = 500'000;
  engine_.set_script(script);
  const std::string body = R"({"prompt":"x","max_tokens":2)";
  EXPECT_FALSE(json::parse(complete(body + "}").body).contains("asap_timing"));
  const auto timing = json::parse(complete(body + R"(,"return_timing":true})").body)["asap_timing"];
  ASSERT_EQ(timing.size(), 8u) << timing;
  EXPECT_EQ(timing["queueing_ms"], 2.0);
  EXPECT_EQ(timing["experts_ms"], 0.5);
  EXPECT_EQ(timing["barrier_ms"], 0.0);
  EXPECT_GE(timing["host_ms"], 17.4);  // the rest of the 20 ms
  const auto events = stream(body + R"(,"return_timing":true,"stream":true})");
  EXPECT_EQ(events[0]["asap_timing"]["queueing_ms"], 2.0);
  EXPECT_FALSE(events[1].contains("asap_timing"));
}

TEST_F(OpenAiTest, EngineErrorsBecomeStatuses) {
  const std::pair<Code, int> cases[] = {{Code::invalid, 400},     {Code::not_found, 404},
                                        {Code::unsupported, 400}, {Code::overloaded, 429},
                                        {Code::unavailable, 503}, {Code::internal, 500},
                                        {Code::deadline, 408}};
  for (const auto& [code, status] : cases) {
    for (const bool at_once : {true, false}) {
      test::Script script;
      if (at_once) script.refuse = Error{code, "because"};
      script.fail_at = 0;
      script.failure = {code, "because"};
      engine_.set_script(script);
      for (const char* stream : {"true", "false"}) {
        const auto response = complete(fmt::format(R"({{"prompt":"x","stream":{}}})", stream));
        EXPECT_EQ(response.status, status);
        const auto error = json::parse(response.body)["error"];
        EXPECT_EQ(error["message"], "because");
        EXPECT_EQ(error["code"], status);
        EXPECT_EQ(response.headers.contains("retry-after"), status == 429 || status == 503);
      }
    }
  }
}

TEST_F(OpenAiTest, AnErrorInsideAStreamIsAnEvent) {
  test::Script script;
  script.fail_at = 2;
  script.failure = {Code::unavailable, "expert rank 1 died"};
  engine_.set_script(script);
  const auto events = stream(R"({"prompt":"x","max_tokens":5,"stream":true})");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2]["error"]["message"], "expert rank 1 died");
  EXPECT_EQ(events[2]["error"]["code"], 503);
  EXPECT_EQ(complete(R"({"prompt":"x","max_tokens":5})").status, 503);
}

TEST_F(OpenAiTest, BadRequestsNeverReachTheEngine) {
  const auto response = complete(R"({"prompt":"x","max_tokens":"many"})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body)["error"]["param"], "max_tokens");
  EXPECT_EQ(complete(R"({"prompt":"x","model":"gpt-4"})").status, 404);
  EXPECT_EQ(complete(std::string(1'000'000, '[')).status, 400);
  EXPECT_EQ(complete("{\"prompt\":\"\xff\"}").status, 400);
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(OpenAiTest, LargePromptsTakeTheSideDoor) {
  std::string ids = "1";
  for (int i = 1; i < 4000; ++i) ids += ",          2";
  const auto response = complete(R"({"max_tokens":1,"prompt":[)" + ids + "]}");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(engine_.last_request().prompt.size(), 4000u);
  EXPECT_EQ(complete(R"({"prompt":")" + std::string(5 << 20, 'x') + "\"}").status, 400);
  EXPECT_EQ(complete(R"({"prompt":")" + std::string(17 << 20, 'x') + "\"}").status, 413);
}

TEST_F(OpenAiTest, ADisconnectCancels) {
  test::Script script;
  script.first_delay = Duration::seconds(30);
  engine_.set_script(script);
  for (const char* stream : {"true", "false"}) {
    const int before = engine_.cancelled();
    Client client(front_->port());
    client.send(
        post("/v1/completions", fmt::format(R"({{"prompt":["x","y"],"stream":{}}})", stream)));
    while (engine_.active() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    client.close();
    EXPECT_TRUE(engine_.wait_cancelled(before + 2));
    EXPECT_EQ(engine_.active(), 0);
  }
}

TEST_F(OpenAiTest, ADisconnectInTheMiddleOfAStreamCancels) {
  test::Script script;
  script.gap = Duration::millis(20);
  engine_.set_script(script);
  {
    Client client(front_->port());
    client.send(post("/v1/completions", R"({"prompt":"x","max_tokens":1000,"stream":true})"));
    EXPECT_FALSE(client.closed_within(100));
  }
  EXPECT_TRUE(engine_.wait_cancelled(1));
}

TEST_F(OpenAiTest, ASlowReaderIsCancelledAndOthersGoOn) {
  test::Script script;
  script.gap = Duration::millis(2);
  engine_.set_script(script);
  Client slow(front_->port(), /*receive_buffer=*/4096);
  slow.send(post("/v1/completions",
                 R"({"prompt":["a","b","c","d","e","f","g","h"],"max_tokens":4000,"logprobs":20,
                     "stream":true})"));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(complete(R"({"prompt":"x","max_tokens":2})").status, 200);
  }
  EXPECT_TRUE(engine_.wait_cancelled(1));
}

TEST_F(OpenAiTest, TwoHundredStreamsAtOnce) {
  test::Script script;
  script.first_delay = Duration::millis(50);
  engine_.set_script(script);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(front_->port()));
    clients.back()->send(post("/v1/completions", R"({"prompt":"x","max_tokens":5,"stream":true})"));
  }
  for (auto& client : clients) {
    const auto response = client->receive();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->chunks.size(), 6u);
  }
}

TEST_F(OpenAiTest, StoppingCancelsWhatRuns) {
  test::Script script;
  script.first_delay = Duration::seconds(30);
  engine_.set_script(script);
  Client client(front_->port());
  client.send(post("/v1/completions", R"({"prompt":"x"})"));
  while (engine_.active() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  front_->stop();
  EXPECT_EQ(engine_.cancelled(), 1);
  EXPECT_TRUE(client.closed_within(100));
}

TEST_F(OpenAiTest, Pages) {
  const auto page = [&](std::string_view path) { return *fetch(front_->port(), get(path)); };
  const auto models = json::parse(page("/v1/models").body);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(models["data"][0]["root"], "/models/tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 4096);
  EXPECT_FALSE(std::string(json::parse(page("/version").body)["version"]).empty());

  for (const char* path : {"/health", "/liveness", "/ping", "/ready", "/readiness"}) {
    EXPECT_EQ(page(path).status, 200) << path;
  }
  engine_.set_ready("loading weights");
  EXPECT_EQ(page("/health").status, 200);
  for (const char* path : {"/ready", "/readiness", "/health/ready"}) {
    EXPECT_EQ(page(path).status, 503) << path;
    EXPECT_EQ(json::parse(page(path).body)["reason"], "loading weights");
  }

  const auto peers = json::parse(page("/admin/peers").body)["peers"];
  EXPECT_EQ(peers[0], json::parse(R"({"role":"attention","group":0,"tp_rank":1,"moe_rank":null,
                                      "pid":42,"epoch":7,"state":"ready","restarts":0,
                                      "last_death":""})"));
  EXPECT_EQ(peers[1]["moe_rank"], 3);
  EXPECT_EQ(page("/v1/completions").status, 405);
}

TEST_F(OpenAiTest, Metrics) {
  complete(R"({"prompt":"hello","max_tokens":3})");
  complete(R"({"prompt":"hello","max_tokens":3,"stop":"b"})");
  const auto page = *fetch(front_->port(), get("/metrics"));
  EXPECT_TRUE(page.headers.at("content-type").starts_with("text/plain"));
  for (const char* line :
       {"asap:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0",
        "asap:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 0",
        "asap:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.25",
        "asap:prompt_tokens_total{engine=\"0\",model_name=\"tiny\"} 10",
        "asap:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} ",
        "asap:request_success_total{engine=\"0\",model_name=\"tiny\",finished_reason=\"length\"} 1",
        "asap:request_success_total{engine=\"0\",model_name=\"tiny\",finished_reason=\"stop\"} 1",
        "asap:request_success_total{engine=\"0\",model_name=\"tiny\",finished_reason=\"abort\"} 0",
        "asap:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"} 2",
        "asap:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"tiny\",le=\"0.001\"}",
        "asap:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"tiny\",le=\"2560\"}",
        "asap:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"tiny\"} 2",
        "asap:request_queue_time_seconds_count{engine=\"0\",model_name=\"tiny\"} 2",
        "asap:request_queueing_time_seconds_count{engine=\"0\",model_name=\"tiny\"} 2",
        "asap:request_experts_time_seconds_sum{engine=\"0\",model_name=\"tiny\"} 0",
        "asap:request_host_time_seconds_count{engine=\"0\",model_name=\"tiny\"} 2",
        "asap:request_prompt_tokens_bucket{engine=\"0\",model_name=\"tiny\",le=\"5\"} 2",
        "asap:inter_token_latency_seconds_count{engine=\"0\",model_name=\"tiny\"} 3",
        "asap:request_generation_tokens_sum{engine=\"0\",model_name=\"tiny\"} 5",
        "asap:request_params_max_tokens_sum{engine=\"0\",model_name=\"tiny\"} 6",
        "asap:stages_live{engine=\"0\",model_name=\"tiny\",group=\"1\"} 2",
        "asap:dp_balance_ratio{engine=\"0\",model_name=\"tiny\"} 0.75",
        "asap:moe_idle_seconds_total{engine=\"0\",model_name=\"tiny\",moe_rank=\"0\"} 1.5",
        "asap:iteration_tokens_total_bucket{engine=\"0\",model_name=\"tiny\",le=\"8\"} 2",
        "asap:iteration_tokens_total_bucket{engine=\"0\",model_name=\"tiny\",le=\"+Inf\"} 3",
        "asap:fault_state{engine=\"0\",model_name=\"tiny\",state=\"serving\"} 1",
        "asap:fault_state{engine=\"0\",model_name=\"tiny\",state=\"failed\"} 0",
        "asap:ready{engine=\"0\",model_name=\"tiny\"} 1",
        "# TYPE asap:time_to_first_token_seconds histogram"}) {
    EXPECT_NE(page.body.find(line), std::string::npos) << line << "\n" << page.body;
  }
}

TEST_F(OpenAiTest, SeveralAnswersToOnePrompt) {
  const auto reply =
      json::parse(complete(R"({"prompt":["ab","c"],"n":2,"seed":5,"max_tokens":2})").body);
  ASSERT_EQ(reply["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(reply["choices"][i]["index"], i);
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 3);  // each prompt once
  EXPECT_EQ(reply["usage"]["completion_tokens"], 8);
  EXPECT_EQ(engine_.submitted(), 4);
  EXPECT_EQ(engine_.last_request().sampling.seed, 6u);  // 5 and 6, so that answers differ
  const auto events = stream(R"({"prompt":"ab","n":3,"max_tokens":2,"stream":true})");
  EXPECT_EQ(events.size(), 6u);
}

TEST_F(OpenAiTest, StopTokensEndTheTextAndAreNotInIt) {
  test::Script script;
  script.tokens = {'a', 'b', 'c'};
  script.stop_at = 2;
  engine_.set_script(script);
  const auto choice = json::parse(
      complete(R"({"prompt":"x","max_tokens":9,"stop_token_ids":[99]})").body)["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], 99);
  EXPECT_EQ(engine_.last_request().sampling.stop_token_ids, (std::vector<int32_t>{99}));
}

TEST_F(OpenAiTest, StopStringsCountFromMinTokensOnAndMayStay) {
  const auto choice = [&](const char* body) {
    return json::parse(complete(body).body)["choices"][0];
  };
  EXPECT_EQ(choice(R"({"prompt":"x","max_tokens":9,"stop":"c"})")["text"], "ab");
  EXPECT_EQ(choice(R"({"prompt":"x","max_tokens":9,"stop":["b","e"],"min_tokens":3})")["text"],
            "abcd");
  EXPECT_EQ(
      choice(
          R"({"prompt":"x","max_tokens":9,"stop":"cd","include_stop_str_in_output":true})")["text"],
      "abcd");
}

TEST_F(OpenAiTest, CarriesIdsAndTraces) {
  const std::string parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  auto response =
      complete(R"({"prompt":"x"})", "X-Request-Id: mine\r\ntraceparent: " + parent + "\r\n");
  EXPECT_EQ(response.headers.at("x-request-id"), "mine");
  EXPECT_EQ(json::parse(response.body)["id"], "cmpl-mine");
  const std::string ours = response.headers.at("traceparent");
  EXPECT_EQ(ours.substr(0, 36), parent.substr(0, 36));
  EXPECT_NE(ours.substr(36, 16), parent.substr(36, 16));  // a span of our own
  EXPECT_EQ(ours.substr(52), "-01");
  response = complete(R"({"prompt":"x","stream":true,"request_id":"body"})",
                      "traceparent: 00-nonsense\r\n");
  EXPECT_EQ(response.headers.at("x-request-id"), "body");
  EXPECT_FALSE(response.headers.contains("traceparent"));
  EXPECT_EQ(complete(R"({"prompt":""})").headers.count("x-request-id"), 1u);  // of refusals too
}

TEST_F(OpenAiTest, DeadlineAndPriorityReachTheEngine) {
  complete(R"({"prompt":"x","priority":-7})", "X-Queue-Timeout-S: 2.5\r\n");
  EXPECT_EQ(engine_.last_request().queue_timeout.to_seconds(), 2.5);
  EXPECT_EQ(engine_.last_request().priority, -7);
  complete(R"({"prompt":"x"})");
  EXPECT_EQ(engine_.last_request().queue_timeout.ns, 0);
  for (const char* wrong : {"0", "-1", "soon", "nan", "inf", "1e9", "5s"}) {
    const auto response =
        complete(R"({"prompt":"x"})", fmt::format("X-Queue-Timeout-S: {}\r\n", wrong));
    EXPECT_EQ(response.status, 400) << wrong;
    EXPECT_EQ(json::parse(response.body)["error"]["param"], "X-Queue-Timeout-S");
  }
}

TEST_F(OpenAiTest, RefusalsSayWhenToTryAgain) {
  test::Script script;
  script.refuse = Error{Code::overloaded, "full", 2.25};
  engine_.set_script(script);
  const auto response = complete(R"({"prompt":"x"})");
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.headers.at("retry-after"), "3");
  EXPECT_EQ(response.headers.at("retry-after-ms"), "2250");
  const auto page = *fetch(front_->port(), get("/metrics"));
  EXPECT_NE(page.body.find("kind=\"overload\"} 1"), std::string::npos) << page.body;
}

TEST_F(OpenAiTest, AFullServerRefusesBeforeItReadsABody) {
  engine_.set_full(Error{Code::overloaded, "full", 7});
  const std::string large = R"({"prompt":")" + std::string(4 << 20, 'x') + "\"}";
  for (const std::string& body : {large, std::string("not even JSON")}) {
    const auto response = complete(body);
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(response.headers.at("retry-after"), "7");
  }
  // A large one by its head: the rest is still on its way.
  test::Client client(front_->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nContent-Length: 4000000\r\nX-Request-Id: me\r\n\r\n{");
  const auto refused = client.receive();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->headers.at("x-request-id"), "me");
  EXPECT_EQ(refused->headers.at("retry-after"), "7");
  EXPECT_EQ(engine_.submitted(), 0);
  engine_.set_full(std::nullopt);
  EXPECT_EQ(complete(R"({"prompt":"x"})").status, 200);
}

TEST_F(OpenAiTest, TokenizesAndBack) {
  const auto call = [&](const char* path, const char* body) {
    const auto response = fetch(front_->port(), post(path, body));
    return response ? json::parse(response->body) : json();
  };
  const auto ids =
      call("/tokenize", R"({"model":"tiny","prompt":"hey","add_special_tokens":true})");
  EXPECT_EQ(ids["tokens"], json::parse("[104,101,121]"));
  EXPECT_EQ(ids["count"], 3);
  EXPECT_EQ(ids["max_model_len"], 4096);
  EXPECT_TRUE(ids["token_strs"].is_null());
  EXPECT_EQ(call("/tokenize", R"({"prompt":"ab","return_token_strs":true})")["token_strs"],
            json::parse(R"(["a","b"])"));
  EXPECT_EQ(call("/tokenize", R"({"prompt":""})")["count"], 0);
  EXPECT_GT(call("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})")["count"], 2);
  EXPECT_EQ(call("/detokenize", R"({"model":"tiny","tokens":[104,101,121]})")["prompt"], "hey");
  EXPECT_EQ(call("/detokenize", R"({"tokens":[195]})")["prompt"], "\xEF\xBF\xBD");
  EXPECT_EQ(call("/detokenize", R"({"tokens":[257]})")["error"]["param"], "tokens");
  EXPECT_EQ(call("/detokenize", R"({})")["error"]["param"], "tokens");
  EXPECT_EQ(call("/tokenize", R"({"prompt":5})")["error"]["param"], "prompt");
  EXPECT_EQ(call("/tokenize", R"({"prompt":"x","model":"other"})")["error"]["code"], 404);
}

TEST_F(OpenAiTest, AdministersTheEngine) {
  const auto call = [&](const char* path) { return *fetch(front_->port(), post(path, "")); };
  EXPECT_EQ(json::parse(call("/admin/drain").body)["draining"], true);
  EXPECT_TRUE(engine_.draining());
  EXPECT_EQ(fetch(front_->port(), get("/ready"))->status, 503);
  EXPECT_EQ(fetch(front_->port(), get("/health"))->status, 200);
  const auto status = json::parse(fetch(front_->port(), get("/v1/fault_tolerance/status"))->body);
  EXPECT_EQ(status["draining"], true);
  EXPECT_EQ(status["drained"], true);
  EXPECT_EQ(status["peers"].size(), 2u);
  EXPECT_EQ(json::parse(call("/admin/resume").body)["draining"], false);
  EXPECT_EQ(fetch(front_->port(), get("/ready"))->status, 200);
  engine_.set_failed("no group is left");
  EXPECT_EQ(fetch(front_->port(), get("/health"))->status, 503);
  EXPECT_EQ(call("/start_profile").status, 400);  // this engine records nothing
  EXPECT_EQ(json::parse(fetch(front_->port(), get("/load"))->body)["server_load"], 0);
  EXPECT_EQ(json::parse(fetch(front_->port(), get("/get_loads"))->body)["groups"].size(), 2u);
}

TEST_F(OpenAiTest, AClientThatLeavesBeforeTheFirstTokenFreesItsRequest) {
  test::Script script;
  script.first_delay = Duration::seconds(60);
  engine_.set_script(script);
  for (int i = 0; i < 20; ++i) {
    Client client(front_->port());
    client.send(post("/v1/completions", R"({"prompt":["a","b"],"n":2,"stream":true})"));
    const auto begin = std::chrono::steady_clock::now();
    while (engine_.submitted() < 4 * (i + 1) &&
           std::chrono::steady_clock::now() - begin < std::chrono::seconds(5)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  EXPECT_TRUE(engine_.wait_cancelled(80));
  EXPECT_EQ(engine_.active(), 0);
}

}  // namespace
}  // namespace asap
