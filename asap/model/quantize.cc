#include "asap/model/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>

#include "asap/model/families/family.h"
#include "asap/model/json_reader.h"
#include "asap/model/model_source.h"
#include "asap/model/read_file.h"
#include "asap/model/safetensors_write.h"
#include "asap/model/weights.h"

namespace asap {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kCopyBytes = 16 << 20;  // of one step, between two looks at on()
constexpr const char* kWeight = ".weight";

// A tensor of the output.
struct Output {
  enum class Kind { copy, widen, int8 };
  Kind kind = Kind::copy;
  TensorHeader header;
  const StoredTensor* source = nullptr;  // copy
  TensorView view;                       // widen, int8

  uint64_t bytes() const { return header.bytes + (kind == Kind::int8 ? scale_bytes() : 0); }
  // Of the second tensor of int8, which follows.
  uint64_t scale_bytes() const { return static_cast<uint64_t>(view.rows) * sizeof(float); }
  std::vector<TensorHeader> headers() const {
    if (kind != Kind::int8) return {header};
    return {header, {header.name + "_scale", "F32", {view.rows, 1}, scale_bytes()}};
  }
};

// The tensors of the output, in the order of the input's names.
class Plan {
 public:
  Plan(const Checkpoint& checkpoint, const ModelSpec& spec)
      : checkpoint_(checkpoint), spec_(spec) {}

  Status make(ModelWeights& weights);
  const std::vector<Output>& outputs() const { return outputs_; }
  const QuantizeSummary& summary() const { return summary_; }
  // Linear layers that stay as they are.
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  void add_int8(const std::string& name, const TensorView& view);
  void add_copy(const std::string& name, const StoredTensor& tensor);
  Status add_widened(const std::string& name, const StoredTensor& tensor);
  void add(Output output) {
    summary_.bytes_after += output.bytes();
    outputs_.push_back(std::move(output));
  }
  // Block scales of an FP8 tensor, which go where it goes.
  bool is_block_scale(const std::string& name) const {
    constexpr std::string_view kSuffix = "_scale_inv";
    return name.ends_with(kSuffix) &&
           checkpoint_.find(name.substr(0, name.size() - kSuffix.size())) != nullptr;
  }

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  std::vector<Output> outputs_;
  std::vector<std::string> ignored_;
  QuantizeSummary summary_;
};

// What each stored tensor turns into: the names and views of its int8 matrices.
using Int8Parts = std::map<std::string, std::vector<std::pair<std::string, TensorView>>>;

// Parts of a stack of experts get the names that they have where every expert is a tensor.
Int8Parts int8_parts(const Checkpoint& checkpoint, ModelWeights& weights,
                     const TensorNames& names) {
  std::unordered_map<const TensorView*, std::string> renamed;
  for (LayerViews& layer : weights.layers) {
    for (size_t e = 0; e < layer.experts.size(); ++e) {
      const FfnViews& expert = layer.experts[e];
      const std::pair<const TensorView*, const char*> matrices[] = {
          {&expert.gate, names.gate}, {&expert.up, names.up}, {&expert.down, names.down}};
      for (const auto& [view, name] : matrices) {
        const StoredTensor* stored = checkpoint.find(view->name);
        if (stored == nullptr || stored->shape.size() != 3) continue;
        const std::string experts = view->name.substr(0, view->name.rfind('.') + 1);
        renamed[view] = fmt::format("{}{}.{}", experts, e, name);
      }
    }
  }
  Int8Parts out;
  for (const TensorView* view : quantizable_matrices(weights)) {
    const auto found = renamed.find(view);
    out[view->name].emplace_back(found == renamed.end() ? view->name : found->second, *view);
  }
  return out;
}

// Biases of experts, and MXFP4, have no place in per-expert W8A8 tensors.
Status check_source(const Checkpoint& checkpoint, const ModelSpec& spec, ModelWeights& weights) {
  if (spec.expert_bias) {
    return fail(Code::unsupported,
                "{} has experts with biases, for which W8A8 checkpoints have no form; serve it "
                "with --quantization int8 instead",
                spec.model_type);
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (tensor.dtype == "I8") {
      return fail(Code::unsupported, "tensor {} is int8 already; serve the model as it is", name);
    }
  }
  for (const TensorView* view : quantizable_matrices(weights)) {
    if (checkpoint.find(view->name) == nullptr) {
      return fail(Code::unsupported,
                  "tensor {} is stored as {} under other names, which cannot be quantised; serve "
                  "the model with --quantization int8 instead",
                  view->name, dtype_name(view->dtype));
    }
  }
  return {};
}

Status Plan::make(ModelWeights& weights) {
  ASAP_TRY(check_source(checkpoint_, spec_, weights));
  const Int8Parts parts = int8_parts(checkpoint_, weights, find_family(spec_.model_type)->names);
  summary_.bytes_before = checkpoint_.total_bytes();
  ignored_.push_back("lm_head");
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    const auto found = parts.find(name);
    if (found != parts.end()) {
      for (const auto& [part, view] : found->second) add_int8(part, view);
    } else if (has_no_use(name, spec_)) {
      ++summary_.left_out;
    } else if (tensor.dtype == "F8_E4M3") {
      ASAP_TRY(add_widened(name, tensor));
    } else if (!is_block_scale(name)) {
      add_copy(name, tensor);
    }
  }
  return {};
}

void Plan::add_int8(const std::string& name, const TensorView& view) {
  Output out{Output::Kind::int8, {name, "I8", {view.rows, view.cols}, 0}, nullptr, view};
  out.header.bytes = static_cast<uint64_t>(view.rows) * static_cast<uint64_t>(view.cols);
  ++summary_.quantized;
  add(std::move(out));
}

void Plan::add_copy(const std::string& name, const StoredTensor& tensor) {
  const std::string_view layer = std::string_view(name).substr(0, name.rfind('.'));
  const bool linear = name.ends_with(kWeight) && tensor.shape.size() == 2;
  if (linear && !layer.ends_with("embed_tokens") && layer != ignored_.front()) {
    ignored_.emplace_back(layer);
  }
  ++summary_.copied;
  add({Output::Kind::copy, {name, tensor.dtype, tensor.shape, tensor.bytes}, &tensor, {}});
}

// FP8 that stays a float matrix: its type has no place beside int8.
Status Plan::add_widened(const std::string& name, const StoredTensor& tensor) {
  ASAP_ASSIGN(const TensorView view, bind_matrix(checkpoint_, spec_, name));
  const bool bf16 = view.fits_bf16();
  if (name.ends_with(kWeight)) ignored_.push_back(name.substr(0, name.rfind('.')));
  ++summary_.copied;
  Output out{Output::Kind::widen, {name, bf16 ? "BF16" : "F32", tensor.shape, 0}, nullptr, view};
  out.header.bytes =
      static_cast<uint64_t>(view.rows) * static_cast<uint64_t>(view.cols) * (bf16 ? 2 : 4);
  add(std::move(out));
  return {};
}

// Writes the shards, and reports.
class Writer {
 public:
  Writer(const QuantizeOptions& options, uint64_t total) : options_(options), total_(total) {}

  Status shard(const std::string& path, std::span<const Output> outputs);

 private:
  Status copy(SafetensorsWriter& file, const Output& output);
  Status widen(SafetensorsWriter& file, const Output& output);
  Status int8(SafetensorsWriter& file, const Output& output);
  Status append(SafetensorsWriter& file, const void* data, uint64_t bytes) {
    done_ += bytes;
    if (options_.on && !options_.on(done_, total_)) return fail(Code::unavailable, "interrupted");
    return file.append(data, bytes);
  }

  const QuantizeOptions& options_;
  uint64_t total_;
  uint64_t done_ = 0;
};

Status Writer::shard(const std::string& path, std::span<const Output> outputs) {
  std::vector<TensorHeader> headers;
  for (const Output& output : outputs) {
    for (TensorHeader& header : output.headers()) headers.push_back(std::move(header));
  }
  ASAP_ASSIGN(SafetensorsWriter file, SafetensorsWriter::create(path, headers));
  for (const Output& output : outputs) {
    switch (output.kind) {
      case Output::Kind::copy: ASAP_TRY(copy(file, output)); break;
      case Output::Kind::widen: ASAP_TRY(widen(file, output)); break;
      case Output::Kind::int8: ASAP_TRY(int8(file, output)); break;
    }
  }
  return file.finish();
}

Status Writer::copy(SafetensorsWriter& file, const Output& output) {
  const StoredTensor& tensor = *output.source;
  for (uint64_t at = 0; at < tensor.bytes; at += kCopyBytes) {
    ASAP_TRY(append(file, tensor.data + at, std::min(kCopyBytes, tensor.bytes - at)));
  }
  return {};
}

Status Writer::widen(SafetensorsWriter& file, const Output& output) {
  const TensorView& view = output.view;
  std::vector<float> row(static_cast<size_t>(view.cols));
  std::vector<uint16_t> halves(row.size());
  for (int r = 0; r < view.rows; ++r) {
    view.read_row(r, row.data());
    if (output.header.dtype == "F32") {
      ASAP_TRY(append(file, row.data(), row.size() * sizeof(float)));
      continue;
    }
    for (size_t i = 0; i < row.size(); ++i) {
      halves[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(row[i]) >> 16);
    }
    ASAP_TRY(append(file, halves.data(), halves.size() * sizeof(uint16_t)));
  }
  return {};
}

Status Writer::int8(SafetensorsWriter& file, const Output& output) {
  const TensorView& view = output.view;
  std::vector<float> scratch, scales;
  std::vector<int8_t> row(static_cast<size_t>(view.cols));
  for (int r = 0; r < view.rows; ++r) {
    scales.push_back(read_int8_row(view, r, scratch, row.data()));
    if (std::isnan(scales.back())) {
      return fail(Code::invalid,
                  "tensor {}, row {}, holds a value that is not finite; the checkpoint is damaged",
                  output.header.name, r);
    }
    ASAP_TRY(append(file, row.data(), row.size()));
  }
  return append(file, scales.data(), output.scale_bytes());
}

// Consecutive outputs of at most `limit` bytes, or single larger ones.
std::vector<std::span<const Output>> cut(const std::vector<Output>& outputs, uint64_t limit) {
  std::vector<std::span<const Output>> out;
  for (size_t begin = 0; begin < outputs.size();) {
    size_t end = begin;
    for (uint64_t bytes = 0; end < outputs.size(); ++end) {
      bytes += outputs[end].bytes();
      if (end > begin && bytes > limit) break;
    }
    out.emplace_back(outputs.data() + begin, end - begin);
    begin = end;
  }
  return out;
}

// Keys that every version of compressed-tensors knows; what is missing has the right default.
nlohmann::ordered_json scheme(bool dynamic, const char* strategy) {
  return {{"num_bits", 8},        {"type", "int"},         {"symmetric", true},
          {"strategy", strategy}, {"group_size", nullptr}, {"dynamic", dynamic}};
}

// The source's config.json with what compressed-tensors writes in place of its quantisation.
Result<std::string> config_text(const std::string& model, const std::vector<std::string>& ignored) {
  const std::string path = (fs::path(model) / "config.json").string();
  ASAP_ASSIGN(const std::string text, read_file(path, kMaxConfigBytes));
  ASAP_TRY(parse_json_object(text, path));
  auto config = nlohmann::ordered_json::parse(text, nullptr, false);  // keeps the order of keys
  const nlohmann::ordered_json group = {{"targets", {"Linear"}},
                                        {"weights", scheme(false, "channel")},
                                        {"input_activations", scheme(true, "token")},
                                        {"output_activations", nullptr}};
  config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                   {"format", "int-quantized"},
                                   {"quantization_status", "compressed"},
                                   {"config_groups", {{"group_0", group}}},
                                   {"ignore", ignored},
                                   {"kv_cache_scheme", nullptr}};
  return config.dump(2) + "\n";
}

std::string index_text(const std::vector<std::string>& names,
                       const std::vector<std::span<const Output>>& shards, uint64_t bytes) {
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = bytes;
  nlohmann::ordered_json& map = index["weight_map"] = nlohmann::ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const Output& output : shards[i]) {
      for (const TensorHeader& header : output.headers()) map[header.name] = names[i];
    }
  }
  return index.dump(2) + "\n";
}

// What belongs to a model beside weights and config: tokenizer, chat template, generation defaults,
// code, licence.
bool is_companion(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name == "config.json" || name.ends_with(".safetensors.index.json")) return false;
  if (name.starts_with("LICENSE") || name.starts_with("NOTICE")) return true;
  for (const char* suffix : {".json", ".txt", ".model", ".tiktoken", ".jinja", ".py"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

// Files that were begun.
using Created = std::vector<fs::path>;

Status copy_companions(const fs::path& from, const fs::path& to, Created* created) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(from, error)) {
    if (!entry.is_regular_file(error) || !is_companion(entry.path())) continue;
    const fs::path target = created->emplace_back(to / entry.path().filename());
    if (!fs::copy_file(entry.path(), target, error)) {
      return fail(Code::internal, "{}: cannot be copied to {}: {}", entry.path().string(),
                  target.string(), error.message());
    }
  }
  if (error) return fail(Code::internal, "{}: cannot be read: {}", from.string(), error.message());
  return {};
}

Status check_output(const QuantizeOptions& options) {
  std::error_code error;
  const fs::path out(options.output);
  if (options.output.empty()) return fail(Code::invalid, "--output is empty; name a directory");
  if (fs::equivalent(out, options.model, error)) {
    return fail(Code::invalid, "--output {} is the model itself; name another directory",
                options.output);
  }
  if (!fs::exists(out, error)) return {};
  if (!fs::is_directory(out, error)) {
    return fail(Code::invalid, "--output {} is no directory; name another", options.output);
  }
  if (!fs::is_empty(out, error)) {
    return fail(Code::invalid,
                "--output {} holds files already (from a run that was stopped?); empty it or name "
                "another directory",
                options.output);
  }
  return {};
}

Status check_space(const fs::path& directory, uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (error || space.available >= bytes) return {};
  return fail(Code::invalid, "--output {} has room for {} bytes, but {} are needed; free some",
              directory.string(), space.available, bytes);
}

Status write_all(const QuantizeOptions& options, const Plan& plan, int* files, Created* created) {
  const fs::path out(options.output);
  const auto path_of = [&](const char* name) { return created->emplace_back(out / name).string(); };
  const auto shards = cut(plan.outputs(), options.shard_bytes);
  *files = static_cast<int>(shards.size());
  Writer writer(options, plan.summary().bytes_after);
  std::vector<std::string> names;
  for (size_t i = 0; i < shards.size(); ++i) {
    names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    ASAP_TRY(writer.shard(path_of(names.back().c_str()), shards[i]));
  }
  ASAP_TRY(copy_companions(options.model, out, created));
  ASAP_ASSIGN(const std::string config, config_text(options.model, plan.ignored()));
  ASAP_TRY(write_file(path_of("config.json"), config));
  return write_file(path_of("model.safetensors.index.json"),
                    index_text(names, shards, plan.summary().bytes_after));
}

}  // namespace

Result<QuantizeSummary> quantize_checkpoint(const QuantizeOptions& options) {
  ASAP_ASSIGN(const ModelSpec spec, load_spec(options.model));
  ASAP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model));
  ASAP_ASSIGN(ModelWeights weights, bind_weights(checkpoint, spec));
  Plan plan(checkpoint, spec);
  ASAP_TRY(plan.make(weights));
  ASAP_TRY(check_output(options));
  std::error_code error;
  const bool existed = fs::exists(options.output, error);
  if (!existed && !fs::create_directories(options.output, error)) {
    return fail(Code::invalid, "--output {} cannot be created: {}", options.output,
                error.message());
  }
  QuantizeSummary summary = plan.summary();
  Status status = check_space(options.output, summary.bytes_after);
  Created created;
  if (status) status = write_all(options, plan, &summary.files, &created);
  if (!status) {
    for (const fs::path& path : created) {
      fs::remove(path, error);
      fs::remove(partial_name(path.string()), error);
    }
    if (!existed) fs::remove(options.output, error);
    return tl::unexpected<Error>(status.error());
  }
  return summary;
}

}  // namespace asap
