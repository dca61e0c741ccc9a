// Inside of the HTTP server (http.cc): one connection as a state machine on its strand.
//
//   idle -> head -> body -> handling -> idle ...      (keep-alive)
//                              `-> linger -> closed   (the answer said "Connection: close")
//
// One read is always outstanding, whatever the state: while a request is being handled it tells
// that the client left, and what it reads then (pipelined requests) waits in a bounded buffer. One
// write is outstanding at most.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "asap/serve/http.h"
#include "asap/serve/http_error.h"
#include "asap/serve/http_tls.h"

namespace asap::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;

class Connection;

// What one body holds of HttpOptions::max_body_bytes_total. It may outlive the server.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<std::atomic<size_t>> total) : total_(std::move(total)) {}
  ~BodyShare() { total_->fetch_sub(bytes_); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  // False if all bodies together would hold more than `limit`.
  bool grow_to(size_t bytes, size_t limit);

 private:
  std::shared_ptr<std::atomic<size_t>> total_;
  size_t bytes_ = 0;
};

// What all connections share. It outlives them: HttpServer::stop() waits until the last one is
// gone.
struct Core {
  HttpOptions options;
  HttpRouter router;
  std::unique_ptr<TlsContext> tls;  // null: plain
  asio::io_context io;
  asio::thread_pool workers{
      1};  // offloaded work: one at a time, so large bodies cannot take the machine
  std::shared_ptr<std::atomic<size_t>> body_bytes = std::make_shared<std::atomic<size_t>>(0);

  std::mutex mutex;
  bool stopping = false;  // guarded by mutex
  std::unordered_set<Connection*>
      connections;  // guarded by mutex; each removes itself when destroyed
};

class Exchange;

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Core& core);
  ~Connection();

  // False if the server is stopping or has as many connections as it may: then this one is dropped.
  // The last of them are for probes.
  bool admit();
  void start();
  // Closes at once. On the strand.
  void abort();

  asio::any_io_executor executor() { return socket_.get_executor(); }
  Core& core() { return core_; }
  bool is_cut() const { return cut_; }  // on the strand

  // For Exchange, on the strand.
  void add_header(std::string_view name, std::string_view value);
  void reply(const HttpReply& reply);
  void begin_stream(std::string_view content_type);
  void send(std::string_view data);
  void end_stream(std::string_view data);

 private:
  enum class Phase { handshake, idle, head, body, handling, linger, closed };
  using Parser = beast::http::request_parser<beast::http::string_body>;

  void begin_request();
  void read();
  void on_read(error_code error, size_t bytes);
  void on_peer_closed(error_code error);
  void ask_half_closed();
  bool hold_body();
  void parse();
  void on_head();
  void dispatch();
  HttpRequest take_head() const;
  void refuse(const HttpReply& reply);
  void refuse(const ApiError& error) { refuse(error_reply(error)); }
  void refuse(error_code error);

  void enqueue(std::string bytes);
  void write();
  void on_write(error_code error);
  void finish_answer();

  void arm(Duration timeout);
  void on_deadline();

  std::string head(int status, std::string_view content_type) const;

  Core& core_;
  tcp::socket socket_;
  std::unique_ptr<TlsStream> tls_;  // over the socket; null: plain
  asio::steady_timer deadline_;
  Phase phase_ = Phase::idle;

  std::array<char, 16384> inbox_;  // target of the outstanding read
  beast::flat_buffer buffer_;      // read, not yet parsed
  bool reading_ = false;
  bool peer_closed_ = false;
  bool probes_only_ = false;
  std::shared_ptr<BodyShare> body_share_;  // of the body that is being read
  std::optional<Parser> parser_;

  std::shared_ptr<Exchange> exchange_;  // while handling
  bool keep_alive_ = false;
  bool chunked_ = true;       // HTTP/1.1; an HTTP/1.0 stream ends with its connection
  bool head_only_ = false;    // HEAD
  bool begun_ = false;        // the answer's head is queued
  bool answered_ = false;     // the whole answer is queued
  bool cut_ = false;          // the client reads too slowly: abort() is on its way
  std::string stream_head_;   // not sent yet
  std::string more_headers_;  // of the answer, whole lines

  std::deque<std::string> outbox_;  // the front is being written
  size_t queued_bytes_ = 0;
  bool writing_ = false;
};

// The HttpExchange of one request. It outlives its connection if an engine still holds it; detach()
// cuts it off.
class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Connection> connection, HttpRequest request)
      : request_(std::move(request)), connection_(std::move(connection)) {}

  bool post(std::function<void()> work) override;
  void offload(std::function<void()> work) override;
  HttpRequest& request() override { return request_; }
  void add_header(std::string_view name, std::string_view value) override;
  void reply(HttpReply reply) override;
  void begin_stream(std::string_view content_type) override;
  void send(std::string_view data) override;
  void end_stream(std::string_view data) override;
  void on_disconnect(std::function<void()> callback) override;

  bool is_over();  // any thread
  // On the strand. Returns the disconnect callback, which is then no longer held.
  std::function<void()> detach();

 private:
  HttpRequest request_;
  std::function<void()> on_disconnect_;
  std::mutex mutex_;  // post() against detach()
  std::shared_ptr<Connection>
      connection_;  // null after detach(); written on the strand, under the mutex
};

}  // namespace asap::http
