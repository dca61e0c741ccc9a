#include "asap/model/spec.h"

#include "asap/model/families/common.h"
#include "asap/model/families/family.h"

namespace asap {

namespace {

std::string supported_families() {
  std::string out;
  for (const Family* family : families()) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", family->model_type);
  }
  return out;
}

std::string first_architecture(const JsonReader& config) {
  if (!config.has("architectures")) return "";
  const nlohmann::json& list = config.raw("architectures");
  const bool named = list.is_array() && !list.empty() && list[0].is_string();
  return named ? list[0].get<std::string>() : "";
}

// By model_type, or by the architecture where that key is missing.
Result<const Family*> choose_family(JsonReader& config, const std::string& architecture) {
  const std::string type = config.string_or("model_type", "");
  ASAP_TRY(config.status());
  if (const Family* family = find_family(type)) return family;
  for (const Family* family : families()) {
    if (type.empty() && architecture == family->architecture) return family;
  }
  return fail(Code::unsupported,
              "{}: model_type {} (architecture {}) is not supported; use one of {}", config.file(),
              shown(type), shown(architecture), supported_families());
}

// What must hold for every family.
void check_spec(JsonReader& config, const ModelSpec& spec) {
  const RouterSpec& router = spec.router;
  const int choosable = spec.experts / router.groups * router.top_groups;
  if (spec.top_k > choosable) {
    config.problem("num_experts_per_tok", fmt::format("is {}; it must be at most {}, the experts "
                                                      "that can be chosen",
                                                      spec.top_k, choosable));
  }
  if (spec.moe_layers() < spec.layers && spec.dense_intermediate == 0) {
    config.problem("intermediate_size", "is missing; the model has dense layers, give their width");
  }
}

}  // namespace

Result<ModelSpec> parse_spec(const std::string& text, const std::string& file) {
  ASAP_ASSIGN(const nlohmann::json object, parse_json_object(text, file));
  JsonReader config(object, file);
  ModelSpec spec;
  spec.architecture = first_architecture(config);
  ASAP_ASSIGN(const Family* family, choose_family(config, spec.architecture));
  spec.model_type = family->model_type;
  family->read(config, &spec);
  ASAP_TRY(config.status());
  check_spec(config, spec);
  ASAP_TRY(config.status());
  return spec;
}

// Chat models often list further end tokens only in generation_config.json; where it names some,
// they count.
Status parse_generation_config(const std::string& text, const std::string& file, ModelSpec* spec) {
  ASAP_ASSIGN(const nlohmann::json object, parse_json_object(text, file));
  JsonReader config(object, file);
  const std::vector<int> ids = config.integers_or_empty("eos_token_id", 0, kMaxVocab);
  ASAP_TRY(config.status());
  if (!ids.empty()) spec->eos_ids = ids;
  return {};
}

}  // namespace asap
