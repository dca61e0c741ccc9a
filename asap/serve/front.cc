#include "asap/serve/front.h"

#include <spdlog/spdlog.h>

#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "asap/serve/http_error.h"
#include "asap/serve/openai.h"
#include "asap/serve/tokenize.h"

namespace asap {
namespace {

using Json = nlohmann::ordered_json;

HttpReply json_reply(const Json& json, int status = 200) {
  HttpReply reply;
  reply.status = status;
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

Json model_json(const OpenAi& openai, const std::string& root, int64_t created) {
  return {{"id", openai.options.model},
          {"object", "model"},
          {"created", created},
          {"owned_by", "asap"},
          {"root", root.empty() ? openai.options.model : root},
          {"parent", nullptr},
          {"max_model_len", openai.engine.max_model_len()}};
}

HttpReply models_reply(const Json& model) {
  return json_reply({{"object", "list"}, {"data", Json::array({model})}});
}

constexpr std::string_view kModels = "/v1/models/";

// "org%2Fname" as "org/name".
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char value = 0;
    const bool escape =
        text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 2, value, 16).ptr == &text[i + 1] + 2;
    out += escape ? static_cast<char>(value) : text[i];
    i += escape ? 2 : 0;
  }
  return out;
}

// One model, by its name in the path.
HttpReply model_reply(const Json& model, std::string_view path) {
  const std::string name = percent_decoded(path.substr(kModels.size()));
  if (name == model["id"]) return json_reply(model);
  return error_reply({404,
                      fmt::format("the model \"{}\" does not exist; this server serves \"{}\"",
                                  name, model["id"].get<std::string>()),
                      "model"});
}

HttpReply ready_reply(const Engine& engine) {
  if (engine.ready()) return json_reply({{"status", "ready"}});
  HttpReply reply =
      json_reply({{"status", "not ready"}, {"reason", engine.not_ready_reason()}}, 503);
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

// The process lives; 503 once it cannot serve any more and only a restart helps.
HttpReply health_reply(const Engine& engine) {
  const FaultStatus faults = engine.fault_status();
  if (faults.can_serve()) return json_reply({{"status", "ok"}});
  return json_reply({{"status", faults.state}, {"reason", faults.reason}}, 503);
}

Json peers_json(const Engine& engine) {
  const auto rank = [](int value) { return value < 0 ? Json(nullptr) : Json(value); };
  Json peers = Json::array();
  for (const PeerStatus& peer : engine.peers()) {
    peers.push_back({{"role", peer.role},
                     {"group", rank(peer.group)},
                     {"tp_rank", rank(peer.tp_rank)},
                     {"moe_rank", rank(peer.moe_rank)},
                     {"pid", peer.pid},
                     {"epoch", peer.epoch},
                     {"state", peer.state},
                     {"restarts", peer.restarts},
                     {"last_death", peer.last_death}});
  }
  return peers;
}

HttpReply peers_reply(const Engine& engine) {
  return json_reply({{"ready", engine.ready()}, {"peers", peers_json(engine)}});
}

HttpReply faults_reply(const Engine& engine) {
  const FaultStatus faults = engine.fault_status();
  Json recent = Json::array();
  for (const RecoveryEvent& event : faults.recent) {
    recent.push_back({{"unix_time", event.unix_time},
                      {"who", event.who},
                      {"cause", event.cause},
                      {"epoch", event.epoch},
                      {"seconds", event.seconds},
                      {"requests", event.requests}});
  }
  return json_reply({{"state", faults.state},
                     {"reason", faults.reason},
                     {"ready", engine.ready()},
                     {"draining", faults.draining},
                     {"drained", engine.drained()},
                     {"groups", faults.groups},
                     {"groups_up", faults.groups_up},
                     {"moe_ranks", faults.expert_ranks},
                     {"moe_ranks_up", faults.expert_ranks_up},
                     {"recoveries", faults.recoveries},
                     {"requests_rerun", faults.requests_rerun},
                     {"recent", std::move(recent)},
                     {"peers", peers_json(engine)}});
}

// /load as vLLM has it: one number; /get_loads: what a balancer would ask of every group.
HttpReply load_reply(const Engine& engine) {
  const EngineStats stats = engine.stats();
  return json_reply({{"server_load", stats.running + stats.waiting}});
}

HttpReply loads_reply(const Engine& engine) {
  const EngineStats stats = engine.stats();
  Json groups = Json::array();
  for (size_t g = 0; g < stats.groups.size(); ++g) {
    groups.push_back({{"group", g},
                      {"stages_live", stats.groups[g].stages_live},
                      {"tokens", stats.groups[g].tokens},
                      {"cost", stats.groups[g].cost}});
  }
  return json_reply({{"running", stats.running},
                     {"waiting", stats.waiting},
                     {"waiting_tokens", stats.waiting_tokens},
                     {"waiting_seconds", stats.waiting_seconds},
                     {"kv_usage", stats.kv_usage},
                     {"groups", std::move(groups)}});
}

HttpReply drain_reply(Engine& engine, bool drain) {
  drain ? engine.drain() : engine.resume();
  spdlog::info("state event={} by=admin", drain ? "drain" : "resume");
  return json_reply({{"draining", drain}, {"drained", engine.drained()}});
}

HttpReply profile_reply(Engine& engine, bool start) {
  if (start) {
    const Status started = engine.start_profile();
    return started ? json_reply({{"profiling", true}}) : error_reply(api_error(started.error()));
  }
  const auto file = engine.stop_profile();
  if (!file) return error_reply(api_error(file.error()));
  spdlog::info("state event=profile file={}", *file);
  return json_reply({{"profiling", false}, {"file", *file}});
}

HttpReply metrics_reply(OpenAi& openai) {
  HttpReply reply;
  reply.body = openai.metrics.text(openai.engine);
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

HttpRouter make_router(const std::shared_ptr<OpenAi>& openai, const std::string& root) {
  HttpRouter router;
  // A page made anew for each request.
  const auto page = [&router](const char* method, std::string_view path,
                              std::function<HttpReply()> make) {
    router.add(method, path,
               [make = std::move(make)](const std::shared_ptr<HttpExchange>& exchange) {
                 exchange->reply(make());
               });
  };
  const auto get = [&page](std::string_view path, std::function<HttpReply()> make) {
    page("GET", path, std::move(make));
  };
  const int64_t created = std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  router.add("POST", "/v1/completions", completions_handler(openai));
  router.add("POST", "/v1/chat/completions", chat_handler(openai));
  const Json model = model_json(*openai, root, created);
  get("/v1/models", [model] { return models_reply(model); });
  router.add("GET", std::string(kModels) + "*",
             [model](const std::shared_ptr<HttpExchange>& exchange) {
               exchange->reply(model_reply(model, exchange->request().path));
             });
  router.add("POST", "/tokenize", tokenize_handler(openai));
  router.add("POST", "/detokenize", detokenize_handler(openai));
  for (const char* path : {"/health", "/liveness", "/ping"}) {
    get(path, [openai] { return health_reply(openai->engine); });
  }
  for (const char* path : {"/ready", "/readiness", "/health/ready"}) {
    get(path, [openai] { return ready_reply(openai->engine); });
  }
  get("/metrics", [openai] { return metrics_reply(*openai); });
  get("/version", [] { return json_reply({{"version", ASAP_VERSION}}); });
  get("/load", [openai] { return load_reply(openai->engine); });
  get("/get_loads", [openai] { return loads_reply(openai->engine); });
  get("/v1/fault_tolerance/status", [openai] { return faults_reply(openai->engine); });
  get("/admin/peers", [openai] { return peers_reply(openai->engine); });
  page("POST", "/admin/drain", [openai] { return drain_reply(openai->engine, true); });
  page("POST", "/admin/resume", [openai] { return drain_reply(openai->engine, false); });
  page("POST", "/start_profile", [openai] { return profile_reply(openai->engine, true); });
  page("POST", "/stop_profile", [openai] { return profile_reply(openai->engine, false); });
  for (const std::string_view path : kOpenPaths) router.add_probe(path);
  return router;
}

}  // namespace

Result<std::unique_ptr<HttpFront>> HttpFront::start(ServeOptions options, Engine& engine,
                                                    const Tokenizer& tokenizer,
                                                    Result<ChatTemplate> chat,
                                                    std::unique_ptr<HttpServer> bound) {
  if (options.served_model_name.empty()) {
    return fail(Code::invalid, "--served-model-name is empty: clients need a name to ask for");
  }
  try {
    const OpenAiOptions api{options.served_model_name, options.queue_timeout, options.log_requests};
    const auto openai = std::make_shared<OpenAi>(engine, tokenizer, api, std::move(chat));
    HttpRouter router = make_router(openai, options.model_root);
    router.set_guard([keys = options.auth, openai](const HttpRequest& head) {
      auto refusal = check_auth(keys, head);
      return refusal ? refusal : refuse_by_head(*openai, head);
    });
    const std::string host = options.host;
    const char* const scheme = options.ssl_certfile.empty() ? "http" : "https";
    std::unique_ptr<HttpServer> server = std::move(bound);
    if (!server) {
      ASAP_ASSIGN(server, HttpServer::bind(std::move(options)));
    }
    ASAP_TRY(server->serve(std::move(router)));
    spdlog::info("serving {} on {}://{}:{}", openai->options.model, scheme, host, server->port());
    return std::unique_ptr<HttpFront>(new HttpFront(std::move(server)));
  } catch (const std::exception& error) {
    return fail(Code::internal, "cannot start the HTTP front: {}", error.what());
  }
}

}  // namespace asap
