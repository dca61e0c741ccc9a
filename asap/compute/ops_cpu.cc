#include "asap/compute/ops_cpu.h"

#include <algorithm>
#include <cstring>

#include "asap/base/check.h"
#include "asap/compute/isa.h"
#include "asap/compute/router.h"

namespace asap {

namespace {

// Key blocks of a chunk of units: enough to keep a team busy, far less than a long context of many
// heads.
constexpr int64_t kKeyFloats = int64_t{16} << 20;
// Added to row lengths that are powers of two: rows must not fall into the same cache sets.
constexpr int64_t kRowPad = 16;

}  // namespace

std::unique_ptr<Ops> make_ops_cpu(Team& team, std::string_view isa) {
  const KernelTable* kernels = find_kernels(isa);
  if (kernels == nullptr) return nullptr;
  return std::make_unique<OpsCpu>(team, *kernels);
}

OpsCpu::OpsCpu(Team& team, const KernelTable& kernels) : team_(team), kernels_(kernels) {
  for (int i = 0; i < team.threads(); ++i) {
    const auto bytes = static_cast<uint64_t>(gemm_scratch_floats(kGemmRows)) * sizeof(float);
    gemm_scratch_.push_back(reinterpret_cast<float*>(gemm_memory_.allocate(bytes)));
  }
}

float* OpsCpu::floats(int64_t count) {
  return reinterpret_cast<float*>(scratch_.allocate(static_cast<uint64_t>(count) * sizeof(float)));
}

// Sizes are upper bounds; the pages of what is never used are never taken from the system.
void OpsCpu::reserve(const ModelSpec& spec, const OpLimits& limits) {
  scratch_ = Arena();
  threads_.assign(static_cast<size_t>(team_.threads()), {});
  reserve_experts(spec, limits);
  reserve_int8(spec);
  fp8_width_ = std::max({spec.hidden, spec.heads * spec.v_head_width(), spec.q_lora});
  fp8_x_ = floats(int64_t{kFp8RowsAtOnce} * fp8_width_);
  reserve_attention(spec, limits);
}

void OpsCpu::reserve_experts(const ModelSpec& spec, const OpLimits& limits) {
  const int width =
      std::max({spec.dense_intermediate, spec.moe_intermediate, spec.shared_intermediate});
  x_ld_ = round_up(spec.hidden, 16) + kRowPad;
  act_ld_ = round_up(width, 16) + kRowPad;
  for (Thread& thread : threads_) {
    thread.x = floats(kRowBlock * x_ld_);
    thread.act = floats(kRowBlock * act_ld_);
  }
  max_expert_rows_ = limits.max_expert_rows;
  slots_ = floats(int64_t{limits.max_expert_rows} * spec.hidden);
  acts_ = floats(2 * int64_t{team_.threads()} * kRowBlock * act_ld_);
  const int rows = std::max(limits.max_expert_rows, limits.max_rows);
  blocks_.reserve(static_cast<size_t>(spec.experts + rows / kRowBlock + 1));
}

void OpsCpu::reserve_attention(const ModelSpec& spec, const OpLimits& limits) {
  const bool mla = spec.attention == AttentionKind::mla;
  const int group = mla || spec.kv_heads == 0 ? 1 : spec.heads / spec.kv_heads;
  const int64_t d = spec.qk_head();
  const int64_t dv = round_up(spec.v_head_width(), kPanel);
  const int64_t latent = mla ? round_up(spec.kv_lora + spec.qk_rope, kPanel) : 0;
  row_width_ = std::max({round_up(d, kPanel), dv, latent, round_up(spec.index_dim, kPanel)});
  const int64_t rows = std::max(kQueryRows, group);
  const int64_t context = round_up(limits.max_context, kKeyBlock);
  const bool dsa = spec.index_topk > 0;
  for (Thread& thread : threads_) {
    thread.rows = floats(kKeyBlock * row_width_);
    thread.key_rows = floats(std::max(int64_t{kKeyBlock}, rows) * row_width_);
    thread.panels = floats(kKeyBlock * row_width_);
    thread.products = floats(int64_t{spec.index_heads} * kKeyBlock);
    thread.scores = floats(dsa ? context : 0);
    thread.order = reinterpret_cast<uint32_t*>(floats(dsa ? context : 0));
    thread.tile.q = floats(rows * row_width_);
    thread.tile.s = floats(rows * kKeyBlock);
    thread.tile.o = floats(rows * row_width_);
    for (float** array : {&thread.tile.max, &thread.tile.sum, &thread.tile.alpha}) {
      *array = floats(rows);
    }
    thread.tile.limit = reinterpret_cast<int32_t*>(floats(rows));
    thread.tile.visible = reinterpret_cast<int32_t*>(floats(rows));
    thread.tile.hidden = reinterpret_cast<int32_t*>(floats(rows));
  }
  key_capacity_ = std::max(kKeyFloats, context * 2 * row_width_);
  keys_ = floats(key_capacity_);
  units_.reserve(kMaxUnits);
  const int positions = std::max(1, kQueryRows / group);
  queries_.reserve(kMaxUnits + static_cast<size_t>(limits.max_rows) *
                                   static_cast<size_t>(spec.heads) /
                                   static_cast<size_t>(positions));
  if (!mla) return;
  const int64_t per_row = spec.heads * row_width_;
  absorbed_limit_ = static_cast<int>(std::clamp<int64_t>(kKeyFloats / per_row, 1, kQueryRows));
  absorbed_ = floats(absorbed_limit_ * per_row);
  contexts_ = floats(absorbed_limit_ * per_row);
  absorbed_rows_.reserve(static_cast<size_t>(absorbed_limit_));
}

void OpsCpu::rms_norm(const float* x, int n, int width, int ldx, const float* w, double eps,
                      float* y, int ldy) {
  for_rows(n, width, [&](int row) {
    kernels_.rms_norm(x + int64_t{row} * ldx, width, w, static_cast<float>(eps),
                      y + int64_t{row} * ldy);
  });
}

void OpsCpu::layer_norm(const float* x, int n, int width, int ldx, const float* w, const float* b,
                        float* y, int ldy) {
  for_rows(n, width, [&](int row) {
    kernels_.layer_norm(x + int64_t{row} * ldx, width, w, b, 1e-6f, y + int64_t{row} * ldy);
  });
}

void OpsCpu::rope(float* x, int n, int ld, int heads, int head_stride, int dim, bool interleaved,
                  const float* angles) {
  for_rows(n, int64_t{heads} * dim, [&](int row) {
    for (int head = 0; head < heads; ++head) {
      kernels_.rope(x + int64_t{row} * ld + int64_t{head} * head_stride, dim, interleaved,
                    angles + int64_t{row} * dim);
    }
  });
}

void OpsCpu::kv_store(const KvCache& cache, const int32_t* slots, const float* x, int n, int ldx) {
  const auto row_bytes = static_cast<int64_t>(dtype_bytes(cache.dtype)) * cache.width;
  for_rows(n, cache.width, [&](int row) {
    narrow(x + int64_t{row} * ldx, cache.width, cache.dtype, cache.data + slots[row] * row_bytes);
  });
}

void OpsCpu::route(const RouterSpec& router, int experts, int top_k, const float* logits,
                   const float* bias, int n, int32_t* ids, float* weights) {
  // A score costs an exponential, ten times what for_rows() counts an element as.
  for_rows(n, int64_t{experts} * 10, [&](int row) {
    route_tokens(router, experts, top_k, logits + int64_t{row} * experts, bias, 1,
                 ids + int64_t{row} * top_k, weights + int64_t{row} * top_k);
  });
}

void OpsCpu::narrow(const float* x, int64_t count, DType to, std::byte* y) {
  if (to == DType::f32) {
    std::memcpy(y, x, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  CHECK(to == DType::bf16, "cannot narrow to {}", dtype_name(to));
  kernels_.narrow(x, count, reinterpret_cast<uint16_t*>(y));
}

void OpsCpu::widen(const std::byte* x, int64_t count, DType from, float* y) {
  if (from == DType::f32) {
    std::memcpy(y, x, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  CHECK(from == DType::bf16, "cannot widen {}", dtype_name(from));
  kernels_.widen(reinterpret_cast<const uint16_t*>(x), count, y);
}

void OpsCpu::add(const std::byte* x, int64_t count, DType from, float* y) {
  if (from == DType::f32) {
    kernels_.add(reinterpret_cast<const float*>(x), count, y);
    return;
  }
  CHECK(from == DType::bf16, "cannot add {}", dtype_name(from));
  kernels_.add_bf16(reinterpret_cast<const uint16_t*>(x), count, y);
}

}  // namespace asap
