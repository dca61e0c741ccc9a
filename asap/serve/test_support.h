// Shared by the tests of serve/: a blocking HTTP client that shows the framing, a scripted engine,
// a byte tokenizer, a chat template.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "asap/chat/chat_template.h"
#include "asap/model/tokenizer.h"
#include "asap/runtime/engine.h"

namespace asap::test {

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::vector<std::string> chunks;  // of a chunked body, as they were framed
};

// A connection to 127.0.0.1. Reads give up after 10 s, so that a test fails rather than hangs.
class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool send(std::string_view bytes);
  // The next response, or nullopt if the connection ended or timed out before its end.
  std::optional<Response> receive(bool head_only = false);
  // True if the server closes within the time, whatever it still sends before.
  bool closed_within(int milliseconds);
  void end_sending();  // and goes on to receive
  void close();

 private:
  bool fill();  // reads more into buffer_
  std::optional<std::string> take_line();
  std::optional<std::string> take(size_t bytes);
  bool take_chunks(Response& response);

  int socket_ = -1;
  std::string buffer_;
};

std::string get(std::string_view path);
std::string post(std::string_view path, std::string_view body, std::string_view headers = "");
// One request on a fresh connection.
std::optional<Response> fetch(uint16_t port, std::string_view request);

// Token id = byte value, 0..255; 256 is the special token <eos>.
const Tokenizer& byte_tokenizer();
inline constexpr int kEos = 256;
inline constexpr int kVocab = 257;

// Writes each message as "<role>text", tools as their JSON, and "<assistant>" at the end.
Result<ChatTemplate> chat_template();

// What a FakeEngine does with a request.
struct Script {
  std::vector<int32_t> tokens;  // repeated; empty: a, b, c, ...
  int eos_after = -1;           // this token (from 0) is <eos> and ends with Finish::stop
  int stop_at = -1;             // this token (from 0) ends with Finish::stop
  Duration first_delay, gap;    // to the first token, between tokens
  RequestTimes times;           // as the events say
  std::optional<Error> refuse;  // submit() fails
  int fail_at = -1;             // instead of this token (from 0) comes Finish::error with `failure`
  Error failure;
};

// A real engine in all but the model: one thread that plays the script to every request.
class FakeEngine final : public Engine {
 public:
  FakeEngine();
  ~FakeEngine() override;

  void set_script(Script script);
  void set_ready(std::string not_ready_reason);
  void set_failed(std::string reason);
  void set_full(std::optional<Error> error);  // check_room() says so
  bool draining() const;
  int submitted() const;
  int active() const;  // neither finished nor cancelled
  int cancelled() const;
  EngineRequest last_request() const;
  // Waits up to 5 s for the count of cancelled requests.
  bool wait_cancelled(int count);

  Result<uint64_t> submit(EngineRequest request, OnToken on_token) override;
  Status check_room() const override;
  void cancel(uint64_t handle) override;
  void drain() override;
  void resume() override;
  bool drained() const override;
  FaultStatus fault_status() const override;
  bool ready() const override;
  std::string not_ready_reason() const override;
  EngineStats stats() const override;
  std::vector<PeerStatus> peers() const override;
  int max_model_len() const override { return 4096; }
  int vocab() const override { return kVocab; }

 private:
  struct Live {
    EngineRequest request;
    OnToken on_token;
    Script script;
    int made = 0;
    Instant arrived, started, due;
  };

  void run();
  TokenEvent next_event(Live& live, Instant now) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Live> live_;  // by handle
  Script script_;
  std::string not_ready_;
  std::string failed_;
  bool draining_ = false;
  std::optional<Error> full_;
  EngineRequest last_;
  uint64_t handles_ = 0;
  int cancelled_ = 0;
  EngineStats totals_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace asap::test
