// Malformed requests by the hundred, over real sockets: every one is answered with a 4xx in
// OpenAI's form that names the field at fault, none reaches the engine, and the server goes on.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asap/serve/front.h"
#include "asap/serve/test_support.h"

namespace asap {
namespace {

using nlohmann::json;
using test::Client;
using test::fetch;
using test::get;
using test::post;

// ---- fields of the wrong type or range

enum class Kind { boolean, integer, number, object, text, ids };

struct Field {
  const char* name;
  Kind kind;
};

const Field kShared[] = {
    {"n", Kind::integer},
    {"best_of", Kind::integer},
    {"max_tokens", Kind::integer},
    {"max_completion_tokens", Kind::integer},
    {"min_tokens", Kind::integer},
    {"seed", Kind::integer},
    {"top_k", Kind::integer},
    {"priority", Kind::integer},
    {"temperature", Kind::number},
    {"top_p", Kind::number},
    {"min_p", Kind::number},
    {"presence_penalty", Kind::number},
    {"frequency_penalty", Kind::number},
    {"repetition_penalty", Kind::number},
    {"stream", Kind::boolean},
    {"ignore_eos", Kind::boolean},
    {"return_token_ids", Kind::boolean},
    {"add_special_tokens", Kind::boolean},
    {"skip_special_tokens", Kind::boolean},
    {"stream_options", Kind::object},
    {"logit_bias", Kind::object},
    {"stop_token_ids", Kind::ids},
    {"model", Kind::text},
    {"request_id", Kind::text},
};
const Field kOfCompletions[] = {
    {"logprobs", Kind::integer}, {"echo", Kind::boolean}, {"prompt", Kind::text}};
const Field kOfChats[] = {{"top_logprobs", Kind::integer},
                          {"logprobs", Kind::boolean},
                          {"add_generation_prompt", Kind::boolean},
                          {"continue_final_message", Kind::boolean},
                          {"chat_template_kwargs", Kind::object},
                          {"messages", Kind::ids},
                          {"tools", Kind::ids}};

std::vector<const char*> wrong_values(Kind kind) {
  switch (kind) {
    case Kind::boolean: return {R"("true")", "1", "0", "[]", "{}"};
    case Kind::integer:
      return {R"("1")",
              "true",
              "[1]",
              "{}",
              "1.5",
              "9223372036854775808",
              "-9223372036854775809",
              "1e300",
              "18446744073709551616"};
    case Kind::number: return {R"("0.5")", "true", "[0.5]", "{}", "-1e300"};
    case Kind::object: return {R"("{}")", "true", "[]", "1"};
    case Kind::text: return {"5", "true", "{}", "-0.5"};
    case Kind::ids: return {R"("1,2")", "1", "true", "{}", "[-1]", "[[1]]", R"(["a"])", "[null]"};
  }
  return {};
}

class MalformedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ServeOptions options;
    options.port = 0;
    options.served_model_name = "m";
    options.max_body_bytes = size_t{1} << 20;
    options.header_timeout = options.body_timeout = Duration::millis(300);
    options.linger_timeout = Duration::millis(50);
    front_ = *HttpFront::start(options, engine_, test::byte_tokenizer(), test::chat_template());
  }

  void TearDown() override {
    EXPECT_EQ(engine_.submitted(), 0);
    const auto alive = fetch(front_->port(), post("/v1/completions", R"({"prompt":"x"})"));
    ASSERT_TRUE(alive);
    EXPECT_EQ(alive->status, 200);
    std::printf("  %d malformed requests\n", cases_);
  }

  // A 4xx in OpenAI's form. `param`: what it must name; null: whatever it does.
  void expect_refusal(const std::optional<test::Response>& response, const std::string& what,
                      const char* param) {
    ++cases_;
    const std::string shown = what.substr(0, 120);
    ASSERT_TRUE(response) << shown;
    EXPECT_TRUE(response->status >= 400 && response->status < 500)
        << shown << ": " << response->status;
    const auto body = json::parse(response->body, nullptr, false);
    ASSERT_TRUE(body.is_object() && body.contains("error")) << shown << ": " << response->body;
    EXPECT_EQ(body["error"]["code"], response->status) << shown;
    EXPECT_FALSE(body["error"]["message"].get<std::string>().empty()) << shown;
    if (param == nullptr) return;
    const std::string named = body["error"]["param"].is_string() ? body["error"]["param"] : "";
    EXPECT_TRUE(named == param || named.starts_with(std::string(param) + ".") ||
                named.starts_with(std::string(param) + "["))
        << shown << " names '" << named << "': " << body["error"]["message"];
  }

  void expect_body_refused(const char* path, const std::string& body, const char* param) {
    if (!client_) client_ = std::make_unique<Client>(front_->port());
    client_->send(post(path, body));
    expect_refusal(client_->receive(), fmt::format("{} {}", path, body), param);
  }

  void expect_wire_refused(const std::string& bytes) {
    Client client(front_->port());
    client.send(bytes);
    expect_refusal(client.receive(), bytes, nullptr);
  }

  test::FakeEngine engine_;
  std::unique_ptr<HttpFront> front_;
  std::unique_ptr<Client> client_;  // bodies keep one connection: it must stay in step
  int cases_ = 0;
};

TEST_F(MalformedTest, FieldsOfTheWrongType) {
  const auto try_all = [&](const char* path, const char* rest, std::span<const Field> fields) {
    for (const Field& field : fields) {
      for (const char* value : wrong_values(field.kind)) {
        // The field itself may be the one that the rest would bring.
        const bool own = std::string_view(rest).find(fmt::format("\"{}\"", field.name)) !=
                         std::string_view::npos;
        const std::string body =
            fmt::format("{{\"{}\":{}{}{}}}", field.name, value, own ? "" : ",", own ? "" : rest);
        expect_body_refused(path, body, field.name);
      }
    }
  };
  const char* prompt = R"("prompt":"hi")";
  const char* messages = R"("messages":[{"role":"user","content":"hi"}])";
  try_all("/v1/completions", prompt, kShared);
  try_all("/v1/completions", prompt, kOfCompletions);
  try_all("/v1/chat/completions", messages, kShared);
  try_all("/v1/chat/completions", messages, kOfChats);
  EXPECT_GE(cases_, 200);
}

TEST_F(MalformedTest, BodiesThatAreNoJsonObject) {
  const std::string deep(50'000, '[');
  const std::string bodies[] = {
      "",
      " ",
      "nul",
      "null",
      "true",
      "1",
      "\"a\"",
      "[]",
      "[{}]",
      "{",
      "}",
      "{]",
      "{\"a\"}",
      "{\"a\":}",
      "{\"a\":1,}",
      "{,}",
      "{'a':1}",
      "{\"a\":1}{\"b\":2}",
      "{\"a\":1} x",
      "{\"a\":01}",
      "{\"a\":+1}",
      "{\"a\":.5}",
      "{\"a\":1.}",
      "{\"a\":1e}",
      "{\"a\":NaN}",
      "{\"a\":Infinity}",
      "{\"a\":-Infinity}",
      "{\"a\":1e999}",
      "{\"a\":0x10}",
      "{\"a\":\"\\x41\"}",
      "{\"a\":\"\\ud800\"}",
      "{\"a\":\"\\udc00\"}",
      "{\"a\":\"\\u12\"}",
      "{\"a\":\"\t\"}",
      "{\"a\":\"unterminated}",
      "{\"a\":\"\xff\"}",
      "{\"a\":\"\xc0\x80\"}",
      "{\"a\":\"\xed\xa0\x80\"}",
      "{\"a\":\"\xf4\x90\x80\x80\"}",
      "{\"a\":\"\xe2\x82\"}",
      "\xef\xbb\xbf[]",
      "\xff\xfe{\"a\":1}",
      "/* c */ {}",
      "{\"a\":1 /* c */}",
      std::string("{\"a\":\"\0\"}", 9),
      std::string("\0", 1),
      deep,
      "{\"a\":" + deep,
      "{\"a\":" + std::string(65, '[') + std::string(65, ']') + "}",
      std::string(65, '{'),
      "data: {}",
      "<xml/>",
      "prompt=x&max_tokens=1",
      "--boundary\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nx\r\n--boundary--\r\n"};
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    for (const std::string& body : bodies) expect_body_refused(path, body, nullptr);
  }
}

TEST_F(MalformedTest, PromptsAndMessagesOutOfRange) {
  const char* const prompts[] = {"[]",
                                 "\"\"",
                                 "[\"\"]",
                                 "[[]]",
                                 "[257]",
                                 "[-1]",
                                 "[9223372036854775807]",
                                 "[1.0e2]",
                                 "[1.5]",
                                 "[null]",
                                 "[true]",
                                 "[{}]",
                                 "[1,\"a\"]",
                                 "[\"a\",1]",
                                 "[[1],[257]]",
                                 "[[1],\"\"]",
                                 "[[[1]]]",
                                 "[\"a\",null]",
                                 "{\"text\":\"a\"}",
                                 "null"};
  for (const char* prompt : prompts) {
    expect_body_refused("/v1/completions", fmt::format("{{\"prompt\":{}}}", prompt), "prompt");
  }
  std::string many = "{\"prompt\":[\"a\"";
  for (int i = 0; i < 256; ++i) many += ",\"a\"";
  expect_body_refused("/v1/completions", many + "]}", "prompt");
  expect_body_refused("/v1/completions",
                      "{\"prompt\":\"" + std::string(5000, 'x') + "\",\"max_tokens\":1}", "prompt");
  expect_body_refused("/v1/completions",
                      "{\"prompt\":\"" + std::string(4000, 'x') + "\",\"max_tokens\":100}",
                      "max_tokens");
  const char* const messages[] = {"[]",   "null",     "\"hi\"", "[1]",
                                  "[[]]", "[\"hi\"]", "[null]", "{}"};
  for (const char* value : messages) {
    expect_body_refused("/v1/chat/completions", fmt::format("{{\"messages\":{}}}", value),
                        "messages");
  }
}

TEST_F(MalformedTest, BytesThatAreNoRequest) {
  const std::string host = "Host: t\r\n";
  const std::string head = "POST /v1/completions HTTP/1.1\r\n" + host;
  std::string headers;
  for (int i = 0; i < 5000; ++i) headers += fmt::format("X-{}: y\r\n", i);
  const std::string requests[] = {
      "hello\r\n\r\n",
      "GET\r\n\r\n",
      "GET /\r\n\r\n",
      " GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.2.3\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "GET / HTTQ/1.1\r\n\r\n",
      "GET / http/1.1\r\n\r\n",
      "GET  / HTTP/1.1\r\n\r\n",
      "GET /a b HTTP/1.1\r\n\r\n",
      "G\x01T / HTTP/1.1\r\n\r\n",
      std::string("GET /\0 HTTP/1.1\r\n\r\n", 19),
      "GET /\x7f HTTP/1.1\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
      "GET / HTTP/1.1\r\nno colon\r\n\r\n",
      "GET / HTTP/1.1\r\n: empty name\r\n\r\n",
      "GET / HTTP/1.1\r\nA b: c\r\n\r\n",
      std::string("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 25),
      "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
      "GET / HTTP/1.1\r\n" + headers + "\r\n",
      "GET /" + std::string(40'000, 'a') + " HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nCookie: " + std::string(40'000, 'a') + "\r\n\r\n",
      head + "Content-Length: -1\r\n\r\n",
      head + "Content-Length: x\r\n\r\n",
      head + "Content-Length: 1e3\r\n\r\n",
      head + "Content-Length: 0x10\r\n\r\n",
      head + "Content-Length: 4, 5\r\n\r\nabcd",
      head + "Content-Length: 99999999999999999999\r\n\r\n",
      head + "Content-Length: 18446744073709551615\r\n\r\n",
      head + "Content-Length: 2000000\r\n\r\n",
      head + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
      head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nabcd",
      head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
      head + "Transfer-Encoding: chunked\r\n\r\n-1\r\nab\r\n",
      head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nab\r\n",
      head + "Transfer-Encoding: chunked\r\n\r\nffffffff\r\nab\r\n",
      head + "Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
      head + "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
      head + "Content-Encoding: br\r\nContent-Length: 4\r\n\r\nabcd",
      head + "Content-Length: 4\r\n\r\nab",  // the rest never comes
      "GET / HTTP/1.1\r\nHost",              // likewise
      "GET /nowhere HTTP/1.1\r\n\r\n",
      "GET /v1/completions HTTP/1.1\r\n\r\n",
      "DELETE /v1/completions HTTP/1.1\r\n\r\n",
      "post /v1/completions HTTP/1.1\r\n\r\n",
      "TRACE / HTTP/1.1\r\n\r\n",
      "CONNECT example.org:443 HTTP/1.1\r\n\r\n",
      "GET http://example.org/health HTTP/1.1\r\n\r\n",
      "GET /../etc/passwd HTTP/1.1\r\n\r\n",
      "GET /%2e%2e/health HTTP/1.1\r\n\r\n",
      "GET //health HTTP/1.1\r\n\r\n"};
  for (const std::string& request : requests) expect_wire_refused(request);
}

}  // namespace
}  // namespace asap
