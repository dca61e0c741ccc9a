// The super kernel: all rows of all experts of one layer in one parallel loop. The layer is a
// number in the work descriptor that picks a row of the address table; there is no code, launch or
// allocation per layer or per expert.
//
// An item is one row block of one expert, taken largest first: gather and widen its rows, gate_up
// with the activation in registers, down times the router weight into the row's slot. A second loop
// adds each token's slots in ascending expert order. When there are too few blocks for the team,
// both GEMMs are split over columns instead; an output element is the same chain of operations
// either way. A dense FFN is one expert whose rows need no gathering.
#include <algorithm>
#include <cstring>

#include "asap/base/check.h"
#include "asap/compute/fp8.h"
#include "asap/compute/ops_cpu.h"

namespace asap {

namespace {

constexpr int kHalf = kPanel / 2;  // columns of act per gate_up panel
constexpr int kSumTokens = 16;     // tokens of one item of the sum

int act_panels(const ExpertMatrix& w) {
  return (w.intermediate + kHalf - 1) / kHalf;
}
int down_panels(const ExpertMatrix& w) {
  return (w.hidden + kPanel - 1) / kPanel;
}

}  // namespace

void OpsCpu::split_rows(int expert, int begin, int end) {
  const int rows = end - begin;
  const int parts = (rows + kRowBlock - 1) / kRowBlock;
  for (int i = 0; i < parts; ++i) {
    const Part part = part_of(rows, parts, i);
    blocks_.push_back({expert, begin + part.begin, part.size()});
  }
}

OpsCpu::RowView OpsCpu::input(const FfnCall& call, const RowBlock& block, Thread& scratch) {
  const int hidden = call.experts[block.expert].hidden;
  const Matrix& w = call.experts[block.expert].gate_up;
  if (call.work == nullptr && w.fp8_rows == Fp8Rows::none) {
    return {call.x + int64_t{block.row} * hidden, hidden};
  }
  for (int i = 0; i < block.rows; ++i) {
    float* to = scratch.x + i * x_ld_;
    if (call.work == nullptr) {
      std::copy_n(call.x + int64_t{block.row + i} * hidden, hidden, to);
    } else {
      const ExpertWork& work = *call.work;
      widen(work.payload[work.row_token[block.row + i]], hidden, work.dtype, to);
    }
  }
  round_rows(w, scratch.x, block.rows, x_ld_);
  return {scratch.x, x_ld_};
}

// act[:, panels] = glu(in·gate, in·up); act is [rows, ld].
void OpsCpu::gate_up(const ExpertMatrix& w, const RowView& in, int rows, Part panels, float* act,
                     int64_t ld, int thread) {
  GemmArgs g = panel_gemm(w.gate_up, panels, in.x, in.ld, rows);
  g.y = act + panels.begin * kHalf;
  g.ldy = ld;
  g.n = std::min(w.intermediate, panels.end * kHalf) - panels.begin * kHalf;
  g.mode = w.glu.clamped ? GemmMode::clamped_glu : GemmMode::silu;
  g.alpha = static_cast<float>(w.glu.alpha);
  g.limit = static_cast<float>(w.glu.limit);
  g.scratch = gemm_scratch(thread);
  multiply(g, w.gate_up, in);
}

// Columns of `panels` of the block's outputs.
void OpsCpu::down(const FfnCall& call, const RowBlock& block, const RowView& act, Part panels,
                  int thread) {
  const ExpertMatrix& w = call.experts[block.expert];
  GemmArgs g = panel_gemm(w.down, panels, act.x, act.ld, block.rows);
  g.y = call.y + int64_t{block.row} * w.hidden + panels.begin * kPanel;
  g.ldy = w.hidden;
  g.n = std::min(w.hidden, panels.end * kPanel) - panels.begin * kPanel;
  if (call.scale != nullptr) {
    g.scale = call.scale + block.row;
    g.mode = GemmMode::scale;
  }
  g.scratch = gemm_scratch(thread);
  multiply(g, w.down, act);
}

void OpsCpu::run_ffn(const FfnCall& call) {
  const int blocks = static_cast<int>(blocks_.size());
  if (blocks == 0) return;
  if (blocks >= 2 * team_.threads() || team_.threads() == 1) {
    run_blocks(call);
  } else {
    run_columns(call);
  }
}

// An item is a block.
void OpsCpu::run_blocks(const FfnCall& call) {
  std::sort(blocks_.begin(), blocks_.end(),
            [](const RowBlock& a, const RowBlock& b) { return a.rows > b.rows; });
  team_.parallel_for(static_cast<int>(blocks_.size()), [&](int i, int thread) {
    Thread& scratch = threads_[static_cast<size_t>(thread)];
    const RowBlock& block = blocks_[static_cast<size_t>(i)];
    const ExpertMatrix& w = call.experts[block.expert];
    const Part rows{0, block.rows};
    RowView in;
    if (w.gate_up.dtype == DType::i8) {
      quantize_inputs(call, block, rows, scratch, scratch.int8, 0);
      in.int8 = int8_rows(scratch.int8, 0, w.hidden);
    } else {
      in = input(call, block, scratch);
    }
    gate_up(w, in, block.rows, {0, act_panels(w)}, scratch.act, act_ld_, thread);
    RowView act{scratch.act, act_ld_};
    round_rows(w.down, scratch.act, block.rows, act_ld_);
    if (w.down.dtype == DType::i8) {
      for (int r = 0; r < block.rows; ++r) {
        quantize_row(scratch.act + r * act_ld_, w.intermediate, scratch.int8, r);
      }
      act.int8 = int8_rows(scratch.int8, 0, w.intermediate);
    }
    down(call, block, act, {0, down_panels(w)}, thread);
  });
}

// An item is some columns of a block; what is quantised is so before, in items of some rows.
void OpsCpu::run_columns(const FfnCall& call) {
  const int blocks = static_cast<int>(blocks_.size());
  const int parts = (4 * team_.threads() + blocks - 1) / blocks;
  const auto act_of = [&](int i) { return acts_ + int64_t{i} * kRowBlock * act_ld_; };
  // fn(number of the block, the block, its expert, number of the part, thread)
  const auto for_parts = [&](const auto& fn) {
    team_.parallel_for(blocks * parts, [&](int item, int thread) {
      const RowBlock& block = blocks_[static_cast<size_t>(item / parts)];
      fn(item / parts, block, call.experts[block.expert], item % parts, thread);
    });
  };
  const auto is_int8 = [](const Matrix& w) { return w.dtype == DType::i8; };
  const auto is_rounded = [&](const Matrix& w) {
    return is_int8(w) || w.fp8_rows != Fp8Rows::none;
  };
  const auto any = [&](const auto& test, Matrix ExpertMatrix::*which) {
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const RowBlock& block) {
      return test(call.experts[block.expert].*which);
    });
  };
  if (any(is_int8, &ExpertMatrix::gate_up)) {
    for_parts([&](int i, const RowBlock& block, const ExpertMatrix& w, int part, int thread) {
      if (!is_int8(w.gate_up)) return;
      quantize_inputs(call, block, part_of(block.rows, parts, part),
                      threads_[static_cast<size_t>(thread)], int8_, i * kRowBlock);
    });
  }
  for_parts([&](int i, const RowBlock& block, const ExpertMatrix& w, int part, int thread) {
    const Part panels = part_of(act_panels(w), parts, part);
    if (panels.size() == 0) return;
    const RowView in = is_int8(w.gate_up)
                           ? RowView{nullptr, 0, int8_rows(int8_, i * kRowBlock, w.hidden)}
                           : input(call, block, threads_[static_cast<size_t>(thread)]);
    gate_up(w, in, block.rows, panels, act_of(i), act_ld_, thread);
  });
  if (any(is_rounded, &ExpertMatrix::down)) {
    for_parts([&](int i, const RowBlock& block, const ExpertMatrix& w, int part, int) {
      const Part rows = part_of(block.rows, parts, part);
      round_rows(w.down, act_of(i) + rows.begin * act_ld_, rows.size(), act_ld_);
      if (!is_int8(w.down)) return;
      for (int r = rows.begin; r < rows.end; ++r) {
        quantize_row(act_of(i) + r * act_ld_, w.intermediate, int8_, i * kRowBlock + r);
      }
    });
  }
  for_parts([&](int i, const RowBlock& block, const ExpertMatrix& w, int part, int thread) {
    const Part panels = part_of(down_panels(w), parts, part);
    if (panels.size() == 0) return;
    RowView act{act_of(i), act_ld_};
    if (is_int8(w.down)) act.int8 = int8_rows(int8_, i * kRowBlock, w.intermediate);
    down(call, block, act, panels, thread);
  });
}

void OpsCpu::ffn(const ExpertMatrix& w, const float* x, int n, float* y) {
  CHECK(w.intermediate + 16 <= act_ld_, "FFN of width {}: reserve() was for {}", w.intermediate,
        act_ld_ - 16);
  blocks_.clear();
  split_rows(0, 0, n);
  run_ffn({&w, nullptr, x, nullptr, y});
}

void OpsCpu::experts(const ExpertTable& table, const ExpertWork& work) {
  const int rows = work.expert_offsets[static_cast<size_t>(table.experts)];
  CHECK(work.layer >= 0 && work.layer < table.layers, "layer {} of {}", work.layer, table.layers);
  CHECK(rows <= max_expert_rows_, "{} expert rows, reserved {}", rows, max_expert_rows_);
  const ExpertMatrix* layer =
      table.entries.data() + static_cast<size_t>(work.layer) * static_cast<size_t>(table.experts);
  const int hidden = layer->hidden;
  blocks_.clear();
  for (int e = 0; e < table.experts; ++e) {
    const size_t at = static_cast<size_t>(e);
    split_rows(e, work.expert_offsets[at], work.expert_offsets[at + 1]);
  }
  run_ffn({layer, &work, nullptr, work.row_weight, slots_});
  sum_slots(work, hidden);
}

void OpsCpu::sum_slots(const ExpertWork& work, int hidden) {
  const size_t row_bytes = static_cast<size_t>(hidden) * sizeof(float);
  team_.parallel_for((work.tokens + kSumTokens - 1) / kSumTokens, [&](int item, int) {
    const int end = std::min(work.tokens, (item + 1) * kSumTokens);
    for (int token = item * kSumTokens; token < end; ++token) {
      float* out = work.out + int64_t{token} * hidden;
      std::memset(out, 0, row_bytes);
      for (int i = work.token_offsets[token]; i < work.token_offsets[token + 1]; ++i) {
        kernels_.add(slots_ + int64_t{work.token_rows[i]} * hidden, hidden, out);
      }
    }
  });
}

}  // namespace asap
