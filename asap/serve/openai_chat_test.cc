// POST /v1/chat/completions: bodies as values, then the whole front over real sockets with a
// scripted engine.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asap/serve/front.h"
#include "asap/serve/openai_request.h"
#include "asap/serve/test_support.h"

namespace asap {
namespace {

using nlohmann::json;
using test::fetch;
using test::post;

const RequestLimits kChatLimits{"m", 100, 257};

tl::expected<CompletionRequest, ApiError> parse(const std::string& body) {
  static const auto chat = test::chat_template();
  return parse_chat(body, kChatLimits, *chat, 0);
}

std::string prompt_of(const std::string& body) {
  const auto request = parse(body);
  EXPECT_TRUE(request) << body << ": " << (request ? "" : request.error().message);
  return request ? std::get<std::string>(request->prompts.at(0)) : "";
}

// A whole body but for the field of interest.
std::string chat_with(const std::string& field) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + field + "}";
}

// ---- bodies

TEST(ParseChat, RendersTheMessages) {
  EXPECT_EQ(prompt_of(R"({"messages":[{"role":"system","content":"be brief"},
                                      {"role":"user","content":"hi"}]})"),
            "<system>be brief<user>hi<assistant>");
  EXPECT_EQ(prompt_of(chat_with(R"("add_generation_prompt":false)")), "<user>hi");
  EXPECT_EQ(prompt_of(chat_with(R"("chat_template_kwargs":{"effort":"high","x":null})")),
            "<user>hi<effort high><assistant>");
  EXPECT_EQ(prompt_of(R"({"messages":[{"role":"user","content":[{"type":"text","text":"in "},
                                                                {"type":"text","text":"parts"}],
                                       "name":"Ann"}]})"),
            "<user>in \nparts<assistant>");
}

TEST(ParseChat, ToolsKeepTheirOrderAndNumbers) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","b":1.0,
      "a":18446744073709551615,"c":123456789012345678901234567890}}])";
  EXPECT_EQ(
      prompt_of(chat_with(tools)),
      R"(<tools>[{"type": "function", "function": {"name": "f", "b": 1.0, )"
      R"("a": 18446744073709551615, "c": 123456789012345678901234567890}}]<user>hi<assistant>)");
  EXPECT_EQ(prompt_of(chat_with(tools + R"(,"tool_choice":"none")")), "<user>hi<assistant>");
  EXPECT_EQ(prompt_of(chat_with(tools + R"(,"tool_choice":"auto")")), prompt_of(chat_with(tools)));
  EXPECT_EQ(prompt_of(chat_with(R"("tools":[])")), "<user>hi<assistant>");
  EXPECT_EQ(prompt_of(chat_with(R"("tools":null)")), "<user>hi<assistant>");
}

TEST(ParseChat, Defaults) {
  const auto request = parse(chat_with(R"("model":"m")"));
  ASSERT_TRUE(request);
  EXPECT_FALSE(request->add_special_tokens);  // the template has written them
  EXPECT_TRUE(request->fill_context);
  EXPECT_EQ(request->sampling.logprobs, -1);
  EXPECT_EQ(request->sampling.temperature, 1.0);
  EXPECT_FALSE(request->stream);
}

TEST(ParseChat, AcceptsWhatClientsSend) {
  const auto request = parse(chat_with(
      R"("model":"m","max_completion_tokens":7,"temperature":0,"n":1,"stream":true,"seed":3,
         "stream_options":{"include_usage":true},"stop":["x"],"logprobs":true,"top_logprobs":2,
         "ignore_eos":true,"top_p":0.5,"frequency_penalty":0,"presence_penalty":0,"user":"u",
         "response_format":{"type":"text"},"tool_choice":null,"functions":null,"lora_path":null,
         "parallel_tool_calls":true,"chat_template":null,"continue_final_message":false,
         "reasoning_effort":"low","add_special_tokens":true)"));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->sampling.max_tokens, 7);
  EXPECT_FALSE(request->fill_context);
  EXPECT_EQ(request->sampling.logprobs, 2);
  EXPECT_TRUE(request->stream && request->include_usage && request->has_seed);
  EXPECT_TRUE(request->add_special_tokens);
  EXPECT_EQ(parse(chat_with(R"("logprobs":true)"))->sampling.logprobs, 0);
  EXPECT_EQ(parse(chat_with(R"("logprobs":false)"))->sampling.logprobs, -1);
  EXPECT_EQ(parse(chat_with(R"("max_tokens":5)"))->sampling.max_tokens, 5);
  EXPECT_EQ(parse(chat_with(R"("max_tokens":5,"max_completion_tokens":9)"))->sampling.max_tokens,
            9);
}

TEST(ParseChat, RefusesAndNamesTheField) {
  const struct {
    std::string body, param, message;
    int status = 400;
  } cases[] = {
      {"{", "", "at byte"},
      {std::string(100'000, '['), "", "deeper"},
      {"{}", "messages", "missing"},
      {R"({"messages":null})", "messages", "missing"},
      {R"({"messages":[]})", "messages", "messages is empty: expected an array of at least one"},
      {R"({"messages":"hi"})", "messages", "array"},
      {R"({"messages":{"role":"user"}})", "messages", "array"},
      {R"({"messages":["hi"]})", "messages[0]", "messages[0] is string \"hi\": expected an object"},
      {R"({"messages":[{"content":"hi"}]})", "messages[0].role", "missing"},
      {R"({"messages":[{"role":null,"content":"hi"}]})", "messages[0].role", "missing"},
      {R"({"messages":[{"role":5,"content":"hi"}]})", "messages[0].role", "number 5"},
      {R"({"messages":[{"role":"user","content":"hi"},{"role":"narrator","content":"hi"}]})",
       "messages[1].role", "string \"narrator\": expected \"system\", \"developer\", \"user\""},
      {R"({"messages":[{"role":"User","content":"hi"}]})", "messages[0].role", "User"},
      {R"({"messages":[{"role":"user","content":7}]})", "messages[0].content", "number 7"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing"},
      {R"({"messages":[{"role":"system","content":null}]})", "messages[0].content", "missing"},
      {R"({"messages":[{"role":"tool"}]})", "messages[0].content", "missing"},
      {R"({"messages":[{"role":"assistant"}]})", "messages[0].content", "tool_calls"},
      {R"({"messages":[{"role":"assistant","content":null,"tool_calls":[]}]})",
       "messages[0].content", "tool_calls"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
       "messages", "image_url"},
      {R"({"messages":[{"role":"user","content":"refuse"}]})", "messages", "as you wish"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f",
          "arguments":"{"}}]}]})",
       "messages", "arguments"},
      {chat_with(R"("model":"other")"), "model", "other", 404},
      {chat_with(R"("n":0)"), "n", "from 1 to 256"},
      {chat_with(R"("max_tokens":0)"), "max_tokens", "from 1 to 100"},
      {chat_with(R"("max_completion_tokens":101)"), "max_completion_tokens", "from 1 to 100"},
      {chat_with(R"("temperature":-1)"), "temperature", "at least 0"},
      {chat_with(R"("logprobs":5)"), "logprobs", "true or false"},
      {chat_with(R"("top_logprobs":3)"), "top_logprobs", "logprobs"},
      {chat_with(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "from 0 to 20"},
      {chat_with(R"("stop":5)"), "stop", "number 5"},
      {chat_with(R"("stream":1)"), "stream", "number 1"},
      {chat_with(R"("tools":5)"), "tools", "array of objects"},
      {chat_with(R"("tools":[5])"), "tools", "array of objects"},
      {chat_with(R"("tool_choice":"required")"), "tool_choice", "not enforced"},
      {chat_with(R"("tool_choice":{"type":"function"})"), "tool_choice", "not enforced"},
      {chat_with(R"("functions":[])"), "functions", "not supported"},
      {chat_with(R"("function_call":"auto")"), "function_call", "not supported"},
      {chat_with(R"("response_format":{"type":"json_object"})"), "response_format", "not enforced"},
      {chat_with(R"("response_format":"text")"), "response_format", "not enforced"},
      {chat_with(R"("guided_json":{})"), "guided_json", "not enforced"},
      {chat_with(R"("structured_outputs":{"choice":["a"]})"), "structured_outputs", "not enforced"},
      {chat_with(R"("chat_template":"x")"), "chat_template", "not supported"},
      {chat_with(R"("chat_template_kwargs":5)"), "chat_template_kwargs", "an object"},
      {chat_with(R"("chat_template_kwargs":{"messages":[]})"), "chat_template_kwargs", "messages"},
      {chat_with(R"("continue_final_message":true)"), "continue_final_message", "false"},
      {chat_with(R"("add_generation_prompt":1)"), "add_generation_prompt", "true or false"},
  };
  for (const auto& expected : cases) {
    const std::string shown = expected.body.substr(0, 100);
    const auto request = parse(expected.body);
    ASSERT_FALSE(request) << shown;
    EXPECT_EQ(request.error().status, expected.status) << shown;
    EXPECT_EQ(request.error().param, expected.param) << shown << ": " << request.error().message;
    EXPECT_NE(request.error().message.find(expected.message), std::string::npos)
        << shown << ": " << request.error().message;
  }
}

TEST(ParseChat, KnownRolesAndWhatMayStandForContent) {
  for (const char* role : {"system", "developer", "user", "assistant", "tool", "function"}) {
    EXPECT_EQ(prompt_of(fmt::format(R"({{"messages":[{{"role":"{}","content":""}}]}})", role)),
              fmt::format("<{}><assistant>", role));
  }
  for (const char* instead :
       {R"("content":null,"tool_calls":[{"function":{"name":"f"}}])",
        R"("tool_calls":[{"function":{"name":"f"}}])", R"("function_call":{"name":"f"})",
        R"("reasoning_content":"hm")", R"("reasoning":"hm")", R"("refusal":"no")"}) {
    EXPECT_EQ(prompt_of(fmt::format(R"({{"messages":[{{"role":"assistant",{}}}]}})", instead)),
              "<assistant><assistant>");
  }
}

TEST(ParseChat, RefusesAnEmptyPrompt) {
  const auto silent = ChatTemplate::parse("{# says nothing #}", "");
  const auto request = parse_chat(chat_with(R"("seed":1)"), kChatLimits, *silent, 0);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().param, "messages");
  EXPECT_NE(request.error().message.find("empty prompt"), std::string::npos);
}

TEST(ParseChat, WithoutMaxTokensTheContextIsFilled) {
  auto request = parse(chat_with(R"("seed":1)"));
  ASSERT_TRUE(request);
  const auto ids = tokenize_prompts(*request, kChatLimits, test::byte_tokenizer());
  ASSERT_TRUE(ids);
  const std::string prompt = "<user>hi<assistant>";
  EXPECT_EQ((*ids)[0], std::vector<int32_t>(prompt.begin(), prompt.end()));
  EXPECT_EQ(request->sampling.max_tokens, 100 - static_cast<int>(prompt.size()));

  auto large = parse(R"({"messages":[{"role":"user","content":")" + std::string(90, 'x') + "\"}]}");
  ASSERT_TRUE(large);
  const auto refused = tokenize_prompts(*large, kChatLimits, test::byte_tokenizer());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "messages");
}

// ---- the front

class ChatTest : public ::testing::Test {
 protected:
  void SetUp() override { start(test::chat_template()); }

  void start(Result<ChatTemplate> chat) {
    ServeOptions options;
    options.port = 0;
    options.served_model_name = "tiny";
    front_.reset();
    auto front = HttpFront::start(options, engine_, test::byte_tokenizer(), std::move(chat));
    ASSERT_TRUE(front) << front.error().message;
    front_ = *std::move(front);
  }

  test::Response chat(const std::string& body, std::string_view headers = "") {
    const auto response = fetch(front_->port(), post("/v1/chat/completions", body, headers));
    EXPECT_TRUE(response) << body;
    return response.value_or(test::Response{});
  }

  // The events of a stream, without [DONE]. Each must be one chunk.
  std::vector<json> stream(const std::string& body) {
    const auto response = chat(body);
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<json> events;
    for (const std::string& chunk : response.chunks) {
      EXPECT_TRUE(chunk.starts_with("data: ") && chunk.ends_with("\n\n")) << chunk;
      if (chunk != "data: [DONE]\n\n") events.push_back(json::parse(chunk.substr(6)));
    }
    EXPECT_EQ(response.chunks.empty() ? "" : response.chunks.back(), "data: [DONE]\n\n");
    return events;
  }

  test::FakeEngine engine_;
  std::unique_ptr<HttpFront> front_;
};

TEST_F(ChatTest, AnswersInOnePiece) {
  const auto response =
      chat(chat_with(R"("model":"tiny","max_tokens":3)"), "X-Request-Id: abc\r\n");
  ASSERT_EQ(response.status, 200) << response.body;
  const auto reply = json::parse(response.body);
  EXPECT_EQ(reply["id"], "chatcmpl-abc");
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["model"], "tiny");
  EXPECT_GT(reply["created"], 1'600'000'000);
  EXPECT_EQ(reply["choices"], json::parse(R"([{"index":0,
      "message":{"role":"assistant","content":"abc"},"logprobs":null,"finish_reason":"length",
      "stop_reason":null}])"));
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 19);
  EXPECT_EQ(reply["usage"]["completion_tokens"], 3);
  const auto ids = engine_.last_request().prompt;
  EXPECT_EQ(std::string(ids.begin(), ids.end()), "<user>hi<assistant>");
  EXPECT_TRUE(std::string(json::parse(chat(chat_with(R"("max_tokens":1)")).body)["id"])
                  .starts_with("chatcmpl-"));
}

TEST_F(ChatTest, StreamsTheRoleWithTheFirstToken) {
  const auto events =
      stream(chat_with(R"("max_tokens":3,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", "a"}}));
  EXPECT_EQ(events[1]["choices"][0]["delta"], (json{{"content", "b"}}));
  EXPECT_EQ(events[2]["choices"][0]["delta"], (json{{"content", "c"}}));
  EXPECT_EQ(events[0]["choices"][0]["finish_reason"], json(nullptr));
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
  for (const auto& event : events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["id"], events[0]["id"]);
  }
  EXPECT_TRUE(events[3]["choices"].empty());
  EXPECT_EQ(events[3]["usage"]["completion_tokens"], 3);
}

TEST_F(ChatTest, TheFirstEventIsNeverEmpty) {
  test::Script script;
  script.tokens = {0xC3, 0xA9};
  engine_.set_script(script);
  const auto events = stream(chat_with(R"("max_tokens":2,"stream":true)"));
  EXPECT_EQ(events[0]["choices"][0]["delta"]["content"], "\xEF\xBF\xBD");
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "\xC3\xA9");
}

TEST_F(ChatTest, StopStringsEndTheText) {
  const auto reply = json::parse(chat(chat_with(R"("max_tokens":50,"stop":["de"])")).body);
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "abc");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(reply["choices"][0]["stop_reason"], "de");
}

TEST_F(ChatTest, LogprobsInTheChatForm) {
  const auto reply =
      json::parse(chat(chat_with(R"("max_tokens":1,"logprobs":true,"top_logprobs":2)")).body);
  EXPECT_EQ(reply["choices"][0]["logprobs"], json::parse(R"({"content":[
      {"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[
        {"token":"A","logprob":-1.0,"bytes":[65]},{"token":"B","logprob":-2.0,"bytes":[66]}]}]})"));
  const auto events = stream(chat_with(R"("max_tokens":1,"logprobs":true,"stream":true)"));
  EXPECT_EQ(events[0]["choices"][0]["logprobs"], json::parse(R"({"content":[
      {"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}]})"));
}

TEST_F(ChatTest, TokenIdsOnRequest) {
  const auto choice =
      json::parse(chat(chat_with(R"("max_tokens":2,"return_token_ids":true)")).body)["choices"][0];
  EXPECT_EQ(choice["token_ids"], (json{'a', 'b'}));
  EXPECT_EQ(choice["prompt_token_ids"].size(), 19u);
}

TEST_F(ChatTest, TimingOnRequest) {
  const auto reply = json::parse(chat(chat_with(R"("max_tokens":2,"return_timing":true)")).body);
  EXPECT_EQ(reply["asap_timing"].size(), 8u) << reply;
}

TEST_F(ChatTest, ErrorsHaveTheirStatusAndNeverReachTheEngine) {
  const auto refused =
      json::parse(chat(R"({"messages":[{"role":"user","content":"refuse"}]})").body)["error"];
  EXPECT_EQ(refused["code"], 400);
  EXPECT_EQ(refused["param"], "messages");
  EXPECT_EQ(chat(chat_with(R"("model":"gpt-4")")).status, 404);
  EXPECT_EQ(chat("{").status, 400);
  EXPECT_EQ(
      chat(R"({"messages":[{"role":"user","content":")" + std::string(8000, 'x') + "\"}]}").status,
      400);
  EXPECT_EQ(engine_.submitted(), 0);
  EXPECT_EQ(fetch(front_->port(), test::get("/v1/chat/completions"))->status, 405);

  test::Script script;
  script.fail_at = 1;
  script.failure = {Code::unavailable, "expert rank 1 died"};
  engine_.set_script(script);
  EXPECT_EQ(chat(chat_with(R"("max_tokens":5)")).status, 503);
  const auto events = stream(chat_with(R"("max_tokens":5,"stream":true)"));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1]["error"]["message"], "expert rank 1 died");
}

TEST_F(ChatTest, AModelWithoutTemplateSaysHowToGiveOne) {
  start(fail(Code::not_found, "no template here: give one with --chat-template FILE"));
  const auto response = chat(chat_with(R"("max_tokens":1)"));
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("--chat-template"), std::string::npos);
  EXPECT_EQ(fetch(front_->port(), post("/v1/completions", R"({"prompt":"x"})"))->status, 200);
}

TEST_F(ChatTest, ADisconnectCancels) {
  test::Script script;
  script.first_delay = Duration::seconds(30);
  engine_.set_script(script);
  {
    test::Client client(front_->port());
    client.send(post("/v1/chat/completions", chat_with(R"("stream":true)")));
    while (engine_.active() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(engine_.wait_cancelled(1));
}

}  // namespace
}  // namespace asap
