#include "asap/serve/test_support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "asap/base/check.h"

namespace asap::test {
namespace {

constexpr int kReadTimeoutMs = 10'000;

Instant now() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string utf8(int code_point) {  // below U+0800
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

}  // namespace

// ---- Client

Client::Client(uint16_t port, int receive_buffer) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) close();
}

Client::~Client() {
  close();
}

void Client::end_sending() {
  ::shutdown(socket_, SHUT_WR);
}

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool Client::fill() {
  pollfd waiting{socket_, POLLIN, 0};
  if (::poll(&waiting, 1, kReadTimeoutMs) <= 0) return false;
  char bytes[65536];
  const ssize_t n = ::recv(socket_, bytes, sizeof(bytes), 0);
  if (n <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(n));
  return true;
}

std::optional<std::string> Client::take_line() {
  size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!fill()) return std::nullopt;
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

std::optional<std::string> Client::take(size_t bytes) {
  while (buffer_.size() < bytes) {
    if (!fill()) return std::nullopt;
  }
  std::string taken = buffer_.substr(0, bytes);
  buffer_.erase(0, bytes);
  return taken;
}

bool Client::take_chunks(Response& response) {
  for (;;) {
    const auto size_line = take_line();
    if (!size_line) return false;
    const auto data = take(std::stoul(*size_line, nullptr, 16));
    if (!data || take_line() != "") return false;
    if (data->empty()) return true;
    response.chunks.push_back(*data);
    response.body += *data;
  }
}

std::optional<Response> Client::receive(bool head_only) {
  Response response;
  auto line = take_line();
  if (!line || line->size() < 12) return std::nullopt;
  response.status = std::stoi(line->substr(9, 3));
  while ((line = take_line()) && !line->empty()) {
    const size_t colon = line->find(": ");
    if (colon == std::string::npos) return std::nullopt;
    response.headers[lower(line->substr(0, colon))] = line->substr(colon + 2);
  }
  if (!line) return std::nullopt;
  if (head_only || response.status == 204 || response.status == 100) return response;
  if (response.headers.contains("content-length")) {
    const auto body = take(std::stoul(response.headers["content-length"]));
    if (!body) return std::nullopt;
    response.body = *body;
  } else if (response.headers.contains("transfer-encoding")) {
    if (!take_chunks(response)) return std::nullopt;
  } else {
    while (fill()) {
    }
    response.body = std::exchange(buffer_, {});
  }
  return response;
}

bool Client::closed_within(int milliseconds) {
  const Instant deadline = now() + Duration::millis(milliseconds);
  for (;;) {
    const auto left = static_cast<int>((deadline - now()).to_millis());
    if (left <= 0) return false;
    pollfd waiting{socket_, POLLIN, 0};
    if (::poll(&waiting, 1, left) <= 0) return false;
    char bytes[65536];
    if (::recv(socket_, bytes, sizeof(bytes), 0) <= 0) return true;
  }
}

std::string get(std::string_view path) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n\r\n", path);
}

std::string post(std::string_view path, std::string_view body, std::string_view headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n{}"
      "Content-Length: {}\r\n\r\n{}",
      path, headers, body.size(), body);
}

std::optional<Response> fetch(uint16_t port, std::string_view request) {
  Client client(port);
  client.send(request);
  return client.receive();
}

// ---- tokenizer

Result<ChatTemplate> chat_template() {
  return ChatTemplate::parse(
      "{% if tools %}<tools>{{ tools|tojson }}{% endif %}"
      "{% for message in messages %}{{ '<' + message.role + '>' + message.content }}{% endfor %}"
      "{% if effort is defined %}<effort {{ effort }}>{% endif %}"
      "{% if messages[0].content == 'refuse' %}{{ raise_exception('as you wish') }}{% endif %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "");
}

const Tokenizer& byte_tokenizer() {
  static const Tokenizer tokenizer = [] {
    // GPT-2's printable names of the bytes.
    nlohmann::json vocab;
    int shifted = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      vocab[utf8(printable ? byte : shifted++)] = byte;
    }
    const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", true},
                                       {"use_regex", true}};
    const nlohmann::json eos = {{"id", kEos},      {"content", "<eos>"}, {"single_word", false},
                                {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                                {"special", true}};
    const nlohmann::json json = {
        {"version", "1.0"},
        {"added_tokens", nlohmann::json::array({eos})},
        {"normalizer", nullptr},
        {"pre_tokenizer", byte_level},
        {"post_processor", nullptr},
        {"decoder", byte_level},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
    auto parsed = Tokenizer::parse(json.dump(), "");
    CHECK(parsed.has_value(), "{}", parsed.has_value() ? "" : parsed.error().message);
    return *std::move(parsed);
  }();
  return tokenizer;
}

// ---- FakeEngine

FakeEngine::FakeEngine() : thread_([this] { run(); }) {}

FakeEngine::~FakeEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FakeEngine::set_script(Script script) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

void FakeEngine::set_ready(std::string not_ready_reason) {
  const std::lock_guard lock(mutex_);
  not_ready_ = std::move(not_ready_reason);
}

int FakeEngine::submitted() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(handles_);
}

int FakeEngine::active() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(live_.size());
}

int FakeEngine::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

EngineRequest FakeEngine::last_request() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

bool FakeEngine::wait_cancelled(int count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(5), [&] { return cancelled_ >= count; });
}

Result<uint64_t> FakeEngine::submit(EngineRequest request, OnToken on_token) {
  const std::lock_guard lock(mutex_);
  if (script_.refuse) return tl::unexpected(*script_.refuse);
  last_ = request;
  totals_.prompt_tokens += static_cast<int64_t>(request.prompt.size());
  const Instant arrived = now();
  live_[++handles_] = {
      std::move(request),           std::move(on_token), script_, 0, arrived, arrived,
      arrived + script_.first_delay};
  changed_.notify_all();
  return handles_;
}

void FakeEngine::cancel(uint64_t handle) {
  OnToken last_reference;  // destroyed outside the lock
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(handle);
  if (it == live_.end()) return;
  last_reference = std::move(it->second.on_token);
  live_.erase(it);
  ++cancelled_;
  changed_.notify_all();
}

bool FakeEngine::ready() const {
  return not_ready_reason().empty();
}

std::string FakeEngine::not_ready_reason() const {
  const std::lock_guard lock(mutex_);
  return draining_ ? "draining" : not_ready_;
}

void FakeEngine::set_failed(std::string reason) {
  const std::lock_guard lock(mutex_);
  failed_ = std::move(reason);
}

void FakeEngine::set_full(std::optional<Error> error) {
  const std::lock_guard lock(mutex_);
  full_ = std::move(error);
}

Status FakeEngine::check_room() const {
  const std::lock_guard lock(mutex_);
  if (full_) return tl::unexpected(*full_);
  return {};
}

bool FakeEngine::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

void FakeEngine::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void FakeEngine::resume() {
  const std::lock_guard lock(mutex_);
  draining_ = false;
}

bool FakeEngine::drained() const {
  const std::lock_guard lock(mutex_);
  return draining_ && live_.empty();
}

FaultStatus FakeEngine::fault_status() const {
  const std::lock_guard lock(mutex_);
  FaultStatus status;
  status.draining = draining_;
  if (!failed_.empty()) status.state = "failed";
  status.reason = failed_;
  return status;
}

EngineStats FakeEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = totals_;
  stats.running = static_cast<int>(live_.size());
  stats.kv_usage = 0.25;
  stats.groups = {{1, 100, 5.0}, {2, 200, 10.0}};
  stats.experts = {{1.5, 10, 1}};
  stats.batch_tokens.buckets[1] = 1;                // one token
  stats.batch_tokens.buckets[3] = 1;                // up to four
  stats.batch_tokens.buckets[kRowBuckets - 1] = 1;  // the largest
  return stats;
}

std::vector<PeerStatus> FakeEngine::peers() const {
  return {{"attention", 0, 1, -1, 42, 7, "ready", 0, ""},
          {"moe", -1, -1, 3, 43, 7, "dead", 1, "killed"}};
}

TokenEvent FakeEngine::next_event(Live& live, Instant at) const {
  TokenEvent event;
  event.arrived = live.arrived;
  event.started = live.started;
  event.emitted = at;
  event.times = live.script.times;
  const int index = live.made++;
  if (index == live.script.fail_at) {
    event.finish = Finish::error;
    event.error = live.script.failure;
    return event;
  }
  const auto& tokens = live.script.tokens;
  event.token =
      tokens.empty() ? 'a' + index % 26 : tokens[static_cast<size_t>(index) % tokens.size()];
  if (live.made == live.request.sampling.max_tokens) event.finish = Finish::length;
  if (index == live.script.eos_after && !live.request.sampling.ignore_eos) {
    event.token = kEos;
    event.finish = Finish::stop;
  }
  if (index == live.script.stop_at) event.finish = Finish::stop;
  event.logprob = -0.5f;
  for (int i = 0; i < live.request.sampling.logprobs; ++i) {
    event.top_logprobs.emplace_back('A' + i, -1.0f - static_cast<float>(i));
  }
  return event;
}

void FakeEngine::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto next = std::min_element(
        live_.begin(), live_.end(), [](auto& a, auto& b) { return a.second.due < b.second.due; });
    const Instant at = now();
    if (next == live_.end()) {
      changed_.wait(lock);
    } else if (next->second.due > at) {
      changed_.wait_for(lock, std::chrono::nanoseconds((next->second.due - at).ns));
    } else {
      Live& live = next->second;
      TokenEvent event = next_event(live, at);
      live.due = at + live.script.gap;
      OnToken on_token = live.on_token;
      if (event.finish != Finish::none) live_.erase(next);
      totals_.generation_tokens += event.token >= 0;
      lock.unlock();
      on_token(std::move(event));
      on_token = nullptr;
      lock.lock();
    }
  }
}

}  // namespace asap::test
