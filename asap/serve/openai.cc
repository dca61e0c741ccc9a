#include "asap/serve/openai.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <random>
#include <vector>

#include "asap/base/prng.h"
#include "asap/runtime/request_parts.h"
#include "asap/serve/http_error.h"
#include "asap/serve/openai_request.h"
#include "asap/serve/openai_response.h"
#include "asap/serve/request_context.h"
#include "asap/serve/stop_matcher.h"

namespace asap {
namespace {

// Completions of bodies up to this size are parsed and tokenized on the I/O thread, in a few
// milliseconds; larger ones beside it, so that they do not hold up the streams of others. So are
// all chats: how long a template takes is not for us to say.
constexpr size_t kInlineBodyBytes = size_t{32} << 10;

constexpr std::string_view kDone = "data: [DONE]\n\n";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// A checked request, ready for the engine.
struct Prepared {
  Api api = Api::completions;
  CompletionRequest request;
  std::vector<std::vector<int32_t>> prompts;  // token ids
};

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

tl::expected<CompletionRequest, ApiError> parse(const OpenAi& openai, Api api,
                                                std::string_view body,
                                                const RequestLimits& limits) {
  if (api == Api::completions) return parse_completion(body, limits);
  if (!openai.chat) return tl::unexpected(ApiError{400, openai.chat.error().message, ""});
  return parse_chat(body, limits, *openai.chat, unix_seconds());
}

tl::expected<Prepared, ApiError> prepare(OpenAi& openai, Api api, std::string_view body) {
  const RequestLimits limits{openai.options.model, openai.engine.max_model_len(),
                             openai.engine.vocab()};
  auto request = parse(openai, api, body, limits);
  if (!request) return tl::unexpected(std::move(request).error());
  auto prompts = tokenize_prompts(*request, limits, openai.tokenizer);
  if (!prompts) return tl::unexpected(std::move(prompts).error());
  if (!request->has_seed) request->sampling.seed = openai.draw();
  return Prepared{api, *std::move(request), *std::move(prompts)};
}

// One request on its way through the engine. All members but start()'s callbacks run on the
// connection's strand.
class CompletionJob final : public std::enable_shared_from_this<CompletionJob> {
 public:
  CompletionJob(std::shared_ptr<OpenAi> openai, std::shared_ptr<HttpExchange> exchange,
                Prepared prepared, RequestContext context);
  void start();

 private:
  struct Choice {
    Choice(const Tokenizer& tokenizer, bool skip_special, const std::vector<std::string>& stop)
        : decoder(tokenizer, skip_special), stops(stop) {}
    uint64_t handle = 0;  // the engine's
    bool submitted = false;
    bool done = false;
    int prompt_tokens = 0;
    int completion_tokens = 0;
    Instant first, last;  // tokens
    int code_points = 0;  // of the text so far
    StreamDecoder decoder;
    StopMatcher stops;
    CompletionPiece whole;  // the answer so far, if not streaming
  };

  void submit(size_t index, std::vector<int32_t> prompt);
  void on_token(size_t index, const TokenEvent& event);
  CompletionPiece piece_of(Choice& choice, const TokenEvent& event);
  std::string text_of(Choice& choice, const TokenEvent& event);
  void send(const CompletionPiece& piece);
  void collect(Choice& choice, CompletionPiece piece);
  bool is_stop_token(int32_t token) const;
  void count_end(const Choice& choice, const TokenEvent& event, std::string_view reason);
  void finish();
  void log(int status, std::string_view outcome) const;
  void fail(const ApiError& error);
  void cancel_all(Outcome outcome);

  const std::shared_ptr<OpenAi> openai_;
  const std::shared_ptr<HttpExchange> exchange_;
  CompletionRequest request_;
  const RequestContext context_;
  std::vector<std::vector<int32_t>> prompts_;  // each gives request_.n choices
  CompletionHead head_;
  std::vector<Choice> choices_;
  size_t done_ = 0;         // choices
  bool streaming_ = false;  // the status line is out
  bool over_ = false;
};

CompletionJob::CompletionJob(std::shared_ptr<OpenAi> openai, std::shared_ptr<HttpExchange> exchange,
                             Prepared prepared, RequestContext context)
    : openai_(std::move(openai)),
      exchange_(std::move(exchange)),
      request_(std::move(prepared.request)),
      context_(std::move(context)),
      prompts_(std::move(prepared.prompts)),
      head_{prepared.api,
            fmt::format("{}-{}", prepared.api == Api::chat ? "chatcmpl" : "cmpl", context_.id),
            unix_seconds(), openai_->options.model} {
  const auto n = static_cast<size_t>(request_.n);
  choices_.reserve(prompts_.size() * n);
  for (size_t i = 0; i < prompts_.size() * n; ++i) {
    Choice& choice =
        choices_.emplace_back(openai_->tokenizer, request_.skip_special_tokens, request_.stop);
    choice.prompt_tokens = static_cast<int>(prompts_[i / n].size());
    choice.whole.index = static_cast<int>(i);
    choice.whole.with_logprobs = request_.sampling.logprobs >= 0;
    choice.whole.with_token_ids = request_.return_token_ids;
    if (request_.return_token_ids) choice.whole.prompt_token_ids = prompts_[i / n];
  }
}

void CompletionJob::start() {
  exchange_->on_disconnect([self = shared_from_this()] { self->cancel_all(Outcome::abort); });
  const auto n = static_cast<size_t>(request_.n);
  for (size_t i = 0; i < choices_.size() && !over_; ++i) {
    const bool last = i % n == n - 1;
    submit(i, last ? std::move(prompts_[i / n]) : prompts_[i / n]);
  }
  prompts_.clear();
}

void CompletionJob::submit(size_t index, std::vector<int32_t> prompt) {
  EngineRequest request;
  request.id = choices_.size() == 1 ? head_.id : fmt::format("{}-{}", head_.id, index);
  request.prompt = std::move(prompt);
  request.sampling = request_.sampling;
  request.sampling.seed += index % static_cast<size_t>(request_.n);  // n different answers
  request.priority = request_.priority;
  request.queue_timeout = context_.queue_timeout;
  // The engine's thread only hands the event over; it comes to on_token() after this function has
  // returned.
  auto handle = openai_->engine.submit(
      std::move(request), [self = shared_from_this(), index](TokenEvent event) {
        self->exchange_->post(
            [self, index, event = std::move(event)] { self->on_token(index, event); });
      });
  if (!handle) return fail(api_error(handle.error()));
  Choice& choice = choices_[index];
  choice.handle = *handle;
  choice.submitted = true;
  openai_->metrics.accepted(choice.prompt_tokens, request_.n, request_.sampling.max_tokens);
}

void CompletionJob::on_token(size_t index, const TokenEvent& event) {
  Choice& choice = choices_[index];
  if (over_ || choice.done) return;
  if (event.finish == Finish::error) return fail(api_error(event.error));
  if (++choice.completion_tokens == 1) {
    choice.first = event.emitted;
    openai_->metrics.first_token(event);
  } else {
    openai_->metrics.next_token(event.emitted - choice.last);
  }
  choice.last = event.emitted;
  CompletionPiece piece = piece_of(choice, event);
  if (!piece.finish_reason.empty()) {
    choice.done = true;
    ++done_;
    count_end(choice, event, piece.finish_reason);
  }
  request_.stream ? send(piece) : collect(choice, std::move(piece));
  if (done_ == choices_.size()) finish();
}

// What this token adds to the choice.
CompletionPiece CompletionJob::piece_of(Choice& choice, const TokenEvent& event) {
  CompletionPiece piece;
  piece.index = choice.whole.index;
  piece.opens = choice.completion_tokens == 1;
  piece.with_logprobs = choice.whole.with_logprobs;
  piece.with_token_ids = choice.whole.with_token_ids;
  if (piece.with_logprobs) {
    piece.logprobs.push_back(token_logprob(event, openai_->tokenizer, choice.code_points));
  }
  if (piece.with_token_ids) piece.token_ids.push_back(event.token);
  if (piece.opens && request_.return_timing) {
    piece.timing = {event.times, host_time(event.times, event.emitted - event.arrived)};
  }

  piece.text = text_of(choice, event);
  choice.code_points += code_points(piece.text);
  if (!choice.stops.matched().empty()) {
    piece.finish_reason = "stop";
    piece.stop_reason = choice.stops.matched();
    if (request_.include_stop) piece.text += piece.stop_reason;
    if (event.finish == Finish::none) openai_->engine.cancel(choice.handle);
  } else if (event.finish != Finish::none) {
    piece.finish_reason = event.finish == Finish::stop ? "stop" : "length";
    if (event.finish == Finish::stop && is_stop_token(event.token)) piece.stop_token = event.token;
  }
  return piece;
}

bool CompletionJob::is_stop_token(int32_t token) const {
  const auto& ids = request_.sampling.stop_token_ids;
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

void CompletionJob::count_end(const Choice& choice, const TokenEvent& event,
                              std::string_view reason) {
  FinishedRequest done;
  done.outcome = reason == "stop" ? Outcome::stop : Outcome::length;
  done.completion_tokens = choice.completion_tokens;
  done.arrived = event.arrived;
  done.started = event.started;
  done.first = choice.first;
  done.last = choice.last;
  openai_->metrics.finished(done);
}

std::string CompletionJob::text_of(Choice& choice, const TokenEvent& event) {
  // The token that ends the output is not part of its text.
  const bool ends = event.finish == Finish::stop && is_stop_token(event.token);
  std::string piece = ends ? "" : choice.decoder.push(event.token);
  // No stop string counts before min_tokens.
  const bool early = choice.completion_tokens <= request_.sampling.min_tokens;
  std::string text = early ? std::move(piece) : choice.stops.push(piece);
  if (event.finish != Finish::none) {
    text += choice.stops.push(choice.decoder.flush());
    text += choice.stops.flush();
  }
  // Clients take the first event with text for the first token: it must not be empty.
  const bool first = request_.stream && choice.completion_tokens == 1;
  if (first && text.empty() && choice.stops.matched().empty() && !choice.stops.holding()) {
    text = kReplacement;
  }
  return text;
}

void CompletionJob::send(const CompletionPiece& piece) {
  if (!streaming_) {
    streaming_ = true;
    exchange_->begin_stream("text/event-stream");
  }
  Choice& choice = choices_[static_cast<size_t>(piece.index)];
  if (choice.whole.prompt_token_ids.empty()) {
    return exchange_->send(sse(completion_event(head_, piece)));
  }
  CompletionPiece first = piece;
  first.prompt_token_ids = std::exchange(choice.whole.prompt_token_ids, {});
  exchange_->send(sse(completion_event(head_, first)));
}

void CompletionJob::collect(Choice& choice, CompletionPiece piece) {
  CompletionPiece& whole = choice.whole;
  whole.text += piece.text;
  whole.finish_reason = piece.finish_reason;
  whole.stop_reason = piece.stop_reason;
  whole.stop_token = piece.stop_token;
  std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(whole.logprobs));
  if (piece.timing) whole.timing = piece.timing;
  whole.token_ids.insert(whole.token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
}

void CompletionJob::finish() {
  over_ = true;
  Usage usage;
  for (const Choice& choice : choices_) {
    // Each prompt counts once, however many answers it has.
    if (choice.whole.index % request_.n == 0) usage.prompt_tokens += choice.prompt_tokens;
    usage.completion_tokens += choice.completion_tokens;
  }
  log(200, "finished");
  if (request_.stream) {
    if (request_.include_usage) exchange_->send(sse(usage_event(head_, usage)));
    return exchange_->end_stream(kDone);
  }
  std::vector<CompletionPiece> pieces;
  for (Choice& choice : choices_) pieces.push_back(std::move(choice.whole));
  HttpReply reply;
  reply.body = completion_reply(head_, pieces, usage);
  exchange_->reply(std::move(reply));
}

// One choice that fails takes the request with it.
void CompletionJob::fail(const ApiError& error) {
  if (over_) return;
  cancel_all(Outcome::error);
  openai_->metrics.refused(error.status);
  log(error.status, error.message);
  if (!streaming_) return exchange_->reply(error_reply(error));
  exchange_->send(sse(error_body(error)));
  exchange_->end_stream(kDone);
}

// One line per request: what an operator greps for.
void CompletionJob::log(int status, std::string_view outcome) const {
  if (!openai_->options.log_requests) return;
  int prompt = 0, completion = 0;
  Instant last;
  for (const Choice& choice : choices_) {
    prompt += choice.prompt_tokens;
    completion += choice.completion_tokens;
    last = std::max(last, choice.last);
  }
  spdlog::info(
      "request id={} status={} choices={} prompt_tokens={} completion_tokens={} "
      "stream={}{}{} outcome=\"{}\"",
      head_.id, status, choices_.size(), prompt, completion, request_.stream,
      context_.traceparent.empty() ? "" : " traceparent=", context_.traceparent, outcome);
}

void CompletionJob::cancel_all(Outcome outcome) {
  if (over_) return;
  over_ = true;
  if (outcome == Outcome::abort) log(499, "the client left");
  for (const Choice& choice : choices_) {
    if (!choice.submitted || choice.done) continue;
    openai_->engine.cancel(choice.handle);
    openai_->metrics.finished(outcome);
  }
}

void begin(const std::shared_ptr<OpenAi>& openai, const std::shared_ptr<HttpExchange>& exchange,
           tl::expected<Prepared, ApiError> prepared) {
  const auto refuse = [&](const ApiError& error) {
    openai->metrics.refused(error.status);
    exchange->reply(error_reply(error));
  };
  auto context = request_context(exchange->request(), prepared ? prepared->request.request_id : "",
                                 openai->options.queue_timeout, openai->draw());
  if (!context) return refuse(context.error());
  context->put_headers(*exchange);
  if (!prepared) return refuse(prepared.error());
  std::make_shared<CompletionJob>(openai, exchange, *std::move(prepared), *std::move(context))
      ->start();
}

uint64_t random_bits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

OpenAi::OpenAi(Engine& engine_in, const Tokenizer& tokenizer_in, OpenAiOptions options_in,
               Result<ChatTemplate> chat_in)
    : engine(engine_in),
      tokenizer(tokenizer_in),
      options(std::move(options_in)),
      chat(std::move(chat_in)),
      metrics(options.model, engine.max_model_len()),
      base_(random_bits()) {}

uint64_t OpenAi::draw() {
  return mix(base_ + draws_.fetch_add(1, std::memory_order_relaxed));
}

namespace {

HttpHandler handler(std::shared_ptr<OpenAi> openai, Api api) {
  return [openai = std::move(openai), api](const std::shared_ptr<HttpExchange>& exchange) {
    if (const Status room = openai->engine.check_room(); !room) {
      return begin(openai, exchange, tl::unexpected(api_error(room.error())));
    }
    auto body = std::make_shared<std::string>(std::move(exchange->request().body));
    auto share = std::move(exchange->request().body_share);  // until the body is parsed
    if (api == Api::completions && body->size() <= kInlineBodyBytes) {
      return begin(openai, exchange, prepare(*openai, api, *body));
    }
    exchange->offload([openai, api, exchange, body, share = std::move(share)] {
      auto prepared =
          std::make_shared<tl::expected<Prepared, ApiError>>(prepare(*openai, api, *body));
      exchange->post(
          [openai, exchange, prepared] { begin(openai, exchange, std::move(*prepared)); });
    });
  };
}

}  // namespace

std::optional<HttpReply> refuse_by_head(OpenAi& openai, const HttpRequest& head) {
  if (head.method != "POST") return std::nullopt;
  if (head.path != "/v1/completions" && head.path != "/v1/chat/completions") return std::nullopt;
  // The refusal of a head ends the connection: small bodies are read instead.
  const std::string_view announced = head.header("content-length");
  size_t bytes = 0;
  std::from_chars(announced.data(), announced.data() + announced.size(), bytes);
  if (bytes <= kInlineBodyBytes) return std::nullopt;
  const Status room = openai.engine.check_room();
  if (room) return std::nullopt;
  HttpReply reply = error_reply(api_error(room.error()));
  openai.metrics.refused(reply.status);
  const auto context = request_context(head, "", openai.options.queue_timeout, openai.draw());
  if (context) reply.headers.emplace_back("X-Request-Id", context->id);
  return reply;
}

HttpHandler completions_handler(std::shared_ptr<OpenAi> openai) {
  return handler(std::move(openai), Api::completions);
}

HttpHandler chat_handler(std::shared_ptr<OpenAi> openai) {
  return handler(std::move(openai), Api::chat);
}

}  // namespace asap
