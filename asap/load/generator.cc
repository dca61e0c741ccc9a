#include "asap/load/generator.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>

#include "asap/load/event_stream.h"
#include "asap/runtime/clock.h"

namespace asap {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr size_t kReadBytes = 16 * 1024;
constexpr uint64_t kMaxBody = uint64_t{64} << 20;
constexpr auto kProgressPeriod = std::chrono::milliseconds(500);

std::string words(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += fmt::format("w{} ", id);
  return out;
}

std::string request_body(const Target& target, const LoadOptions& options, const Arrival& arrival,
                         int index) {
  const std::vector<int32_t> ids = prompt_ids(arrival, options.seed, index, options.id_low,
                                              options.id_high, options.length_divisor);
  nlohmann::json body = {{"model", target.model}, {"max_tokens", arrival.output_tokens},
                         {"temperature", 0},      {"stream", true},
                         {"ignore_eos", true},    {"stream_options", {{"include_usage", true}}},
                         {"return_timing", true}};
  if (target.chat()) {
    body["messages"] = {{{"role", "user"}, {"content", words(ids)}}};
  } else if (options.text_prompts) {
    body["prompt"] = words(ids);
  } else {
    body["prompt"] = ids;
  }
  return body.dump();
}

class Run;

// One request on its own connection.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(Run& run, int index);
  void start();
  void abort() {
    ErrorCode ignored;
    stream_.socket().close(ignored);
  }

 private:
  void on_connected(ErrorCode error);
  void on_written(ErrorCode error);
  void on_header(ErrorCode error);
  void read_more();
  void on_data(ErrorCode error, size_t bytes);
  void on_event(const StreamEvent& event);
  void finish(RequestEnd end, const std::string& error);

  Run& run_;
  int index_;
  beast::tcp_stream stream_;
  http::request<http::string_body> request_;
  http::response_parser<http::buffer_body> parser_;
  beast::flat_buffer buffer_;
  std::array<char, kReadBytes> data_;
  std::string plain_;  // body of an answer that is no stream
  EventStream events_;
  bool over_ = false;
};

class Run {
 public:
  Run(const Target& target, const std::vector<Arrival>& workload, const LoadOptions& options,
      const std::function<bool(const LoadProgress&)>& progress)
      : target_(target),
        workload_(workload),
        options_(options),
        progress_(progress),
        arrivals_(io_),
        ticker_(io_),
        end_(io_) {}

  Result<LoadResult> run();

  double now() const { return (monotonic_now() - start_).to_seconds(); }
  RequestRecord& record(int index) { return result_.requests[static_cast<size_t>(index)]; }
  const Arrival& arrival(int index) const { return workload_[static_cast<size_t>(index)]; }
  void done(Exchange* exchange, bool good);

  asio::io_context io_;
  const Target& target_;
  const std::vector<Arrival>& workload_;
  const LoadOptions& options_;
  tcp::resolver::results_type addresses_;

 private:
  Status connect_once();
  // Sets a timer to a time of the run.
  void at(asio::steady_timer& timer, double seconds) const {
    timer.expires_after(std::chrono::nanoseconds(static_cast<int64_t>((seconds - now()) * 1e9)));
  }
  void wait_next();
  void launch(int index);
  void tick();
  void stop();

  const std::function<bool(const LoadProgress&)>& progress_;
  asio::steady_timer arrivals_, ticker_, end_;
  Instant start_;
  LoadResult result_;
  int next_ = 0;
  LoadProgress counts_;
  std::vector<std::shared_ptr<Exchange>> live_;
  std::deque<int> waiting_;  // due, but beyond max_connections
  bool stopping_ = false;
};

Exchange::Exchange(Run& run, int index) : run_(run), index_(index), stream_(run.io_) {
  const Target& target = run_.target_;
  request_.method(http::verb::post);
  request_.target(target.path);
  request_.version(11);
  request_.set(http::field::host, fmt::format("{}:{}", target.host, target.port));
  request_.set(http::field::content_type, "application/json");
  request_.set(http::field::connection, "close");
  if (!target.api_key.empty()) {
    request_.set(http::field::authorization, "Bearer " + target.api_key);
  }
  request_.body() = request_body(target, run_.options_, run_.arrival(index), index);
  request_.prepare_payload();
  parser_.body_limit(kMaxBody);
}

void Exchange::start() {
  const auto self = shared_from_this();
  run_.record(index_).sent = run_.now();
  stream_.async_connect(run_.addresses_,
                        [self](ErrorCode error, const auto&) { self->on_connected(error); });
}

void Exchange::on_connected(ErrorCode error) {
  if (error) return finish(RequestEnd::failed, "connect: " + error.message());
  stream_.socket().set_option(tcp::no_delay(true), error);
  const auto self = shared_from_this();
  http::async_write(stream_, request_,
                    [self](ErrorCode failed, size_t) { self->on_written(failed); });
}

void Exchange::on_written(ErrorCode error) {
  if (error) return finish(RequestEnd::failed, "send: " + error.message());
  const auto self = shared_from_this();
  http::async_read_header(stream_, buffer_, parser_,
                          [self](ErrorCode failed, size_t) { self->on_header(failed); });
}

void Exchange::on_header(ErrorCode error) {
  if (error) return finish(RequestEnd::failed, "receive: " + error.message());
  run_.record(index_).status = static_cast<int>(parser_.get().result_int());
  read_more();
}

void Exchange::read_more() {
  parser_.get().body().data = data_.data();
  parser_.get().body().size = data_.size();
  parser_.get().body().more = true;
  const auto self = shared_from_this();
  http::async_read_some(stream_, buffer_, parser_,
                        [self](ErrorCode error, size_t n) { self->on_data(error, n); });
}

void Exchange::on_data(ErrorCode error, size_t) {
  if (error == http::error::need_buffer) error = {};
  const size_t bytes = data_.size() - parser_.get().body().size;
  const std::string_view text(data_.data(), bytes);
  RequestRecord& record = run_.record(index_);
  if (record.status == 200) {
    for (const StreamEvent& event : events_.push(text)) on_event(event);
  } else {
    plain_ += text.substr(0, 4096);
  }
  if (error) return finish(RequestEnd::failed, "receive: " + error.message());
  if (!parser_.is_done()) return read_more();
  if (record.status != 200) {
    const bool refused = record.status == 429 || record.status == 503;
    return finish(refused ? RequestEnd::refused : RequestEnd::failed,
                  fmt::format("HTTP {}: {}", record.status, plain_.substr(0, 200)));
  }
  if (record.first < 0) return finish(RequestEnd::failed, "the stream ended without a token");
  finish(RequestEnd::finished, "");
}

void Exchange::on_event(const StreamEvent& event) {
  RequestRecord& record = run_.record(index_);
  if (event.token && record.first < 0) record.first = run_.now();
  if (event.token) ++record.output_tokens;
  if (event.prompt_tokens > 0) record.prompt_tokens = event.prompt_tokens;
  if (event.completion_tokens > 0) record.output_tokens = event.completion_tokens;
  if (event.parts) record.parts = event.parts;
  if (!event.error.empty()) record.error = event.error;
}

void Exchange::finish(RequestEnd end, const std::string& error) {
  if (over_) return;
  over_ = true;
  RequestRecord& record = run_.record(index_);
  record.finished = run_.now();
  record.end = record.error.empty() ? end : RequestEnd::failed;
  if (record.error.empty()) record.error = error;
  abort();
  run_.done(this, record.end == RequestEnd::finished);
}

tl::unexpected<Error> nobody_answers(const Target& target, const ErrorCode& error) {
  return fail(Code::unavailable,
              "no server answers at {}:{} ({}); start one (asap serve), or name another with "
              "--base-url http://HOST:PORT",
              target.host, target.port, error.message());
}

// So that a wrong address is one clear error, not thousands.
Status Run::connect_once() {
  ErrorCode error;
  tcp::resolver resolver(io_);
  addresses_ = resolver.resolve(target_.host, std::to_string(target_.port), error);
  tcp::socket probe(io_);
  if (!error) asio::connect(probe, addresses_, error);
  if (!error) return {};
  return nobody_answers(target_, error);
}

Result<LoadResult> Run::run() {
  ASAP_TRY(connect_once());
  result_.requests.resize(workload_.size());
  for (size_t i = 0; i < workload_.size(); ++i) {
    result_.requests[i].scheduled = workload_[i].at;
    result_.requests[i].prompt_tokens = workload_[i].prompt_tokens;
  }
  counts_.total = static_cast<int>(workload_.size());
  start_ = monotonic_now();
  wait_next();
  tick();
  at(end_, workload_.back().at + options_.grace_seconds);
  end_.async_wait([this](ErrorCode error) {
    if (!error) stop();
  });
  io_.run();
  result_.seconds = now();
  // What an interrupted run did not come to is no part of it.
  std::erase_if(result_.requests, [&](const RequestRecord& r) {
    return r.sent < 0 && r.end == RequestEnd::unfinished && r.scheduled > result_.seconds;
  });
  return std::move(result_);
}

void Run::wait_next() {
  if (stopping_ || next_ == counts_.total) return;
  at(arrivals_, arrival(next_).at);
  arrivals_.async_wait([this](ErrorCode error) {
    if (error) return;
    waiting_.push_back(next_++);
    while (!waiting_.empty() && static_cast<int>(live_.size()) < options_.max_connections) {
      launch(waiting_.front());
      waiting_.pop_front();
    }
    wait_next();
  });
}

void Run::launch(int index) {
  ++counts_.sent;
  live_.push_back(std::make_shared<Exchange>(*this, index));
  live_.back()->start();
}

void Run::done(Exchange* exchange, bool good) {
  std::erase_if(live_, [&](const auto& live) { return live.get() == exchange; });
  ++counts_.done;
  if (!good) ++counts_.failed;
  if (stopping_) return;
  if (!waiting_.empty()) {
    launch(waiting_.front());
    waiting_.pop_front();
  }
  if (counts_.done == counts_.total) stop();
}

void Run::tick() {
  if (stopping_) return;
  counts_.seconds = now();
  if (progress_ && !progress_(counts_)) return stop();
  ticker_.expires_after(kProgressPeriod);
  ticker_.async_wait([this](ErrorCode error) {
    if (!error) tick();
  });
}

void Run::stop() {
  if (stopping_) return;
  stopping_ = true;
  for (asio::steady_timer* timer : {&arrivals_, &ticker_, &end_}) timer->cancel();
  const auto live = live_;
  for (const auto& exchange : live) exchange->abort();
  io_.stop();
}

}  // namespace

Result<Target> parse_base_url(const std::string& url) {
  Target out;
  std::string rest = url;
  if (rest.starts_with("https://")) {
    return fail(Code::unsupported, "--base-url {}: https is not supported; use http", url);
  }
  if (rest.starts_with("http://")) rest = rest.substr(7);
  const size_t slash = rest.find('/');
  std::string prefix = slash == std::string::npos ? "" : rest.substr(slash);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (prefix.ends_with("/v1")) prefix.resize(prefix.size() - 3);
  out.path = prefix + out.path;
  rest = rest.substr(0, slash);
  const size_t colon = rest.rfind(':');
  out.host = rest.substr(0, colon);
  int port = 80;
  if (colon != std::string::npos) {
    port = std::atoi(rest.c_str() + colon + 1);
  }
  if (out.host.empty() || port < 1 || port > 65535) {
    return fail(Code::invalid, "--base-url {}: use http://HOST:PORT", url);
  }
  out.port = static_cast<uint16_t>(port);
  return out;
}

Result<std::string> first_model(const Target& target) {
  const auto trouble = [&](const std::string& what) {
    return fail(Code::unavailable, "http://{}:{}/v1/models: {}; give --model", target.host,
                target.port, what);
  };
  asio::io_context io;
  beast::tcp_stream stream(io);
  ErrorCode error;
  const auto addresses = tcp::resolver(io).resolve(target.host, std::to_string(target.port), error);
  if (!error) stream.connect(addresses, error);
  if (error) return nobody_answers(target, error);
  const std::string prefix = target.path.substr(0, target.path.rfind("/v1/"));
  http::request<http::empty_body> request(http::verb::get, prefix + "/v1/models", 11);
  request.set(http::field::host, fmt::format("{}:{}", target.host, target.port));
  if (!target.api_key.empty()) {
    request.set(http::field::authorization, "Bearer " + target.api_key);
  }
  http::write(stream, request, error);
  if (error) return trouble(error.message());
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  http::read(stream, buffer, response, error);
  if (error) return trouble(error.message());
  const auto body = nlohmann::json::parse(response.body(), nullptr, false);
  const auto pointer = nlohmann::json::json_pointer("/data/0/id");
  if (!body.is_object() || !body.contains(pointer) || !body[pointer].is_string()) {
    return trouble(fmt::format("HTTP {} without a model's name", response.result_int()));
  }
  return body[pointer].get<std::string>();
}

Result<LoadResult> run_load(const Target& target, const std::vector<Arrival>& workload,
                            const LoadOptions& options,
                            const std::function<bool(const LoadProgress&)>& progress) {
  return Run(target, workload, options, progress).run();
}

}  // namespace asap
