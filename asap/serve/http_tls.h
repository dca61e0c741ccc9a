// TLS under the connections of the HTTP server: certificate and key once, a stream per connection.
// OpenSSL stays behind it, in one file.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>

#include "asap/base/result.h"

namespace asap::http {

class TlsContext {
 public:
  // Reads certificate chain and private key, PEM both. Without either: null, and connections are
  // plain. Errors: invalid (one is missing, unreadable, or they do not belong together).
  static Result<std::unique_ptr<TlsContext>> load(const std::string& certfile,
                                                  const std::string& keyfile);
  ~TlsContext();

 private:
  friend class TlsStream;
  struct Impl;
  explicit TlsContext(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One connection's. Socket and context must outlive it; handlers run on the socket's executor. One
// read and one write may be under way at a time.
class TlsStream {
 public:
  using Done = std::function<void(boost::system::error_code)>;
  using DoneBytes = std::function<void(boost::system::error_code, size_t)>;

  TlsStream(boost::asio::ip::tcp::socket& socket, TlsContext& context);
  ~TlsStream();

  void handshake(Done done);
  void read_some(boost::asio::mutable_buffer buffer, DoneBytes done);
  void write(boost::asio::const_buffer buffer, DoneBytes done);  // all of it
  // Tells the peer that nothing more comes, and waits for the same from it.
  void shutdown(Done done);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asap::http
