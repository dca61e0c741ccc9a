#include "asap/model/model_source.h"

#include <filesystem>

#include "asap/model/dummy_weights.h"
#include "asap/model/json_reader.h"
#include "asap/model/presets.h"
#include "asap/model/read_file.h"

namespace asap {

namespace {

namespace fs = std::filesystem;

// A configuration as it was found, and what messages call it.
struct ConfigText {
  std::string text;
  std::string name;
};

Result<ConfigText> read_config(const ModelSource& source) {
  if (!source.preset.empty()) {
    if (!source.directory.empty()) {
      return fail(Code::invalid, "--preset {} and the model {}: give one of them", source.preset,
                  source.directory);
    }
    ASAP_ASSIGN(const Preset preset, find_preset(source.preset));
    return ConfigText{std::string(preset.config), "preset " + source.preset};
  }
  std::error_code error;
  if (!fs::is_directory(source.directory, error)) {
    return fail(Code::not_found, "{}: no such model directory", source.directory);
  }
  const std::string path = (fs::path(source.directory) / source.config_file).string();
  ASAP_ASSIGN(std::string text, read_file(path, kMaxConfigBytes));
  return ConfigText{std::move(text), path};
}

// Objects are merged key by key; anything else replaces what was there, null included.
void merge(const nlohmann::json& from, nlohmann::json* into) {
  if (!from.is_object() || !into->is_object()) {
    *into = from;
    return;
  }
  for (const auto& [key, value] : from.items()) merge(value, &(*into)[key]);
}

Status keep_layers(int layers, const std::string& name, nlohmann::json* config) {
  if (layers == 0) return {};
  JsonReader reader(*config, name);
  const int all = reader.integer("num_hidden_layers", 1, INT32_MAX);
  ASAP_TRY(reader.status());
  if (layers < 0 || layers > all) {
    return fail(Code::invalid,
                "--num-hidden-layers {}: {} has {} layers; keep 1 to {} of them, or leave it out",
                layers, name, all, all);
  }
  (*config)["num_hidden_layers"] = layers;
  return {};
}

// The configuration with everything merged in that the source asks for.
Result<nlohmann::json> merged_config(const ModelSource& source, const ConfigText& found) {
  ASAP_ASSIGN(nlohmann::json config, parse_json_object(found.text, found.name));
  if (!source.hf_overrides.empty()) {
    const auto overrides = parse_json_object(source.hf_overrides, "--hf-overrides");
    if (!overrides) {
      return fail(Code::invalid,
                  "--hf-overrides is {}; it must be a JSON object, as '{{\"rope_theta\": 10000}}' "
                  "(in quotes of the shell)",
                  shown(source.hf_overrides));
    }
    merge(*overrides, &config);
  }
  ASAP_TRY(keep_layers(source.num_hidden_layers, found.name, &config));
  return config;
}

// How the configuration says that weights are stored.
DummyFormat dummy_format(const nlohmann::json& config, const ModelSpec& spec, uint64_t seed) {
  DummyFormat out;
  out.seed = seed;
  if (spec.stored_dtype == DType::f32) out.dtype = "F32";
  if (spec.stored_dtype == DType::f16) out.dtype = "F16";
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return out;
  const auto is = [&](const char* key, const char* value) {
    return found->contains(key) && (*found)[key] == value;
  };
  if (is("quant_method", "fp8")) out.stored = DummyFormat::Stored::fp8;
  if (is("quant_method", "mxfp4")) out.stored = DummyFormat::Stored::mxfp4;
  out.power_of_two_scales = is("scale_fmt", "ue8m0");
  const auto kept = found->find("modules_to_not_convert");
  if (kept == found->end() || !kept->is_array()) return out;
  for (const nlohmann::json& module : *kept) {
    if (module.is_string()) out.kept.push_back(module.get<std::string>());
  }
  return out;
}

}  // namespace

Result<ModelSpec> load_spec(const ModelSource& source) {
  ASAP_ASSIGN(const ConfigText found, read_config(source));
  ASAP_ASSIGN(const nlohmann::json config, merged_config(source, found));
  ASAP_ASSIGN(ModelSpec spec, parse_spec(config.dump(), found.name));
  const std::string generation = (fs::path(source.directory) / "generation_config.json").string();
  std::error_code error;
  if (source.preset.empty() && fs::exists(generation, error)) {
    ASAP_ASSIGN(const std::string more, read_file(generation, kMaxConfigBytes));
    ASAP_TRY(parse_generation_config(more, generation, &spec));
  }
  return spec;
}

Result<OpenWeights> open_weights(const ModelSource& source, const ModelSpec& spec) {
  OpenWeights out;
  if (source.dummy()) {
    ASAP_ASSIGN(const ConfigText found, read_config(source));
    ASAP_ASSIGN(const nlohmann::json config, merged_config(source, found));
    out.checkpoint = Checkpoint::dummy(dummy_format(config, spec, source.seed));
  } else if (!source.preset.empty()) {
    return fail(Code::not_found,
                "--preset {} is a configuration without weights; add --load-format dummy for "
                "random ones",
                source.preset);
  } else {
    ASAP_ASSIGN(out.checkpoint, Checkpoint::open(source.directory));
  }
  ASAP_ASSIGN(out.views, bind_weights(out.checkpoint, spec, source.quantization));
  return out;
}

Result<ModelSpec> load_spec(const std::string& directory) {
  return load_spec(ModelSource{directory});
}

}  // namespace asap
