#include "asap/model/weights.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "asap/model/families/family.h"

namespace asap {

namespace {

constexpr std::pair<const char*, DType> kScaleTypes[] = {
    {"F32", DType::f32}, {"BF16", DType::bf16}, {"F8_E8M0", DType::f8_e8m0}};

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Finds tensors by name, checks them, and remembers which were used and the first problem. After a
// problem every view is empty, so that binding ends quickly.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const ModelSpec& spec)
      : checkpoint_(checkpoint), spec_(spec) {}

  bool has(const std::string& name) const { return checkpoint_.has(name); }
  bool failed() const { return !error_.message.empty(); }
  const Error& error() const { return error_; }

  TensorView matrix(const std::string& name, int rows, int cols);  // [rows, cols]
  TensorView vector(const std::string& name, int width);           // [width]
  // Part `index` of a stack [count, rows, cols]; `name`_blocks and `name`_scales if that is how it
  // is stored (MXFP4).
  TensorView stacked(const std::string& name, int count, int index, int rows, int cols);
  TensorView stacked_vector(const std::string& name, int count, int index, int width);

  // Names of the tensors that were asked for, or the first problem; a tensor that nobody asked for
  // is one.
  Result<std::vector<std::string>> finish();

 private:
  // The whole tensor of that shape; only its data, type and scales are set.
  TensorView typed(const std::string& name, const std::vector<int64_t>& shape);
  TensorView mxfp4(const std::string& name, int count, int index, int rows, int cols);
  const StoredTensor* stored(const std::string& name, const std::vector<int64_t>& shape);
  void attach_scales(const StoredTensor& tensor, TensorView* view);
  TensorView problem(Code code, std::string message) {
    if (!failed()) error_ = {code, std::move(message)};
    return {};
  }

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  std::unordered_set<const StoredTensor*> used_;
  Error error_;
};

TensorView Binder::matrix(const std::string& name, int rows, int cols) {
  TensorView view = typed(name, {rows, cols});
  view.rows = rows;
  view.stride = view.cols = cols;
  return view;
}

TensorView Binder::vector(const std::string& name, int width) {
  TensorView view = typed(name, {width});
  view.rows = 1;
  view.stride = view.cols = width;
  return view;
}

TensorView Binder::stacked(const std::string& name, int count, int index, int rows, int cols) {
  if (has(name + "_blocks")) return mxfp4(name, count, index, rows, cols);
  TensorView view = typed(name, {count, rows, cols});
  view.rows = rows;
  view.stride = view.cols = cols;
  if (view) {
    const auto part = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
    view.data += static_cast<uint64_t>(index) * part * dtype_bytes(view.dtype);
  }
  if (view.scales != nullptr) {
    const int64_t blocks = (rows + kScaleBlock - 1) / kScaleBlock * view.scale_cols;
    view.scales += index * blocks * static_cast<int64_t>(dtype_bytes(view.scale_dtype));
  }
  return view;
}

TensorView Binder::stacked_vector(const std::string& name, int count, int index, int width) {
  return matrix(name, count, width).slice_rows(index, index + 1);
}

// Blocks of 32 values: [count, rows, cols / 32, 16] bytes, [count, rows, cols / 32] exponents.
TensorView Binder::mxfp4(const std::string& name, int count, int index, int rows, int cols) {
  if (cols % kMxBlock != 0) {
    return problem(Code::unsupported, fmt::format("tensor {} has rows of {} values; MXFP4 needs a "
                                                  "multiple of {}",
                                                  name, cols, kMxBlock));
  }
  const int64_t groups = cols / kMxBlock;
  const StoredTensor* blocks = stored(name + "_blocks", {count, rows, groups, kMxBlock / 2});
  const StoredTensor* scales = stored(name + "_scales", {count, rows, groups});
  if (blocks == nullptr || scales == nullptr) return {};
  if (blocks->dtype != "U8" || scales->dtype != "U8") {
    return problem(Code::unsupported, fmt::format("tensors {}_blocks and _scales are stored as {} "
                                                  "and {}; MXFP4 is supported as U8",
                                                  name, blocks->dtype, scales->dtype));
  }
  TensorView view;
  view.name = name;
  view.dtype = DType::mxfp4;
  view.rows = rows;
  view.stride = view.cols = cols;
  view.data = blocks->data + index * rows * groups * (kMxBlock / 2);
  view.scales = scales->data + index * rows * groups;
  view.scale_cols = static_cast<int>(groups);
  return view;
}

// Null, with a problem recorded, unless there is a tensor of that name and shape.
const StoredTensor* Binder::stored(const std::string& name, const std::vector<int64_t>& shape) {
  if (failed()) return nullptr;
  const StoredTensor* tensor = checkpoint_.find(name, shape);
  if (tensor == nullptr) {
    problem(Code::not_found,
            fmt::format("the checkpoint lacks the tensor {} {}", name, shape_text(shape)));
    return nullptr;
  }
  used_.insert(tensor);
  if (tensor->shape == shape) return tensor;
  problem(Code::invalid, fmt::format("tensor {} has shape {}, but config.json asks for {}", name,
                                     shape_text(tensor->shape), shape_text(shape)));
  return nullptr;
}

TensorView Binder::typed(const std::string& name, const std::vector<int64_t>& shape) {
  const StoredTensor* tensor = stored(name, shape);
  if (tensor == nullptr) return {};
  TensorView view;
  view.name = name;
  view.data = tensor->data;
  if (tensor->dtype == "F32") {
    view.dtype = DType::f32;
  } else if (tensor->dtype == "BF16") {
    view.dtype = DType::bf16;
  } else if (tensor->dtype == "F16") {
    view.dtype = DType::f16;
  } else if (tensor->dtype == "F8_E4M3" && shape.size() >= 2) {
    view.dtype = DType::f8_e4m3;
    attach_scales(*tensor, &view);
  } else if (tensor->dtype == "I8" && shape.size() == 2) {
    view.dtype = DType::i8;
    attach_scales(*tensor, &view);
  } else {
    return problem(
        Code::unsupported,
        fmt::format("tensor {} {} is stored as {}; supported are F32, BF16, F16, and "
                    "for matrices F8_E4M3 with 128x128 block scales and I8 with row scales",
                    name, shape_text(shape), tensor->dtype));
  }
  return view;
}

// FP8: X_scale_inv, one per block of 128x128. I8: X_scale, one per row.
void Binder::attach_scales(const StoredTensor& tensor, TensorView* view) {
  const bool int8 = view->dtype == DType::i8;
  const std::string name = view->name + (int8 ? "_scale" : "_scale_inv");
  std::vector<int64_t> shape = tensor.shape;
  for (size_t i = shape.size() - 2; i < shape.size(); ++i) {
    shape[i] = (shape[i] + kScaleBlock - 1) / kScaleBlock;
  }
  if (int8) shape = {tensor.shape[0], 1};
  const StoredTensor* scales = checkpoint_.find(name, shape);
  if (scales == nullptr) {
    problem(Code::not_found, fmt::format("the checkpoint lacks {}, the {} scales of the {} tensor "
                                         "{}",
                                         name, int8 ? "row" : "block", tensor.dtype, view->name));
    return;
  }
  used_.insert(scales);
  if (scales->shape != shape && !(int8 && scales->shape == std::vector<int64_t>{shape[0]})) {
    problem(Code::invalid,
            fmt::format("tensor {} has shape {}; {} of {} need {}", name, shape_text(scales->shape),
                        int8 ? "the rows" : "128x128 blocks", shape_text(tensor.shape),
                        shape_text(shape)));
    return;
  }
  const auto type = std::find_if(std::begin(kScaleTypes), std::end(kScaleTypes),
                                 [&](const auto& t) { return scales->dtype == t.first; });
  if (type == std::end(kScaleTypes)) {
    problem(Code::unsupported, fmt::format("tensor {} is stored as {}; scales are supported as "
                                           "F32, BF16 and F8_E8M0",
                                           name, scales->dtype));
    return;
  }
  view->scales = scales->data;
  view->scale_dtype = type->second;
  view->scale_cols = static_cast<int>(shape.back());
}

Result<std::vector<std::string>> Binder::finish() {
  std::vector<std::string> used;
  std::vector<std::string> unknown;
  size_t count = 0;
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (used_.contains(&tensor)) used.push_back(name);
    if (failed() || used_.contains(&tensor) || has_no_use(name, spec_)) continue;
    if (++count <= 3) unknown.push_back(name);
  }
  if (count > 0) {
    problem(Code::unsupported,
            fmt::format("{} tensors of the checkpoint have no use in a {} as config.json describes "
                        "it: {}{}",
                        count, spec_.model_type, fmt::join(unknown, ", "),
                        count > unknown.size() ? ", ..." : ""));
  }
  if (failed()) return tl::unexpected<Error>(error_);
  return used;
}

// Binds one layer after another with the names of one family.
class LayerBinder {
 public:
  LayerBinder(Binder& bind, const ModelSpec& spec, const TensorNames& names)
      : bind_(bind), spec_(spec), names_(names) {}

  LayerViews layer(int index);

 private:
  FfnViews ffn(const std::string& prefix, int intermediate);
  void gqa(const std::string& prefix, LayerViews* out);
  void mla(const std::string& prefix, int index, LayerViews* out);
  void indexer(const std::string& prefix, LayerViews* out);
  void moe(const std::string& prefix, LayerViews* out);
  FfnViews fused_expert(const std::string& prefix, int index, bool transposed);

  Binder& bind_;
  const ModelSpec& spec_;
  const TensorNames& names_;
};

FfnViews LayerBinder::ffn(const std::string& prefix, int intermediate) {
  FfnViews out;
  out.gate = bind_.matrix(prefix + names_.gate, intermediate, spec_.hidden);
  out.up = bind_.matrix(prefix + names_.up, intermediate, spec_.hidden);
  out.down = bind_.matrix(prefix + names_.down, spec_.hidden, intermediate);
  return out;
}

void LayerBinder::gqa(const std::string& prefix, LayerViews* out) {
  const int d = spec_.head_dim;
  out->q = bind_.matrix(prefix + "q_proj.weight", spec_.heads * d, spec_.hidden);
  out->k = bind_.matrix(prefix + "k_proj.weight", spec_.kv_heads * d, spec_.hidden);
  out->v = bind_.matrix(prefix + "v_proj.weight", spec_.kv_heads * d, spec_.hidden);
  if (spec_.qkv_bias) {
    out->q_bias = bind_.vector(prefix + "q_proj.bias", spec_.heads * d);
    out->k_bias = bind_.vector(prefix + "k_proj.bias", spec_.kv_heads * d);
    out->v_bias = bind_.vector(prefix + "v_proj.bias", spec_.kv_heads * d);
  }
  if (spec_.qk_norm != QkNorm::none) {
    const bool full = spec_.qk_norm == QkNorm::full;
    out->q_norm = bind_.vector(prefix + "q_norm.weight", full ? spec_.heads * d : d);
    out->k_norm = bind_.vector(prefix + "k_norm.weight", full ? spec_.kv_heads * d : d);
  }
  if (spec_.sinks) out->sinks = bind_.vector(prefix + "sinks", spec_.heads);
}

void LayerBinder::mla(const std::string& prefix, int index, LayerViews* out) {
  const int hidden = spec_.hidden;
  const int q_rows = spec_.heads * spec_.qk_head();
  const int kv_rows = spec_.heads * (spec_.qk_nope + spec_.v_head);
  if (spec_.q_lora > 0) {
    out->q_a = bind_.matrix(prefix + "q_a_proj.weight", spec_.q_lora, hidden);
    out->q_a_norm = bind_.vector(prefix + "q_a_layernorm.weight", spec_.q_lora);
    out->q_b = bind_.matrix(prefix + "q_b_proj.weight", q_rows, spec_.q_lora);
  } else {
    out->q = bind_.matrix(prefix + "q_proj.weight", q_rows, hidden);
  }
  out->kv_a =
      bind_.matrix(prefix + "kv_a_proj_with_mqa.weight", spec_.kv_lora + spec_.qk_rope, hidden);
  out->kv_a_norm = bind_.vector(prefix + "kv_a_layernorm.weight", spec_.kv_lora);
  out->kv_b = bind_.matrix(prefix + "kv_b_proj.weight", kv_rows, spec_.kv_lora);
  if (spec_.qkv_bias) {
    if (spec_.q_lora > 0) out->q_a_bias = bind_.vector(prefix + "q_a_proj.bias", spec_.q_lora);
    out->kv_a_bias =
        bind_.vector(prefix + "kv_a_proj_with_mqa.bias", spec_.kv_lora + spec_.qk_rope);
  }
  if (spec_.indexes(index)) indexer(prefix + "indexer.", out);
}

void LayerBinder::indexer(const std::string& prefix, LayerViews* out) {
  const int dim = spec_.index_dim;
  out->index_q_b = bind_.matrix(prefix + "wq_b.weight", spec_.index_heads * dim, spec_.q_lora);
  out->index_k = bind_.matrix(prefix + "wk.weight", dim, spec_.hidden);
  out->index_k_norm = bind_.vector(prefix + "k_norm.weight", dim);
  out->index_k_norm_bias = bind_.vector(prefix + "k_norm.bias", dim);
  out->index_weights =
      bind_.matrix(prefix + "weights_proj.weight", spec_.index_heads, spec_.hidden);
}

// gate_up_proj [N, 2I, H] holds the gate rows, then the up rows; down_proj is [N, H, I]. In the
// interleaved layout gate and up rows take turns, and unquantised tensors are transposed:
// gate_up_proj [N, H, 2I], down_proj [N, I, H].
FfnViews LayerBinder::fused_expert(const std::string& prefix, int index, bool transposed) {
  const int width = spec_.moe_intermediate;
  const int hidden = spec_.hidden;
  const int count = spec_.experts;
  const auto part = [&](const char* name, int rows, int cols) {
    return transposed ? bind_.stacked(prefix + name, count, index, cols, rows).transposed()
                      : bind_.stacked(prefix + name, count, index, rows, cols);
  };
  const TensorView gate_up = part("gate_up_proj", 2 * width, hidden);
  FfnViews out;
  if (!gate_up) return out;
  out.down = part("down_proj", hidden, width);
  out.gate = names_.interleaved ? gate_up.every_other_row(0) : gate_up.slice_rows(0, width);
  out.up = names_.interleaved ? gate_up.every_other_row(1) : gate_up.slice_rows(width, 2 * width);
  if (!spec_.expert_bias || bind_.failed()) return out;
  // A bias is a column here, so that it divides as the rows do.
  const TensorView bias =
      bind_.stacked_vector(prefix + "gate_up_proj_bias", count, index, 2 * width).transposed();
  out.gate_bias = (names_.interleaved ? bias.every_other_row(0) : bias.slice_rows(0, width));
  out.up_bias = names_.interleaved ? bias.every_other_row(1) : bias.slice_rows(width, 2 * width);
  out.gate_bias = out.gate_bias.transposed();
  out.up_bias = out.up_bias.transposed();
  out.down_bias = bind_.stacked_vector(prefix + "down_proj_bias", count, index, hidden);
  return out;
}

void LayerBinder::moe(const std::string& prefix, LayerViews* out) {
  out->router = bind_.matrix(prefix + names_.router, spec_.experts, spec_.hidden);
  if (spec_.router.has_bias) {
    out->router_bias = bind_.vector(prefix + names_.router_bias, spec_.experts);
  }
  if (spec_.router.logit_bias) {
    out->router_logit_bias = bind_.vector(prefix + names_.router_logit_bias, spec_.experts);
  }
  if (spec_.shared_intermediate > 0) {
    out->shared = ffn(prefix + names_.shared, spec_.shared_intermediate);
  }
  if (spec_.shared_gate) {
    out->shared_gate = bind_.matrix(prefix + names_.shared_gate, 1, spec_.hidden);
  }
  const std::string experts = prefix + "experts.";
  // Biases of experts exist in the fused layout only.
  const bool fused = spec_.expert_bias || bind_.has(experts + "gate_up_proj") ||
                     bind_.has(experts + "gate_up_proj_blocks");
  const bool transposed = names_.interleaved && bind_.has(experts + "gate_up_proj");
  for (int e = 0; e < spec_.experts && !bind_.failed(); ++e) {
    out->experts.push_back(fused ? fused_expert(experts, e, transposed)
                                 : ffn(fmt::format("{}{}.", experts, e), spec_.moe_intermediate));
  }
}

LayerViews LayerBinder::layer(int index) {
  LayerViews out;
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::string attention = prefix + names_.attention;
  out.input_norm = bind_.vector(prefix + "input_layernorm.weight", spec_.hidden);
  out.post_norm = bind_.vector(prefix + "post_attention_layernorm.weight", spec_.hidden);
  if (spec_.attention == AttentionKind::mla) {
    mla(attention, index, &out);
  } else {
    gqa(attention, &out);
  }
  out.o =
      bind_.matrix(attention + "o_proj.weight", spec_.hidden, spec_.heads * spec_.v_head_width());
  if (spec_.o_bias) out.o_bias = bind_.vector(attention + "o_proj.bias", spec_.hidden);
  if (spec_.moe_layer[static_cast<size_t>(index)] != 0) {
    moe(prefix + names_.moe, &out);
  } else {
    out.dense = ffn(prefix + names_.dense, spec_.dense_intermediate);
  }
  return out;
}

}  // namespace

bool has_no_use(const std::string& name, const ModelSpec& spec) {
  if (name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".k_scale") ||
      name.ends_with(".v_scale")) {
    return true;
  }
  if (spec.tied_embeddings && name == "lm_head.weight") return true;
  const std::string prefix = "model.layers.";
  if (!name.starts_with(prefix)) return false;
  const size_t dot = name.find('.', prefix.size());
  if (dot == std::string::npos) return false;
  const std::string layer = name.substr(prefix.size(), dot - prefix.size());
  if (layer.empty() || layer.size() > 6) return false;
  if (layer.find_first_not_of("0123456789") != std::string::npos) return false;
  return std::stoi(layer) >= spec.layers;
}

Result<TensorView> bind_matrix(const Checkpoint& checkpoint, const ModelSpec& spec,
                               const std::string& name) {
  const StoredTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr || tensor->shape.size() != 2) {
    return fail(Code::invalid, "tensor {} is no matrix", name);
  }
  Binder bind(checkpoint, spec);
  const TensorView view =
      bind.matrix(name, static_cast<int>(tensor->shape[0]), static_cast<int>(tensor->shape[1]));
  if (bind.failed()) return tl::unexpected<Error>(bind.error());
  return view;
}

std::vector<TensorView*> quantizable_matrices(ModelWeights& weights) {
  std::vector<TensorView*> out;
  const auto add = [&](TensorView* view) {
    if (*view && view->cols <= kMaxInt8Cols) out.push_back(view);
  };
  const auto add_ffn = [&](FfnViews* ffn) {
    for (TensorView* view : {&ffn->gate, &ffn->up, &ffn->down}) add(view);
  };
  for (LayerViews& layer : weights.layers) {
    for (TensorView* view :
         {&layer.q, &layer.k, &layer.v, &layer.q_a, &layer.q_b, &layer.kv_a, &layer.o}) {
      add(view);
    }
    add_ffn(&layer.dense);
    add_ffn(&layer.shared);
    for (FfnViews& expert : layer.experts) add_ffn(&expert);
  }
  return out;
}

namespace {

// kv_b is left out: expanded or absorbed, it must give the same.
Status mark_fp8(const ModelSpec& spec, ModelWeights* weights) {
  std::vector<TensorView*> views = quantizable_matrices(*weights);
  for (LayerViews& layer : weights->layers) {
    for (TensorView* view : {&layer.index_q_b, &layer.index_k}) views.push_back(view);
  }
  bool any = false;
  for (TensorView* view : views) {
    if (view->dtype != DType::f8_e4m3 || !*view) continue;
    view->fp8_rows = spec.fp8_ue8m0 ? Fp8Rows::ue8m0 : Fp8Rows::plain;
    any = true;
  }
  if (any) return {};
  return fail(Code::invalid,
              "--quantization fp8: the checkpoint has no FP8 weights; use none or int8");
}

}  // namespace

Result<ModelWeights> bind_weights(const Checkpoint& checkpoint, const ModelSpec& spec,
                                  Quantization quantization) {
  const Family* family = find_family(spec.model_type);
  if (family == nullptr) {
    return fail(Code::unsupported, "model_type {} is not supported", spec.model_type);
  }
  Binder bind(checkpoint, spec);
  LayerBinder layers(bind, spec, family->names);
  ModelWeights out;
  out.embed = bind.matrix("model.embed_tokens.weight", spec.vocab, spec.hidden);
  out.final_norm = bind.vector("model.norm.weight", spec.hidden);
  out.lm_head =
      spec.tied_embeddings ? out.embed : bind.matrix("lm_head.weight", spec.vocab, spec.hidden);
  for (int layer = 0; layer < spec.layers && !bind.failed(); ++layer) {
    out.layers.push_back(layers.layer(layer));
  }
  ASAP_ASSIGN(out.stored, bind.finish());
  for (TensorView* view : quantizable_matrices(out)) {
    view->as_int8 = quantization == Quantization::int8 || view->dtype == DType::i8;
  }
  if (quantization == Quantization::fp8) ASAP_TRY(mark_fp8(spec, &out));
  return out;
}

}  // namespace asap
