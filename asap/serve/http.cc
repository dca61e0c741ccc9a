#include "asap/serve/http.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "asap/base/check.h"
#include "asap/serve/http_connection.h"

namespace asap {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (boost::beast::iequals({key.data(), key.size()}, {name.data(), name.size()})) return value;
  }
  return {};
}

bool is_harmless_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

// ---- router

namespace {

bool matches(std::string_view route, std::string_view path) {
  return route.ends_with('*') ? path.starts_with(route.substr(0, route.size() - 1)) : route == path;
}

}  // namespace

void HttpRouter::add(std::string_view method, std::string_view path, HttpHandler handler) {
  routes_.push_back({std::string(method), std::string(path), std::move(handler)});
}

bool HttpRouter::is_probe(std::string_view path) const {
  return std::find(probes_.begin(), probes_.end(), path) != probes_.end();
}

void HttpRouter::route(const std::shared_ptr<HttpExchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string allowed;
  for (const Route& route : routes_) {
    if (!matches(route.path, request.path)) continue;
    if (route.method == method) return route.handler(exchange);
    allowed += route.method == "GET" ? "GET, HEAD, " : route.method + ", ";
  }
  if (allowed.empty()) {
    return exchange->reply(error_reply({404, fmt::format("no such path: {}", request.path), ""}));
  }
  allowed += "OPTIONS";
  HttpReply reply;
  if (request.method == "OPTIONS") {
    reply.status = 204;
  } else {
    reply = error_reply(
        {405, fmt::format("{} does not accept {}: use {}", request.path, request.method, allowed),
         ""});
  }
  reply.headers.emplace_back("Allow", allowed);
  exchange->reply(std::move(reply));
}

// ---- server

using http::error_code;
using http::asio::ip::tcp;

struct HttpServer::Impl {
  http::Core core;
  // The acceptor and its timer share a strand.
  tcp::acceptor acceptor{http::asio::any_io_executor(http::asio::make_strand(core.io))};
  http::asio::steady_timer accept_pause{acceptor.get_executor()};
  uint16_t port = 0;
  std::vector<std::thread> threads;

  Status bind();
  Status listen();
  void accept();
  void on_accept(error_code error, tcp::socket socket);
  void run();
  void stop();
};

namespace {

tl::unexpected<Error> listen_error(const HttpOptions& options, const error_code& error) {
  if (error == boost::asio::error::address_in_use) {
    return fail(Code::unavailable,
                "cannot listen on {}:{}: address in use; stop the program that holds the port, or "
                "choose another --port (0 takes a free one)",
                options.host, options.port);
  }
  const Code code = error == boost::asio::error::access_denied ? Code::invalid : Code::internal;
  return fail(code, "cannot listen on {}:{}: {}; choose another --host or --port", options.host,
              options.port, error.message());
}

}  // namespace

Status HttpServer::Impl::bind() {
  const HttpOptions& options = core.options;
  error_code error;
  tcp::resolver resolver(core.io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return fail(Code::invalid, "cannot listen on host '{}': {}; give an address of this machine",
                options.host, error.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error) return listen_error(options, error);
  port = acceptor.local_endpoint(error).port();
  return {};
}

Status HttpServer::Impl::listen() {
  error_code error;
  acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) return listen_error(core.options, error);
  return {};
}

void HttpServer::Impl::accept() {
  acceptor.async_accept(
      http::asio::any_io_executor(http::asio::make_strand(core.io)),
      [this](error_code error, tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void HttpServer::Impl::on_accept(error_code error, tcp::socket socket) {
  if (!acceptor.is_open()) return;
  if (error) {
    // Out of file descriptors or memory: waiting is all that helps, and a tight loop would not.
    spdlog::warn("http: cannot accept a connection: {}", error.message());
    accept_pause.expires_after(std::chrono::milliseconds(50));
    accept_pause.async_wait([this](error_code cancelled) {
      if (!cancelled && acceptor.is_open()) accept();
    });
    return;
  }
  const auto connection = std::make_shared<http::Connection>(std::move(socket), core);
  if (connection->admit()) {
    http::asio::post(connection->executor(), [connection] { connection->start(); });
  }
  accept();
}

void HttpServer::Impl::run() {
  for (;;) {
    try {
      core.io.run();
      return;  // out of work: stopped
    } catch (const std::exception& error) {
      spdlog::error("http: {}", error.what());
    }
  }
}

void HttpServer::Impl::stop() {
  std::vector<std::shared_ptr<http::Connection>> open;
  {
    const std::lock_guard lock(core.mutex);
    if (core.stopping) return;
    core.stopping = true;
    for (http::Connection* connection : core.connections) {
      if (auto alive = connection->weak_from_this().lock()) open.push_back(std::move(alive));
    }
  }
  http::asio::post(acceptor.get_executor(), [this] {
    error_code ignored;
    acceptor.close(ignored);
    accept_pause.cancel();
  });
  for (const auto& connection : open) {
    http::asio::post(connection->executor(), [connection] { connection->abort(); });
  }
  open.clear();
  // Every operation is cancelled and none starts anew, so the threads run out of work.
  for (std::thread& thread : threads) thread.join();
  core.workers.stop();
  core.workers.join();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  stop();
}
uint16_t HttpServer::port() const {
  return impl_->port;
}
void HttpServer::stop() {
  impl_->stop();
}

Result<std::unique_ptr<HttpServer>> HttpServer::bind(HttpOptions options) {
  CHECK(options.threads >= 1, "{} I/O threads", options.threads);
  try {
    auto impl = std::make_unique<Impl>();
    ASAP_ASSIGN(impl->core.tls, http::TlsContext::load(options.ssl_certfile, options.ssl_keyfile));
    impl->core.options = std::move(options);
    ASAP_TRY(impl->bind());
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& error) {
    return fail(Code::internal, "cannot start the HTTP server: {}", error.what());
  }
}

// The destructor joins whatever threads have started.
Status HttpServer::serve(HttpRouter router) {
  try {
    impl_->core.router = std::move(router);
    ASAP_TRY(impl_->listen());
    impl_->accept();
    for (int i = 0; i < impl_->core.options.threads; ++i) {
      impl_->threads.emplace_back([impl = impl_.get()] { impl->run(); });
    }
    return {};
  } catch (const std::exception& error) {
    return fail(Code::internal, "cannot start the HTTP server: {}", error.what());
  }
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, HttpRouter router) {
  ASAP_ASSIGN(auto server, bind(std::move(options)));
  ASAP_TRY(server->serve(std::move(router)));
  return server;
}

}  // namespace asap
