// HTTP/1.1 server: sockets, framing, limits and timeouts. It knows nothing of models or JSON.
//
// One connection is one strand: everything that happens to it (reads, writes, timeouts, its
// handler, work posted by other threads) runs one after the other, so handlers need no locks. A
// request is handed over only when its body is complete. A client that reads slowly fills its own
// bounded queue and is cut off; a client that goes away is noticed at once, also while its answer
// is still being computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "asap/base/result.h"
#include "asap/base/units.h"

namespace asap {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;                      // 0: any free port
  int threads = 1;                           // I/O threads, >= 1; connections are spread over them
  size_t max_body_bytes = size_t{16} << 20;  // beyond: 413
  size_t max_header_bytes = size_t{16} << 10;  // beyond: 431
  size_t max_queued_bytes = size_t{8} << 20;   // of one stream, waiting for the client; beyond: cut
  int socket_send_bytes = 0;  // the kernel's own queue below it; 0: as the system chooses
  size_t max_body_bytes_total = size_t{1} << 30;  // of all bodies that are held; beyond: 503
  int max_connections = 16384;                    // beyond: 503 at once, but for probes
  int reserved_connections = 64;          // beyond those, for probes (HttpRouter::add_probe) alone
  std::string ssl_certfile, ssl_keyfile;  // PEM; both or neither. Given: TLS only
  Duration idle_timeout = Duration::seconds(75);    // between requests of a connection
  Duration header_timeout = Duration::seconds(10);  // first to last byte of a head; then 408
  Duration body_timeout = Duration::seconds(60);    // first to last byte of a body; then 408
  Duration write_timeout = Duration::seconds(30);   // one write without any end in sight
  Duration linger_timeout = Duration::seconds(3);   // reading off what a refused client still sends
};

struct HttpRequest {
  std::string method;  // upper case
  std::string path;    // without the query
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // The body's part of max_body_bytes_total, given back when the last copy of this goes: whoever
  // moves the body on moves this with it.
  std::shared_ptr<void> body_share = {};

  // Value of the first header of that name (any case), or "".
  std::string_view header(std::string_view name) const;
};

// A header value that came from outside may go back out: printable ASCII without spaces, not long.
bool is_harmless_id(std::string_view text);

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// One request and the way to answer it: reply() once, or begin_stream(), send() any number of
// times, end_stream(). After the client went away, or after the answer's end, all calls do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // From any thread. post() runs `work` on the connection's strand, or drops it and returns false
  // if the exchange is over. offload() runs `work` on a thread beside the I/O threads, where it may
  // take long.
  virtual bool post(std::function<void()> work) = 0;
  virtual void offload(std::function<void()> work) = 0;

  // The rest on the strand only: in the handler or in posted work.
  virtual HttpRequest& request() = 0;
  // Of the answer to come, whichever it is. The value must be free of line ends.
  virtual void add_header(std::string_view name, std::string_view value) = 0;
  virtual void reply(HttpReply reply) = 0;
  // The head travels with the first send(), in one write.
  virtual void begin_stream(std::string_view content_type) = 0;
  virtual void send(std::string_view data) = 0;  // one chunk, one write
  virtual void end_stream(
      std::string_view data) = 0;  // last chunk ("" for none) and the terminator
  // Called at most once, on the strand, if the client or the server goes away before the answer's
  // end.
  virtual void on_disconnect(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

// (method, path) -> handler. HEAD is served by GET's handler, OPTIONS by the router itself.
class HttpRouter {
 public:
  // Asked when a request's head is complete, before its body is read (`body` is still empty). A
  // reply refuses the request and ends its connection.
  using Guard = std::function<std::optional<HttpReply>(const HttpRequest&)>;

  // A path that ends in '*' stands for all that begin as it does.
  void add(std::string_view method, std::string_view path, HttpHandler handler);
  // A path that is answered where other requests find no room.
  void add_probe(std::string_view path) { probes_.emplace_back(path); }
  bool is_probe(std::string_view path) const;
  void set_guard(Guard guard) { guard_ = std::move(guard); }
  std::optional<HttpReply> check(const HttpRequest& head) const {
    return guard_ ? guard_(head) : std::nullopt;
  }
  // Calls the handler, or answers 404, or 405 with the methods that are allowed.
  void route(const std::shared_ptr<HttpExchange>& exchange) const;

 private:
  struct Route {
    std::string method, path;
    HttpHandler handler;
  };
  std::vector<Route> routes_;  // a few dozen: a scan beats a map
  std::vector<std::string> probes_;
  Guard guard_;
};

class HttpServer {
 public:
  // Takes the address and reads the certificate, so that what is wrong with them shows before a
  // model is loaded; nobody can connect yet. Errors: unavailable (address in use), invalid (host,
  // certificate), internal.
  static Result<std::unique_ptr<HttpServer>> bind(HttpOptions options);
  // Listens and serves until stop(). Once. Errors: unavailable (address in use), internal.
  Status serve(HttpRouter router);
  // Both.
  static Result<std::unique_ptr<HttpServer>> start(HttpOptions options, HttpRouter router);
  ~HttpServer();

  uint16_t port() const;  // from bind() on
  // Closes the listener and every connection, and waits for the threads. Idempotent. No handler
  // runs afterwards, and an HttpExchange that someone still holds does nothing.
  void stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace asap
