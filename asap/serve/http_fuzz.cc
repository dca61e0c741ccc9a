// Fuzz target: any bytes on a connection of the whole front, with a scripted engine behind it. It
// may answer what it wants, but must end the connection, and the server must not fall.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "asap/base/check.h"
#include "asap/serve/front.h"
#include "asap/serve/test_support.h"

namespace {

struct Served {
  Served() {
    asap::ServeOptions options;
    options.port = 0;
    options.served_model_name = "m";
    options.max_body_bytes = 4096;
    options.max_header_bytes = 1024;
    options.header_timeout = options.body_timeout = options.idle_timeout =
        asap::Duration::millis(200);
    auto started = asap::HttpFront::start(options, engine, asap::test::byte_tokenizer(),
                                          asap::test::chat_template());
    CHECK(started.has_value());
    front = *std::move(started);
  }
  asap::test::FakeEngine engine;
  std::unique_ptr<asap::HttpFront> front;
};

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  timeval patience{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  linger at_once{1, 0};  // no port stays behind in TIME_WAIT
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  return fd;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Served served;
  const int fd = connect_to(served.front->port());
  (void)send(fd, data, size, MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  char buffer[4096];
  ssize_t got = 0;
  while ((got = recv(fd, buffer, sizeof(buffer), 0)) > 0) continue;
  CHECK(got == 0 || errno == ECONNRESET, "the connection stays open: {}", errno);
  close(fd);
  return 0;
}
