#include "asap/serve/front.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "asap/serve/http_error.h"
#include "asap/serve/openai.h"

namespace asap {
namespace {

using Json = nlohmann::ordered_json;

HttpReply json_reply(const Json& json, int status = 200) {
  HttpReply reply;
  reply.status = status;
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

HttpReply models_reply(const OpenAi& openai, const std::string& root, int64_t created) {
  const Json model = {{"id", openai.model},
                      {"object", "model"},
                      {"created", created},
                      {"owned_by", "asap"},
                      {"root", root.empty() ? openai.model : root},
                      {"parent", nullptr},
                      {"max_model_len", openai.engine.max_model_len()}};
  return json_reply({{"object", "list"}, {"data", Json::array({model})}});
}

HttpReply ready_reply(const Engine& engine) {
  if (engine.ready()) return json_reply({{"status", "ready"}});
  HttpReply reply =
      json_reply({{"status", "not ready"}, {"reason", engine.not_ready_reason()}}, 503);
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

HttpReply peers_reply(const Engine& engine) {
  const auto rank = [](int value) { return value < 0 ? Json(nullptr) : Json(value); };
  Json peers = Json::array();
  for (const PeerStatus& peer : engine.peers()) {
    peers.push_back({{"role", peer.role},
                     {"group", rank(peer.group)},
                     {"tp_rank", rank(peer.tp_rank)},
                     {"moe_rank", rank(peer.moe_rank)},
                     {"pid", peer.pid},
                     {"epoch", peer.epoch},
                     {"state", peer.state}});
  }
  return json_reply({{"ready", engine.ready()}, {"peers", std::move(peers)}});
}

HttpReply metrics_reply(OpenAi& openai) {
  HttpReply reply;
  reply.body = openai.metrics.text(openai.engine.stats());
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

HttpRouter make_router(const std::shared_ptr<OpenAi>& openai, const std::string& root) {
  HttpRouter router;
  // A page made anew for each request.
  const auto get = [&router](std::string_view path, std::function<HttpReply()> page) {
    router.add("GET", path,
               [page = std::move(page)](const std::shared_ptr<HttpExchange>& exchange) {
                 exchange->reply(page());
               });
  };
  const int64_t created = std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  router.add("POST", "/v1/completions", completions_handler(openai));
  router.add("POST", "/v1/chat/completions", chat_handler(openai));
  get("/v1/models", [openai, root, created] { return models_reply(*openai, root, created); });
  for (const char* path : {"/health", "/liveness", "/ping"}) {
    get(path, [] { return json_reply({{"status", "ok"}}); });
  }
  for (const char* path : {"/ready", "/readiness", "/health/ready"}) {
    get(path, [openai] { return ready_reply(openai->engine); });
  }
  get("/metrics", [openai] { return metrics_reply(*openai); });
  get("/version", [] { return json_reply({{"version", ASAP_VERSION}}); });
  get("/admin/peers", [openai] { return peers_reply(openai->engine); });
  return router;
}

}  // namespace

Result<std::unique_ptr<HttpFront>> HttpFront::start(ServeOptions options, Engine& engine,
                                                    const Tokenizer& tokenizer,
                                                    Result<ChatTemplate> chat) {
  if (options.served_model_name.empty()) {
    return fail(Code::invalid, "--served-model-name is empty: clients need a name to ask for");
  }
  try {
    const auto openai =
        std::make_shared<OpenAi>(engine, tokenizer, options.served_model_name, std::move(chat));
    HttpRouter router = make_router(openai, options.model_root);
    const std::string host = options.host;
    ASAP_ASSIGN(auto server, HttpServer::start(std::move(options), std::move(router)));
    spdlog::info("serving {} on http://{}:{}", openai->model, host, server->port());
    return std::unique_ptr<HttpFront>(new HttpFront(std::move(server)));
  } catch (const std::exception& error) {
    return fail(Code::internal, "cannot start the HTTP front: {}", error.what());
  }
}

}  // namespace asap
