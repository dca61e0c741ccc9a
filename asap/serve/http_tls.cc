#include "asap/serve/http_tls.h"

#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>

namespace asap::http {

namespace ssl = boost::asio::ssl;
using boost::asio::ip::tcp;
using boost::system::error_code;

struct TlsContext::Impl {
  ssl::context context{ssl::context::tls_server};
};

TlsContext::TlsContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

Result<std::unique_ptr<TlsContext>> TlsContext::load(const std::string& certfile,
                                                     const std::string& keyfile) {
  if (certfile.empty() && keyfile.empty()) return nullptr;
  if (certfile.empty() || keyfile.empty()) {
    return fail(Code::invalid, "--ssl-certfile and --ssl-keyfile go together: give both");
  }
  try {
    auto impl = std::make_unique<Impl>();
    ssl::context& context = impl->context;
    context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                        ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    error_code error;
    context.use_certificate_chain_file(certfile, error);
    if (error) return fail(Code::invalid, "--ssl-certfile {}: {}", certfile, error.message());
    context.use_private_key_file(keyfile, ssl::context::pem, error);
    if (error) {
      return fail(Code::invalid, "--ssl-keyfile {}: {}; it must be the certificate's key, in PEM",
                  keyfile, error.message());
    }
    return std::unique_ptr<TlsContext>(new TlsContext(std::move(impl)));
  } catch (const std::exception& error) {
    return fail(Code::internal, "cannot set TLS up: {}", error.what());
  }
}

struct TlsStream::Impl {
  Impl(tcp::socket& socket, ssl::context& context) : stream(socket, context) {}
  ssl::stream<tcp::socket&> stream;
};

TlsStream::TlsStream(tcp::socket& socket, TlsContext& context)
    : impl_(std::make_unique<Impl>(socket, context.impl_->context)) {}
TlsStream::~TlsStream() = default;

void TlsStream::handshake(Done done) {
  impl_->stream.async_handshake(ssl::stream_base::server, std::move(done));
}

void TlsStream::read_some(boost::asio::mutable_buffer buffer, DoneBytes done) {
  impl_->stream.async_read_some(buffer, std::move(done));
}

void TlsStream::write(boost::asio::const_buffer buffer, DoneBytes done) {
  boost::asio::async_write(impl_->stream, buffer, std::move(done));
}

void TlsStream::shutdown(Done done) {
  impl_->stream.async_shutdown(std::move(done));
}

}  // namespace asap::http
