// The HTTP server against a client that speaks bytes: framing, limits, timeouts, disconnects, many
// connections.
#include "asap/serve/http.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>

#include "asap/serve/test_support.h"

namespace asap {
namespace {

using test::Client;
using test::fetch;
using test::get;
using test::post;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A server with an echo, a stream that others feed, and a request that is never answered.
class HttpTest : public ::testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.port = 0;
    HttpRouter router;
    router.add("GET", "/hello", [](const auto& exchange) { exchange->reply({200, "hello"}); });
    router.add("GET", "/probe", [](const auto& exchange) { exchange->reply({200, "alive"}); });
    router.add_probe("/probe");
    router.add("POST", "/echo", [](const auto& exchange) {
      exchange->reply({200, exchange->request().body, "text/plain"});
    });
    router.add("POST", "/never", [this](const auto& exchange) {
      exchange->on_disconnect([this] { ++disconnects_; });
      kept_ = exchange;
      is_kept_ = true;
    });
    router.add("GET", "/stream", [this](const auto& exchange) {
      exchange->on_disconnect([this] { ++disconnects_; });
      exchange->begin_stream("text/event-stream");
      exchange->send("one");
      exchange->send("two");
      exchange->end_stream("three");
    });
    router.add("GET", "/flood", [this](const auto& exchange) {
      exchange->on_disconnect([this] { ++disconnects_; });
      exchange->begin_stream("text/event-stream");
      is_flooding_ = true;
      feed(exchange);
    });
    router.add("GET", "/throws", [](const auto&) { throw std::runtime_error("no luck"); });
    router.add("GET", "/offload", [](const auto& exchange) {
      exchange->offload([exchange] {
        exchange->post([exchange] { exchange->reply({200, "later"}); });
      });
    });
    auto server = HttpServer::start(options, std::move(router));
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
  }

  // Sends for ever, one piece per turn of the strand.
  static void feed(const std::shared_ptr<HttpExchange>& exchange) {
    exchange->send(std::string(16384, 'x'));
    exchange->post([exchange] { feed(exchange); });
  }

  uint16_t port() const { return server_->port(); }
  bool wait_disconnects(int count) {
    const auto start = Clock::now();
    while (disconnects_ < count && seconds_since(start) < 5) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return disconnects_ >= count;
  }
  // The error body of a refusal, checked for its form.
  static nlohmann::json error_of(const test::Response& response) {
    const auto json = nlohmann::json::parse(response.body);
    EXPECT_EQ(json["error"]["code"], response.status);
    EXPECT_TRUE(json["error"]["message"].is_string());
    EXPECT_TRUE(json["error"]["type"].is_string());
    return json["error"];
  }

  std::atomic<int> disconnects_{0};
  std::shared_ptr<HttpExchange> kept_;  // of /never; for the test once is_kept_ is set
  std::atomic<bool> is_kept_{false};
  std::atomic<bool> is_flooding_{false};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTest, KeepsTheConnectionOverManyRequests) {
  start();
  Client client(port());
  for (int i = 0; i < 100; ++i) {
    const std::string body = "body " + std::to_string(i);
    ASSERT_TRUE(client.send(post("/echo?x=1", body)));
    const auto response = client.receive();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, body);
    EXPECT_EQ(response->headers.at("connection"), "keep-alive");
    EXPECT_EQ(response->headers.at("content-type"), "text/plain");
  }
}

TEST_F(HttpTest, AnswersPipelinedRequestsInOrder) {
  start();
  Client client(port());
  std::string requests;
  for (int i = 0; i < 20; ++i) requests += post("/echo", std::to_string(i)) + get("/stream");
  ASSERT_TRUE(client.send(requests));
  for (int i = 0; i < 20; ++i) {
    const auto echo = client.receive();
    ASSERT_TRUE(echo);
    EXPECT_EQ(echo->body, std::to_string(i));
    const auto stream = client.receive();
    ASSERT_TRUE(stream);
    EXPECT_EQ(stream->body, "onetwothree");
  }
}

TEST_F(HttpTest, TakesRequestsByteByByte) {
  start();
  Client client(port());
  for (const char c : post("/echo", "slow but fine")) ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.receive()->body, "slow but fine");
}

TEST_F(HttpTest, StreamsOneChunkPerSend) {
  start();
  Client client(port());
  client.send(get("/stream"));
  const auto response = client.receive();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(response->chunks, (std::vector<std::string>{"one", "two", "three"}));
  client.send(get("/hello"));  // the connection lives on
  EXPECT_EQ(client.receive()->body, "hello");
}

TEST_F(HttpTest, StreamsToHttp10WithoutChunks) {
  start();
  Client client(port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const auto response = client.receive();
  ASSERT_TRUE(response);
  EXPECT_FALSE(response->headers.contains("transfer-encoding"));
  EXPECT_EQ(response->body, "onetwothree");
}

TEST_F(HttpTest, TakesChunkedBodies) {
  start();
  Client client(port());
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.send("2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.receive()->body, "abcde");
}

TEST_F(HttpTest, SaysContinueWhenAsked) {
  start();
  Client client(port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.receive()->status, 100);
  client.send("body");
  EXPECT_EQ(client.receive()->body, "body");
}

TEST_F(HttpTest, RoutesMethodsAndPaths) {
  start();
  auto response = fetch(port(), get("/nowhere"));
  EXPECT_EQ(response->status, 404);
  EXPECT_NE(std::string(error_of(*response)["message"]).find("/nowhere"), std::string::npos);

  response = fetch(port(), get("/echo"));
  EXPECT_EQ(response->status, 405);
  EXPECT_EQ(response->headers.at("allow"), "POST, OPTIONS");
  error_of(*response);
  EXPECT_EQ(fetch(port(), "BREW /hello HTTP/1.1\r\nHost: t\r\n\r\n")->status, 405);

  response = fetch(port(), "OPTIONS /hello HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(response->status, 204);
  EXPECT_EQ(response->headers.at("allow"), "GET, HEAD, OPTIONS");

  Client client(port());
  client.send("HEAD /hello HTTP/1.1\r\nHost: t\r\n\r\n" + get("/hello"));
  response = client.receive(/*head_only=*/true);
  EXPECT_EQ(response->headers.at("content-length"), "5");
  EXPECT_EQ(client.receive()->body, "hello");
}

TEST_F(HttpTest, RefusesALargeBodyAndStillGetsTheAnswerThrough) {
  start();
  const std::string body(17 << 20, 'x');
  Client client(port());
  ASSERT_TRUE(client.send(post("/echo", body)));  // all of it, as clients do that read only then
  const auto response = client.receive();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 413);
  EXPECT_EQ(response->headers.at("connection"), "close");
  EXPECT_NE(std::string(error_of(*response)["message"]).find("16777216"), std::string::npos);
  EXPECT_TRUE(client.closed_within(1000));
}

TEST_F(HttpTest, RefusesALargeChunkedBody) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  start(options);
  Client client(port());
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; ++i) client.send("1f4\r\n" + std::string(500, 'x') + "\r\n");
  EXPECT_EQ(client.receive()->status, 413);
}

TEST_F(HttpTest, TakesABodyOfSeveralMegabytes) {
  start();
  const std::string body(7 << 20, 'x');
  EXPECT_EQ(fetch(port(), post("/echo", body))->body, body);
}

TEST_F(HttpTest, RefusesALargeHead) {
  start();
  auto response =
      fetch(port(), "GET /hello HTTP/1.1\r\nX-Long: " + std::string(20'000, 'x') + "\r\n\r\n");
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 431);
  error_of(*response);
  response = fetch(port(), "GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n\r\n");
  EXPECT_EQ(response->status, 431);
}

TEST_F(HttpTest, RefusesWhatIsNotHttp) {
  start();
  for (const std::string_view garbage :
       {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS\r\n\r\n", "GET\r\n\r\n", "hello\r\n\r\n",
        "GET / HTTP/3.7\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        "POST /echo HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nabcd",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n"}) {
    Client client(port());
    client.send(garbage);
    const auto response = client.receive();
    ASSERT_TRUE(response) << garbage;
    EXPECT_EQ(response->status, 400) << garbage;
    error_of(*response);
    EXPECT_TRUE(client.closed_within(4000)) << garbage;
  }
}

TEST_F(HttpTest, TimesOutSlowHeadsAndBodies) {
  HttpOptions options;
  options.header_timeout = options.body_timeout = Duration::millis(200);
  options.idle_timeout = Duration::millis(400);
  start(options);
  const auto begin = Clock::now();
  Client head(port()), body(port()), idle(port());
  body.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc");
  // A drop every 50 ms does not help: the limit is for the whole head.
  for (int i = 0; i < 10 && head.send("G"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(head.receive()->status, 408);
  EXPECT_EQ(body.receive()->status, 408);
  EXPECT_TRUE(idle.closed_within(2000));
  EXPECT_LT(seconds_since(begin), 3.0);
}

TEST_F(HttpTest, NoticesThatAClientLeft) {
  start();
  {
    Client client(port());
    client.send(post("/never", "x"));
    EXPECT_FALSE(client.closed_within(100));
    EXPECT_EQ(disconnects_, 0);
  }
  EXPECT_TRUE(wait_disconnects(1));
  EXPECT_FALSE(kept_->post([] {}));  // and what others hold does nothing from then on
}

TEST_F(HttpTest, ASlowReaderIsCutOffAndDisturbsNobody) {
  start();
  Client slow(port(), /*receive_buffer=*/4096);
  slow.send(get("/flood"));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(fetch(port(), get("/hello"))->body, "hello");
  EXPECT_TRUE(wait_disconnects(1));
}

TEST_F(HttpTest, CutsAWriteThatNeverEnds) {
  HttpOptions options;
  options.write_timeout = Duration::millis(200);
  start(options);
  Client slow(port(), /*receive_buffer=*/4096);
  const std::string body(8 << 20, 'x');
  slow.send(post("/echo", body));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_FALSE(slow.receive());  // cut in the middle
}

TEST_F(HttpTest, SurvivesAHandlerThatThrows) {
  start();
  EXPECT_EQ(fetch(port(), get("/throws"))->status, 500);
  EXPECT_EQ(fetch(port(), get("/offload"))->body, "later");
}

TEST_F(HttpTest, ServesManyConnectionsAtOnce) {
  HttpOptions options;
  options.threads = 2;
  start(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(std::make_unique<Client>(port()));
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < clients.size(); ++i) clients[i]->send(post("/echo", std::to_string(i)));
    for (size_t i = 0; i < clients.size(); ++i) {
      const auto response = clients[i]->receive();
      ASSERT_TRUE(response) << i;
      EXPECT_EQ(response->body, std::to_string(i));
    }
  }
}

TEST_F(HttpTest, StopsAtOnceWithOpenConnections) {
  HttpOptions options;
  options.threads = 2;
  start(options);
  Client idle(port()), waiting(port()), flooded(port(), 4096), sending(port());
  waiting.send(post("/never", "x"));
  flooded.send(get("/flood"));
  sending.send("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  while (!is_kept_ || !is_flooding_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto begin = Clock::now();
  server_->stop();
  EXPECT_LT(seconds_since(begin), 1.0);
  EXPECT_TRUE(idle.closed_within(100));
  EXPECT_TRUE(waiting.closed_within(100));
  EXPECT_EQ(disconnects_, 2);
  EXPECT_FALSE(kept_->post([] {}));
  kept_->reply({200, "too late"});
  server_->stop();
}

TEST_F(HttpTest, ConnectionCloseIsHonoured) {
  start();
  Client client(port());
  client.send("GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.receive()->headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_within(500));
}

TEST_F(HttpTest, NamesThePortThatIsTaken) {
  start();
  HttpOptions options;
  options.port = port();
  const auto second = HttpServer::start(options, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unavailable);
  for (const std::string& part : {std::string("127.0.0.1"), std::to_string(port()),
                                  std::string("address in use"), std::string("--port")}) {
    EXPECT_NE(second.error().message.find(part), std::string::npos) << second.error().message;
  }
  options.host = "no-such-host.invalid";
  EXPECT_EQ(HttpServer::start(options, {}).error().code, Code::invalid);
}

TEST_F(HttpTest, RefusesCompressedBodiesBeforeReadingThem) {
  start();
  for (const char* coding : {"gzip", "deflate", "br", "zstd", "gzip, gzip", "x y"}) {
    Client client(port());
    client.send(
        fmt::format("POST /echo HTTP/1.1\r\nContent-Encoding: {}\r\n"
                    "Content-Length: 1000000\r\n\r\nabc",
                    coding));
    EXPECT_EQ(client.receive()->status, 415) << coding;
  }
  EXPECT_EQ(fetch(port(), post("/echo", "as it is", "Content-Encoding: identity\r\n"))->body,
            "as it is");
}

TEST_F(HttpTest, RefusesConnectionsBeyondTheLimitButProbes) {
  HttpOptions options;
  options.max_connections = 3;
  options.reserved_connections = 2;
  start(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(port()));
    clients.back()->send(get("/hello"));
    ASSERT_EQ(clients.back()->receive()->body, "hello");
  }
  // Past those that the server has not seen going yet: these it refuses without a word.
  const auto ask = [this](const char* path) {
    const auto begin = Clock::now();
    for (;;) {
      const auto response = fetch(port(), get(path));
      if ((response && !response->body.empty()) || seconds_since(begin) > 5) return response;
    }
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask("/probe?x=1")->body, "alive");
  const auto refused = ask("/hello");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_NE(refused->body.find("--max-connections"), std::string::npos);
  EXPECT_EQ(refused->headers.count("retry-after"), 1u);
  {
    Client one(port()), two(port()), three(port());  // say nothing
    const auto at_once = three.receive();
    ASSERT_TRUE(at_once);
    EXPECT_EQ(at_once->status, 503);
    EXPECT_TRUE(three.closed_within(500));
    EXPECT_TRUE(one.closed_within(4000));
    EXPECT_TRUE(two.closed_within(4000));
  }
  clients.pop_back();  // room again
  const auto begin = Clock::now();
  while (seconds_since(begin) < 5) {
    if (fetch(port(), get("/hello")).value_or(test::Response{}).status == 200) return;
  }
  FAIL() << "no room after a connection closed";
}

TEST_F(HttpTest, AClientThatOnlySendsNoMoreGetsItsAnswer) {
  start();
  Client client(port());
  client.send(post("/never", "x"));
  while (!is_kept_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  client.end_sending();
  const auto interim = client.receive(/*head_only=*/true);
  ASSERT_TRUE(interim);
  EXPECT_EQ(interim->status, 100);
  EXPECT_EQ(disconnects_, 0);
  ASSERT_TRUE(kept_->post([this] { kept_->reply({200, "late"}); }));
  const auto response = client.receive();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->body, "late");
  EXPECT_TRUE(client.closed_within(1000));
}

TEST_F(HttpTest, BodiesTogetherHaveALimit) {
  HttpOptions options;
  options.max_body_bytes_total = 100'000;
  start(options);
  const auto half = [](int bytes) {  // of a body that is announced larger
    return fmt::format("POST /echo HTTP/1.1\r\nContent-Length: 99999\r\n\r\n{}",
                       std::string(static_cast<size_t>(bytes), 'x'));
  };
  Client one(port()), two(port());
  one.send(half(60'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  two.send(half(60'000));
  const auto refused = two.receive();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_NE(refused->body.find("--max-body-mib-total"), std::string::npos);
  EXPECT_EQ(refused->headers.count("retry-after"), 1u);
  one.send(std::string(39'999, 'y'));
  EXPECT_EQ(one.receive()->body.size(), 99'999u);
  // What was answered holds nothing any more.
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(fetch(port(), post("/echo", std::string(90'000, 'z')))->body.size(), 90'000u);
  }
}

}  // namespace
}  // namespace asap
