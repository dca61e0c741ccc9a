// Packing: stored matrices to panels. Runs once per weight at load, rows converted exactly: what
// fits bf16 (bf16, MXFP4, FP8 with power-of-two scales) becomes that, all others f32. What is
// marked as int8 is packed in ops_cpu_int8.cc.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "asap/base/check.h"
#include "asap/compute/convert.h"
#include "asap/compute/fp8.h"
#include "asap/compute/ops_cpu.h"

namespace asap {

namespace {

constexpr int kHalf = kPanel / 2;

// Row r of `view` as bfloat16 bits, k of them and a zero if k is odd: where it is stored, or
// converted into `out`.
const std::byte* bf16_row(const TensorView& view, int r, std::vector<float>& scratch,
                          std::byte* out) {
  if (view.dtype == DType::bf16 && view.step == 1) {
    const std::byte* at = view.stored_row(r);
    if (view.cols % 2 == 0) return at;
    std::memcpy(out, at, static_cast<size_t>(view.cols) * 2);
    return out;
  }
  scratch.resize(static_cast<size_t>(view.cols));
  view.read_row(r, scratch.data());
  auto* bits = reinterpret_cast<uint16_t*>(out);
  for (int i = 0; i < view.cols; ++i) bits[i] = f32_to_bf16(scratch[static_cast<size_t>(i)]);
  return out;
}

using PanelRows = std::array<const std::byte*, kPanel>;

// A square of words, as many rows as a vector has words: each round zips the upper half of the rows
// with the lower, and after log2 of their number rows have become columns.
template <typename Word>
struct Square {
  static constexpr int kWords = 16 / static_cast<int>(sizeof(Word));
  typedef Word Vector __attribute__((vector_size(16)));
  typedef Vector Rows[kWords];

  static void transpose(Rows& rows) {
#pragma GCC unroll 4
    for (int round = 1; round < kWords; round *= 2) {
      Rows zipped;
#pragma GCC unroll 8
      for (int i = 0; i < kWords / 2; ++i) {
        zipped[2 * i] =
            zip<0>(rows[i], rows[i + kWords / 2], std::make_integer_sequence<int, kWords>{});
        zipped[2 * i + 1] = zip<kWords / 2>(rows[i], rows[i + kWords / 2],
                                            std::make_integer_sequence<int, kWords>{});
      }
      std::copy_n(zipped, kWords, rows);
    }
  }

 private:
  // Words from `first` on of a and b in turns.
  template <int first, int... i>
  static Vector zip(Vector a, Vector b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, first + i / 2 + i % 2 * kWords...);
  }
};

// Words [begin, end) of each row, in whole squares; returns where it ended.
template <typename Word>
int interleave_squares(const PanelRows& rows, int begin, int end, std::byte* panel) {
  using S = Square<Word>;
  constexpr int kAhead = 256;  // bytes; a page's own stream is too short for the core to notice
  int i = begin;
  for (; i + S::kWords <= end; i += S::kWords) {
    for (int c = 0; c < kPanel; c += S::kWords) {
      typename S::Rows square;
      for (int j = 0; j < S::kWords; ++j) {
        const std::byte* from = rows[static_cast<size_t>(c + j)] + i * int64_t{sizeof(Word)};
        std::memcpy(&square[j], from, 16);
        __builtin_prefetch(from + kAhead);
      }
      S::transpose(square);
      for (int j = 0; j < S::kWords; ++j) {
        std::memcpy(panel + (int64_t{i + j} * kPanel + c) * int64_t{sizeof(Word)}, &square[j], 16);
      }
    }
  }
  return i;
}

template <typename Word>
void interleave(const PanelRows& rows, int count, std::byte* panel) {
  for (int i = interleave_squares<Word>(rows, 0, count, panel); i < count; ++i) {
    for (int c = 0; c < kPanel; ++c) {
      std::memcpy(panel + (int64_t{i} * kPanel + c) * int64_t{sizeof(Word)},
                  rows[static_cast<size_t>(c)] + i * int64_t{sizeof(Word)}, sizeof(Word));
    }
  }
}

// Rows of which a panel is made, each `count` words of `word_bytes`, to a panel [count][kPanel].
void interleave_rows(const PanelRows& rows, int count, int word_bytes, std::byte* panel) {
  switch (word_bytes) {
    case 1: return interleave<uint8_t>(rows, count, panel);
    case 2: return interleave<uint16_t>(rows, count, panel);
    case 4: return interleave<uint32_t>(rows, count, panel);
    default: CHECK(false, "words of {} bytes", word_bytes);
  }
}

}  // namespace

void OpsCpu::pack_rows(int n, const PanelForm& form, const RowSource& row_of, const ReadRow& read,
                       std::byte* data) {
  const int64_t row_bytes = int64_t{form.words} * form.word_bytes;
  struct Room {
    std::vector<std::byte> rows;  // [kPanel, row_bytes], then a row of padding
    std::vector<float> scratch;
  };
  std::vector<Room> rooms(static_cast<size_t>(team_.threads()));
  team_.parallel_for((n + kPanel - 1) / kPanel, [&](int index, int thread) {
    Room& room = rooms[static_cast<size_t>(thread)];
    room.rows.resize(static_cast<size_t>((kPanel + 1) * row_bytes), form.padding);
    PanelRows rows;
    rows.fill(room.rows.data() + kPanel * row_bytes);
    for (int c = 0; c < kPanel && index * kPanel + c < n; ++c) {
      const int row = index * kPanel + c;
      const RowOf from = row_of(row);
      if (from.view == nullptr) continue;
      rows[static_cast<size_t>(c)] =
          read(from, row, room.scratch, room.rows.data() + c * row_bytes);
    }
    interleave_rows(rows, form.words, form.word_bytes, data + index * form.panel_bytes);
  });
}

Matrix OpsCpu::pack_panels(int n, int k, bool bf16, Arena& arena, const RowSource& row_of) {
  Matrix w{n, k, bf16 ? DType::bf16 : DType::f32, nullptr, 0, nullptr};
  const int panels = (n + kPanel - 1) / kPanel;
  w.bytes = static_cast<uint64_t>(panels * panel_bytes(w));
  std::byte* data = arena.allocate(w.bytes);
  w.data = data;
  const int words = bf16 ? (k + 1) / 2 : k;  // of a row
  const auto read = [bf16](const RowOf& from, int, std::vector<float>& scratch, std::byte* out) {
    if (bf16) return bf16_row(*from.view, from.row, scratch, out);
    from.view->read_row(from.row, reinterpret_cast<float*>(out));
    return static_cast<const std::byte*>(out);
  };
  pack_rows(n, {words, 4, std::byte{0}, panel_bytes(w)}, row_of, read, data);
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
  const auto row_of = [&](int r) { return RowOf{&w, r}; };
  Matrix out = w.as_int8 ? pack_int8(w.rows, w.cols, arena, row_of)
                         : pack_panels(w.rows, w.cols, w.fits_bf16(), arena, row_of);
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
  const bool bf16 = gate.fits_bf16() && up.fits_bf16();
  Matrix gate_up = gate.as_int8 && up.as_int8
                       ? pack_int8(2 * padded, gate.cols, arena, row_of)
                       : pack_panels(2 * padded, gate.cols, bf16, arena, row_of);
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
  // k_up transposed, whatever its type: through float32.
  std::vector<float> rows(static_cast<size_t>(nope) * static_cast<size_t>(kv_b.cols));
  for (int r = 0; r < nope; ++r) k_up.read_row(r, rows.data() + int64_t{r} * kv_b.cols);
  TensorView absorb;
  absorb.name = kv_b.name;
  absorb.rows = nope;
  absorb.cols = kv_b.cols;
  absorb.stride = kv_b.cols;
  absorb.data = reinterpret_cast<const std::byte*>(rows.data());
  absorb = absorb.transposed();
  head.q_absorb = pack_panels(absorb.rows, nope, kv_b.fits_bf16(), arena, [&](int r) {
    return RowOf{&absorb, r};
  });
  return head;
}

}  // namespace asap
