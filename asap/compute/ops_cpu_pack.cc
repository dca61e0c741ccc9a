// Packing: stored matrices to panels. Runs once per weight at load, rows converted exactly: what
// fits bf16 (bf16, MXFP4, FP8 with power-of-two scales) becomes that, all others f32. What is
// marked as int8 is packed in ops_cpu_int8.cc.
#include <algorithm>
#include <vector>

#include "asap/base/check.h"
#include "asap/compute/convert.h"
#include "asap/compute/fp8.h"
#include "asap/compute/ops_cpu.h"

namespace asap {

namespace {

constexpr int kHalf = kPanel / 2;

// rows [columns of the panel][k] to one panel.
void fill_panel(const float* rows, int k, bool bf16, std::byte* panel) {
  if (bf16) {
    auto* out = reinterpret_cast<uint16_t*>(panel);
    for (int i = 0; i < k; ++i) {
      for (int c = 0; c < kPanel; ++c) {
        out[(i / 2 * kPanel + c) * 2 + i % 2] = f32_to_bf16(rows[int64_t{c} * k + i]);
      }
    }
    return;
  }
  auto* out = reinterpret_cast<float*>(panel);
  for (int i = 0; i < k; ++i) {
    for (int c = 0; c < kPanel; ++c) out[i * kPanel + c] = rows[int64_t{c} * k + i];
  }
}

}  // namespace

// read_row(r, out) gives row r < n, k elements.
template <typename ReadRow>
Matrix OpsCpu::pack_panels(int n, int k, bool bf16, Arena& arena, const ReadRow& read_row) {
  Matrix w{n, k, bf16 ? DType::bf16 : DType::f32, nullptr, 0, nullptr};
  const int panels = (n + kPanel - 1) / kPanel;
  w.bytes = static_cast<uint64_t>(panels * panel_bytes(w));
  std::byte* data = arena.allocate(w.bytes);
  w.data = data;
  std::vector<std::vector<float>> buffers(static_cast<size_t>(team_.threads()));
  team_.parallel_for(panels, [&](int panel, int thread) {
    std::vector<float>& rows = buffers[static_cast<size_t>(thread)];
    rows.assign(static_cast<size_t>(kPanel) * static_cast<size_t>(k), 0.0f);
    const int end = std::min(n, (panel + 1) * kPanel);
    for (int r = panel * kPanel; r < end; ++r) {
      read_row(r, rows.data() + int64_t{r - panel * kPanel} * k);
    }
    fill_panel(rows.data(), k, bf16, data + panel * panel_bytes(w));
  });
  return w;
}

template <typename Read>
const float* OpsCpu::pack_bias(int panels, Arena& arena, const Read& read) {
  auto* bias = reinterpret_cast<float*>(
      arena.allocate(static_cast<uint64_t>(panels) * kPanel * sizeof(float)));
  std::fill_n(bias, panels * kPanel, 0.0f);
  read(bias);
  return bias;
}

Matrix OpsCpu::pack(const TensorView& w, const TensorView& bias, Arena& arena) {
  Matrix out = w.as_int8 ? pack_int8(w.rows, w.cols, arena,
                                     [&](int r) {
                                       return RowOf{&w, r};
                                     })
                         : pack_panels(w.rows, w.cols, w.fits_bf16(), arena,
                                       [&](int r, float* row) { w.read_row(r, row); });
  mark_fp8_rows(w, &out);
  if (bias) {
    CHECK(bias.cols == w.rows, "{}: a bias of {} for {} rows", bias.name, bias.cols, w.rows);
    out.bias = pack_bias((w.rows + kPanel - 1) / kPanel, arena,
                         [&](float* columns) { bias.read_row(0, columns); });
  }
  return out;
}

ExpertMatrix OpsCpu::pack_expert(const FfnViews& ffn, const GluSpec& glu, Arena& arena) {
  const TensorView& gate = ffn.gate;
  const TensorView& up = ffn.up;
  CHECK(gate.rows == up.rows && gate.cols == up.cols && ffn.down.cols == gate.rows,
        "gate {}x{}, up {}x{}, down {}x{}", gate.rows, gate.cols, up.rows, up.cols, ffn.down.rows,
        ffn.down.cols);
  const int padded = static_cast<int>(round_up(gate.rows, kHalf));
  // Packed row r: half panels of gate and up take turns; rows past the matrix stay zero.
  const auto row_of = [&](int r) -> RowOf {
    const int row = r / kPanel * kHalf + r % kHalf;
    return {row >= gate.rows ? nullptr : r % kPanel < kHalf ? &gate : &up, row};
  };
  const auto read_row = [&](int r, float* out) {
    const RowOf from = row_of(r);
    if (from.view != nullptr) from.view->read_row(from.row, out);
  };
  const bool bf16 = gate.fits_bf16() && up.fits_bf16();
  Matrix gate_up = gate.as_int8 && up.as_int8
                       ? pack_int8(2 * padded, gate.cols, arena, row_of)
                       : pack_panels(2 * padded, gate.cols, bf16, arena, read_row);
  gate_up.n = 2 * gate.rows;
  mark_fp8_rows(gate, &gate_up);
  if (ffn.gate_bias) {
    std::vector<float> halves(static_cast<size_t>(2 * padded), 0.0f);  // gate, then up
    ffn.gate_bias.read_row(0, halves.data());
    ffn.up_bias.read_row(0, halves.data() + padded);
    gate_up.bias = pack_bias(padded / kHalf, arena, [&](float* out) {
      for (int r = 0; r < 2 * padded; ++r) {
        out[r] = halves[static_cast<size_t>((r % kPanel < kHalf ? 0 : padded) + r / kPanel * kHalf +
                                            r % kHalf)];
      }
    });
  }
  return {gate.cols, gate.rows, gate_up, pack(ffn.down, ffn.down_bias, arena), glu};
}

MlaHead OpsCpu::pack_mla_head(const TensorView& kv_b, int nope, int v, Arena& arena) {
  MlaHead head;
  const TensorView k_up = kv_b.slice_rows(0, nope);
  head.k_up = pack(k_up, arena);
  head.v_up = pack(kv_b.slice_rows(nope, nope + v), arena);
  const int latent = kv_b.cols;
  std::vector<float> rows(static_cast<size_t>(nope) * static_cast<size_t>(latent));
  for (int r = 0; r < nope; ++r) k_up.read_row(r, rows.data() + int64_t{r} * latent);
  head.q_absorb = pack_panels(latent, nope, kv_b.fits_bf16(), arena, [&](int r, float* out) {
    for (int c = 0; c < nope; ++c) out[c] = rows[static_cast<size_t>(int64_t{c} * latent + r)];
  });
  return head;
}

}  // namespace asap
