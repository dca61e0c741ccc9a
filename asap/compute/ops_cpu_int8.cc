// Int8 matrices: packing, the rows that they are multiplied with, and the choice of the GEMM.
//
// A row is quantised once for a product, before the product is cut into columns: by the item itself
// where an item takes whole rows, else in a parallel loop of its own.
#include <algorithm>

#include "asap/base/check.h"
#include "asap/compute/ops_cpu.h"
#include "asap/model/int8.h"

namespace asap {

namespace {

// Elements that are worth a helper's time.
constexpr int kQuantizeGrain = 16384;
// Rows that linear() quantises before it multiplies them.
constexpr int kInt8Rows = 2048;
// Added to the length of a quantised row, bytes: rows must not fall into the same cache sets.
constexpr int64_t kInt8Pad = 64;

int64_t panel_weight_bytes(const Int8Form& form, int k) {
  return round_up(k, form.group) * kPanel;
}

}  // namespace

OpsCpu::RowView OpsCpu::RowView::from(int row) const {
  RowView out{x == nullptr ? nullptr : x + row * ld, ld, int8};
  if (int8.q == nullptr) return out;
  out.int8.q = static_cast<const std::byte*>(int8.q) + row * int8.ld;
  out.int8.scale += row;
  out.int8.sum += row;
  return out;
}

Matrix OpsCpu::pack_int8(int n, int k, Arena& arena, const RowSource& row_of) {
  CHECK(k <= kMaxInt8Cols, "rows of {}, int8 sums take {}", k, kMaxInt8Cols);
  const Int8Form& form = kernels_.int8;
  const int panels = (n + kPanel - 1) / kPanel;
  const int64_t weight_bytes = panel_weight_bytes(form, k);
  const int64_t bytes = weight_bytes + kPanel * static_cast<int64_t>(sizeof(float));
  std::byte* data = arena.allocate(static_cast<uint64_t>(panels * bytes));
  const auto scales_of = [&](int panel) {
    return reinterpret_cast<float*>(data + panel * bytes + weight_bytes);
  };
  for (int panel = 0; panel < panels; ++panel) std::fill_n(scales_of(panel), kPanel, 0.0f);
  const int words = static_cast<int>(round_up(k, form.group)) / form.group;  // of a row
  const auto padding = static_cast<std::byte>(form.offset);
  const auto read = [&](const RowOf& from, int row, std::vector<float>& scratch, std::byte* out) {
    scales_of(row / kPanel)[row % kPanel] =
        read_int8_row(*from.view, from.row, scratch, reinterpret_cast<int8_t*>(out));
    for (int i = 0; form.offset != 0 && i < k; ++i) {
      out[i] = static_cast<std::byte>(static_cast<int>(out[i]) + form.offset);
    }
    return out;
  };
  pack_rows(n, {words, form.group, padding, bytes}, row_of, read, data);
  return {n, k, DType::i8, data, static_cast<uint64_t>(panels * bytes), nullptr};
}

int64_t OpsCpu::int8_ld(int k) const {
  return round_up(k, 16) * kernels_.int8.x_bytes + kInt8Pad;
}

OpsCpu::Int8Buffer OpsCpu::int8_buffer(int rows, int width) {
  Int8Buffer out;
  out.rows = rows;
  out.row_bytes = int8_ld(width);
  out.q = scratch_.allocate(static_cast<uint64_t>(rows * out.row_bytes));
  out.scale = floats(rows);
  out.sum = reinterpret_cast<int32_t*>(floats(rows));
  return out;
}

void OpsCpu::reserve_int8(const ModelSpec& spec) {
  const int ffn = std::max(
      {spec.hidden, spec.dense_intermediate, spec.moe_intermediate, spec.shared_intermediate});
  for (Thread& thread : threads_) thread.int8 = int8_buffer(kRowBlock, ffn);
  const int width = std::max({ffn, spec.heads * spec.v_head_width(), spec.q_lora});
  int8_ = int8_buffer(std::max(kInt8Rows, 2 * team_.threads() * kRowBlock), width);
}

Int8Rows OpsCpu::int8_rows(const Int8Buffer& buffer, int first, int k) const {
  const int64_t ld = int8_ld(k);
  return {buffer.q + first * ld, ld, buffer.scale + first, buffer.sum + first};
}

void OpsCpu::quantize_row(const float* x, int k, const Int8Buffer& to, int row) {
  CHECK(int8_ld(k) <= to.row_bytes && row < to.rows,
        "row {} of {} elements: reserve() was for {} rows of {} bytes", row, k, to.rows,
        to.row_bytes);
  kernels_.quantize_int8(x, k, to.q + row * int8_ld(k), to.scale + row, to.sum + row);
}

void OpsCpu::quantize_rows(const RowView& x, int rows, int k) {
  const int grain = std::max(1, kQuantizeGrain / k);
  team_.parallel_for((rows + grain - 1) / grain, [&](int item, int) {
    const int end = std::min(rows, (item + 1) * grain);
    for (int row = item * grain; row < end; ++row) quantize_row(x.x + row * x.ld, k, int8_, row);
  });
}

void OpsCpu::quantize_inputs(const FfnCall& call, const RowBlock& block, Part rows, Thread& scratch,
                             const Int8Buffer& to, int first) {
  const int hidden = call.experts[block.expert].hidden;
  for (int i = rows.begin; i < rows.end; ++i) {
    const int row = block.row + i;
    if (call.work == nullptr) {
      quantize_row(call.x + int64_t{row} * hidden, hidden, to, first + i);
      continue;
    }
    const ExpertWork& work = *call.work;
    widen(work.payload[work.row_token[row]], hidden, work.dtype, scratch.x);
    quantize_row(scratch.x, hidden, to, first + i);
  }
}

void OpsCpu::multiply(const GemmArgs& g, const Matrix& w, const RowView& x) {
  if (w.dtype == DType::i8) {
    kernels_.gemm_int8(g, x.int8);
  } else {
    multiply_stored(g);
  }
}

}  // namespace asap
