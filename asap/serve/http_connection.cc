#include "asap/serve/http_connection.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "asap/base/check.h"

namespace asap::http {
namespace {

namespace bhttp = beast::http;

// Pipelined bytes kept while a request is handled; beyond, reading pauses until the answer is out.
constexpr size_t kReadAhead = size_t{64} << 10;

// A probe says at once what it wants; whoever does not would keep others out.
constexpr Duration kProbeTimeout = Duration::seconds(2);

std::string chunk(std::string_view data) {
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

}  // namespace

bool BodyShare::grow_to(size_t bytes, size_t limit) {
  const size_t more = bytes - bytes_;
  bytes_ = bytes;
  return total_->fetch_add(more) + more <= limit;
}

Connection::Connection(tcp::socket socket, Core& core)
    : core_(core), socket_(std::move(socket)), deadline_(socket_.get_executor()) {}

Connection::~Connection() {
  const std::lock_guard lock(core_.mutex);
  core_.connections.erase(this);
}

bool Connection::admit() {
  const std::lock_guard lock(core_.mutex);
  if (core_.stopping) return false;
  const auto most = static_cast<size_t>(core_.options.max_connections);
  probes_only_ = core_.connections.size() >= most;
  if (core_.connections.size() < most + static_cast<size_t>(core_.options.reserved_connections)) {
    core_.connections.insert(this);
    return true;
  }
  if (core_.tls == nullptr) {
    const std::string_view full =
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
        "Content-Length: 0\r\n\r\n";
    error_code ignored;  // the socket's buffer is empty: it takes this at once, or the peer is gone
    socket_.non_blocking(true, ignored);
    socket_.write_some(asio::buffer(full), ignored);
  }
  return false;
}

void Connection::start() {
  error_code ignored;  // a peer that is already gone shows in the first read
  socket_.set_option(tcp::no_delay(true), ignored);
  if (const int bytes = core_.options.socket_send_bytes; bytes > 0) {
    socket_.set_option(tcp::socket::send_buffer_size(bytes), ignored);
  }
  if (core_.tls == nullptr) return begin_request();
  phase_ = Phase::handshake;
  arm(core_.options.header_timeout);
  tls_ = std::make_unique<TlsStream>(socket_, *core_.tls);
  tls_->handshake([self = shared_from_this()](error_code error) {
    if (self->phase_ == Phase::closed) return;
    error ? self->abort() : self->begin_request();
  });
}

void Connection::abort() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
  if (auto exchange = std::move(exchange_)) {
    if (auto callback = exchange->detach(); callback && !answered_) callback();
  }
}

// ---- reading

void Connection::begin_request() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(core_.options.max_header_bytes));
  parser_->body_limit(core_.options.max_body_bytes);
  begun_ = answered_ = false;
  more_headers_.clear();
  body_share_.reset();
  phase_ = buffer_.size() > 0 ? Phase::head : Phase::idle;
  arm(probes_only_            ? kProbeTimeout
      : phase_ == Phase::idle ? core_.options.idle_timeout
                              : core_.options.header_timeout);
  parse();
  if (peer_closed_ && (phase_ == Phase::idle || phase_ == Phase::head || phase_ == Phase::body)) {
    return abort();
  }
  read();
}

void Connection::read() {
  if (reading_ || peer_closed_ || phase_ == Phase::closed) return;
  if (phase_ == Phase::handling && buffer_.size() >= kReadAhead) return;
  reading_ = true;
  auto done = [self = shared_from_this()](error_code error, size_t bytes) {
    self->on_read(error, bytes);
  };
  if (tls_) return tls_->read_some(asio::buffer(inbox_), std::move(done));
  socket_.async_read_some(asio::buffer(inbox_), std::move(done));
}

void Connection::on_read(error_code error, size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::closed) return;
  if (error) return on_peer_closed(error);
  if (phase_ != Phase::linger) {
    asio::buffer_copy(buffer_.prepare(bytes), asio::buffer(inbox_, bytes));
    buffer_.commit(bytes);
    if (phase_ == Phase::idle) {
      phase_ = Phase::head;
      if (!probes_only_) arm(core_.options.header_timeout);
    }
    parse();
  }
  read();
}

// The client closed its side, or is gone. An answer that is complete still goes out.
void Connection::on_peer_closed(error_code error) {
  peer_closed_ = true;
  if (phase_ == Phase::handling && answered_) return;
  const bool may_listen = error == asio::error::eof && tls_ == nullptr && chunked_;
  if (phase_ == Phase::handling && may_listen) return ask_half_closed();
  abort();
}

// Has the client left, or has it only nothing more to say? To one that left, whatever is written
// comes back as a reset: before an answer that is an interim response, which clients skip.
void Connection::ask_half_closed() {
  socket_.async_wait(tcp::socket::wait_error, [self = shared_from_this()](error_code error) {
    if (!error && self->phase_ == Phase::handling) self->abort();
  });
  if (!begun_) enqueue("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::parse() {
  while ((phase_ == Phase::head || phase_ == Phase::body) && buffer_.size() > 0) {
    error_code error;
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (error == bhttp::error::need_more) return;
    if (error) return refuse(error);
    if (phase_ == Phase::head && parser_->is_header_done()) {
      on_head();
      if (phase_ != Phase::body) return;  // refused
    }
    if (phase_ == Phase::body && !hold_body()) return;
    if (parser_->is_done()) return dispatch();
  }
}

// What arrives is counted, not what was announced: to announce costs nothing.
bool Connection::hold_body() {
  const size_t bytes = parser_->get().body().size();
  if (bytes == 0) return true;
  if (!body_share_) body_share_ = std::make_shared<BodyShare>(core_.body_bytes);
  const size_t limit = core_.options.max_body_bytes_total;
  if (body_share_->grow_to(bytes, limit)) return true;
  refuse(ApiError{503,
                  fmt::format("the requests that are being read hold {} bytes already, as much as "
                              "they may (--max-body-mib-total); try again later",
                              limit),
                  ""});
  return false;
}

// Whatever can be refused by its head is refused before its body is read.
void Connection::on_head() {
  phase_ = Phase::body;
  arm(core_.options.body_timeout);
  const auto target = parser_->get().target();
  const std::string_view path(target.data(), std::min(target.find('?'), target.size()));
  if (probes_only_ && !core_.router.is_probe(path)) {
    return refuse(ApiError{503,
                           fmt::format("{} connections are open (--max-connections), and what is "
                                       "left is for probes; try again later",
                                       core_.options.max_connections),
                           ""});
  }
  const auto coding = parser_->get()[bhttp::field::content_encoding];
  if (!coding.empty() && !beast::iequals(coding, "identity")) {
    return refuse(
        ApiError{415,
                 fmt::format("Content-Encoding is {}: bodies are accepted uncompressed only",
                             is_harmless_id({coding.data(), coding.size()})
                                 ? std::string_view(coding.data(), coding.size())
                                 : "not readable"),
                 "Content-Encoding"});
  }
  if (const auto refusal = core_.router.check(take_head())) return refuse(*refusal);
  if (parser_->get().version() >= 11 &&
      beast::iequals(parser_->get()[bhttp::field::expect], "100-continue") && !parser_->is_done()) {
    enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

HttpRequest Connection::take_head() const {
  const auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const auto target = message.target();
  request.path = std::string(target.substr(0, target.find('?')));
  for (const auto& field : message) {
    request.headers.emplace_back(field.name_string(), field.value());
  }
  return request;
}

void Connection::dispatch() {
  phase_ = Phase::handling;
  deadline_.cancel();
  HttpRequest request = take_head();
  auto message = parser_->release();
  keep_alive_ = message.keep_alive() && !probes_only_;
  chunked_ = message.version() >= 11;
  head_only_ = message.method() == bhttp::verb::head;
  request.body = std::move(message.body());
  request.body_share = std::move(body_share_);

  exchange_ = std::make_shared<Exchange>(shared_from_this(), std::move(request));
  const auto exchange = exchange_;  // a handler that answers at once lets go of the member
  try {
    core_.router.route(exchange);
  } catch (const std::exception& error) {
    spdlog::error("http: handler of {} failed: {}", exchange->request().path, error.what());
    stream_head_.clear();
    exchange->reply(error_reply({500, "internal error", ""}));
  }
  if (peer_closed_ && !answered_) abort();
}

void Connection::refuse(error_code error) {
  if (error == bhttp::error::header_limit) {
    return refuse(ApiError{
        431, fmt::format("the request's head exceeds {} bytes", core_.options.max_header_bytes),
        ""});
  }
  if (error == bhttp::error::body_limit) {
    return refuse(ApiError{
        413, fmt::format("the request's body exceeds {} bytes", core_.options.max_body_bytes), ""});
  }
  refuse(ApiError{400, fmt::format("malformed HTTP request: {}", error.message()), ""});
}

// Answers a request that never became one; nothing after it on this connection can be trusted.
void Connection::refuse(const HttpReply& refusal) {
  phase_ = Phase::handling;
  deadline_.cancel();
  buffer_.clear();
  parser_.reset();
  body_share_.reset();
  keep_alive_ = false;
  head_only_ = false;
  reply(refusal);
  arm(core_.options.write_timeout);
}

// ---- writing

std::string Connection::head(int status, std::string_view content_type) const {
  const auto reason = bhttp::obsolete_reason(static_cast<bhttp::status>(status));
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nConnection: {}\r\n", status,
                                 std::string_view(reason.data(), reason.size()),
                                 keep_alive_ ? "keep-alive" : "close");
  if (!content_type.empty()) text += fmt::format("Content-Type: {}\r\n", content_type);
  return text + more_headers_;
}

void Connection::add_header(std::string_view name, std::string_view value) {
  CHECK(value.find_first_of("\r\n") == value.npos, "header {} would split", name);
  more_headers_ += fmt::format("{}: {}\r\n", name, value);
}

void Connection::reply(const HttpReply& reply) {
  if (answered_ || phase_ != Phase::handling) return;
  CHECK(stream_head_.empty(), "a reply inside a stream");
  begun_ = answered_ = true;
  std::string text = head(reply.status, reply.body.empty() ? "" : reply.content_type);
  for (const auto& [name, value] : reply.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (reply.status != 204) text += fmt::format("Content-Length: {}\r\n", reply.body.size());
  text += "\r\n";
  if (!head_only_) text += reply.body;
  enqueue(std::move(text));
}

void Connection::begin_stream(std::string_view content_type) {
  if (answered_ || phase_ != Phase::handling) return;
  if (!chunked_) keep_alive_ = false;
  stream_head_ = head(200, content_type) + "Cache-Control: no-cache\r\n" +
                 (chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
}

void Connection::send(std::string_view data) {
  if (answered_ || cut_ || phase_ != Phase::handling || data.empty()) return;
  if (queued_bytes_ > 0 && queued_bytes_ + data.size() > core_.options.max_queued_bytes) {
    spdlog::warn("http: a client reads too slowly: {} bytes wait for it, closing", queued_bytes_);
    cut_ = true;
    // Not from here: the caller is in the middle of something.
    asio::post(executor(), [self = shared_from_this()] { self->abort(); });
    return;
  }
  begun_ = true;
  enqueue(std::exchange(stream_head_, {}) + (chunked_ ? chunk(data) : std::string(data)));
}

void Connection::end_stream(std::string_view data) {
  if (answered_ || cut_ || phase_ != Phase::handling) return;
  begun_ = answered_ = true;
  std::string text = std::exchange(stream_head_, {});
  if (!data.empty()) text += chunked_ ? chunk(data) : std::string(data);
  if (chunked_) text += "0\r\n\r\n";
  enqueue(std::move(text));
}

void Connection::enqueue(std::string bytes) {
  queued_bytes_ += bytes.size();
  outbox_.push_back(std::move(bytes));
  if (!writing_) write();
}

void Connection::write() {
  writing_ = true;
  if (phase_ == Phase::handling) arm(core_.options.write_timeout);
  auto done = [self = shared_from_this()](error_code error, size_t) { self->on_write(error); };
  if (tls_) return tls_->write(asio::buffer(outbox_.front()), std::move(done));
  asio::async_write(socket_, asio::buffer(outbox_.front()), std::move(done));
}

void Connection::on_write(error_code error) {
  writing_ = false;
  if (phase_ == Phase::closed) return;
  if (error) return abort();
  queued_bytes_ -= outbox_.front().size();
  outbox_.pop_front();
  if (!outbox_.empty()) return write();
  if (phase_ != Phase::handling) return;  // after "100 Continue"
  deadline_.cancel();
  if (answered_) finish_answer();
}

void Connection::finish_answer() {
  if (auto exchange = std::move(exchange_)) exchange->detach();
  if (keep_alive_) return begin_request();
  if (peer_closed_) return abort();
  // Closing while unread bytes are in flight would reset the connection and could destroy the
  // answer on its way: tell the client that nothing more comes, then read off what it still sends.
  phase_ = Phase::linger;
  arm(core_.options.linger_timeout);
  if (tls_) {
    tls_->shutdown([self = shared_from_this()](error_code) { self->abort(); });
  } else {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  read();
}

// ---- timeouts

void Connection::arm(Duration timeout) {
  deadline_.expires_after(std::chrono::nanoseconds(timeout.ns));
  deadline_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->on_deadline();
  });
}

void Connection::on_deadline() {
  // A wait that had fired before it was moved or cancelled is not for the current state.
  if (deadline_.expiry() > std::chrono::steady_clock::now()) return;
  switch (phase_) {
    case Phase::head: return refuse(ApiError{408, "the request's head did not arrive in time", ""});
    case Phase::body: return refuse(ApiError{408, "the request's body did not arrive in time", ""});
    case Phase::handling:
      if (writing_) abort();
      return;
    case Phase::handshake:
    case Phase::idle:
    case Phase::linger: return abort();
    case Phase::closed: return;
  }
}

// ---- Exchange

bool Exchange::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!connection_) return false;
  asio::post(connection_->executor(), [self = shared_from_this(), work = std::move(work)] {
    // On the strand: no lock needed to read. Work for a client that is cut off would be wasted.
    if (const auto connection = self->connection_; connection && !connection->is_cut()) {
      try {
        work();
      } catch (const std::exception& error) {
        spdlog::error("http: posted work failed: {}", error.what());
        connection->abort();
      }
    }
  });
  return true;
}

void Exchange::offload(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!connection_) return;
  asio::post(connection_->core().workers, [self = shared_from_this(), work = std::move(work)] {
    if (self->is_over()) return;  // the client left while this waited its turn
    try {
      work();
    } catch (const std::exception& error) {
      spdlog::error("http: offloaded work failed: {}", error.what());
      self->post([self] { self->reply(error_reply({500, "internal error", ""})); });
    }
  });
}

bool Exchange::is_over() {
  const std::lock_guard lock(mutex_);
  return connection_ == nullptr;
}

void Exchange::add_header(std::string_view name, std::string_view value) {
  if (connection_) connection_->add_header(name, value);
}

void Exchange::reply(HttpReply reply) {
  if (connection_) connection_->reply(reply);
}

void Exchange::begin_stream(std::string_view content_type) {
  if (connection_) connection_->begin_stream(content_type);
}

void Exchange::send(std::string_view data) {
  if (connection_) connection_->send(data);
}

void Exchange::end_stream(std::string_view data) {
  if (connection_) connection_->end_stream(data);
}

void Exchange::on_disconnect(std::function<void()> callback) {
  if (connection_) on_disconnect_ = std::move(callback);
}

std::function<void()> Exchange::detach() {
  std::shared_ptr<Connection> last;  // released outside the lock
  const std::lock_guard lock(mutex_);
  last = std::move(connection_);
  connection_ = nullptr;
  return std::exchange(on_disconnect_, nullptr);
}

}  // namespace asap::http
