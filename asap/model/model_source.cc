#include "asap/model/model_source.h"

#include <filesystem>

#include "asap/model/read_file.h"

namespace asap {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 16 << 20;

}  // namespace

Result<ModelSpec> load_spec(const ModelSource& source) {
  std::error_code error;
  if (!fs::is_directory(source.directory, error)) {
    return fail(Code::not_found, "{}: no such model directory", source.directory);
  }
  const fs::path dir(source.directory);
  const std::string path = (dir / source.config_file).string();
  ASAP_ASSIGN(const std::string text, read_file(path, kMaxConfigBytes));
  ASAP_ASSIGN(ModelSpec spec, parse_spec(text, path));
  const std::string generation = (dir / "generation_config.json").string();
  if (fs::exists(generation, error)) {
    ASAP_ASSIGN(const std::string more, read_file(generation, kMaxConfigBytes));
    ASAP_TRY(parse_generation_config(more, generation, &spec));
  }
  return spec;
}

Result<OpenWeights> open_weights(const ModelSource& source, const ModelSpec& spec) {
  OpenWeights out;
  ASAP_ASSIGN(out.checkpoint, Checkpoint::open(source.directory));
  ASAP_ASSIGN(out.views, bind_weights(out.checkpoint, spec, source.quantization));
  return out;
}

Result<ModelSpec> load_spec(const std::string& directory) {
  return load_spec(ModelSource{directory});
}

}  // namespace asap
