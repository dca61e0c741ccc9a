// Attention over expanded keys: GQA, and MLA for prompt positions. Both become "units": one kv head
// of one sequence, whose keys and values are first packed as float32 blocks (GQA widens cache rows,
// MLA multiplies latents by k_up and v_up), then attended to by tiles of query rows, longest first.
// Units are taken in chunks that fit the scratch memory, so a long context of many heads needs no
// more of it.
#include <algorithm>
#include <numbers>

#include "asap/base/check.h"
#include "asap/compute/ops_cpu.h"

namespace asap {

int64_t OpsCpu::UnitCall::block_floats() const {
  return kKeyBlock * (round_up(d, 4) + round_up(dv, kPanel));
}

// `width` elements from `column` on of the cache rows of positions [first, first + count).
void OpsCpu::widen_rows(const KvCache& cache, const int32_t* blocks, int first, int count,
                        int column, int width, float* out, int64_t ld) {
  const auto element = static_cast<int64_t>(dtype_bytes(cache.dtype));
  for (int i = 0; i < count; ++i) {
    const int position = first + i;
    const int64_t slot = int64_t{blocks[position / kKvBlock]} * kKvBlock + position % kKvBlock;
    widen(cache.data + (slot * cache.width + column) * element, width, cache.dtype, out + i * ld);
  }
}

// The first `keys` rows of a key block, ld apart, to K panels; whole panels are read.
void OpsCpu::transpose_keys(const float* rows, int64_t ld, int keys, int64_t width,
                            float* panels) const {
  for (int key = 0; key < keys; key += kPanel) {
    kernels_.transpose(rows + key * ld, ld, static_cast<int>(width), panels + key * width);
  }
}

// Keys past the unit's last one are zeros up to the end of a panel: no row sees them, and 0·0 is 0.
// Panels without keys are not filled, and not read.
void OpsCpu::pack_gqa_block(const UnitCall& call, const KeyUnit& unit, int block, Thread& scratch) {
  const GqaArgs& a = *call.gqa;
  const int64_t d4 = round_up(call.d, 4);
  const int64_t dv = round_up(call.dv, kPanel);
  const int first = block * kKeyBlock;
  const int count = std::min(kKeyBlock, unit.keys - first);
  float* k = unit.data + block * call.block_floats();
  float* v = k + kKeyBlock * d4;
  const int held = static_cast<int>(round_up(count, kPanel));
  if (count < held || d4 != call.d) std::fill_n(scratch.rows, held * d4, 0.0f);
  widen_rows(a.kv, unit.sequence->blocks, first, count, unit.head * a.d, a.d, scratch.rows, d4);
  transpose_keys(scratch.rows, d4, held, d4, k);
  float* values = scratch.rows;
  if (count < held || dv != call.dv) std::fill_n(values, held * dv, 0.0f);
  widen_rows(a.kv, unit.sequence->blocks, first, count, (a.kv_heads + unit.head) * a.d, a.d, values,
             dv);
  kernels_.pack_columns(values, dv, held, static_cast<int>(dv), v, kKeyBlock);
}

void OpsCpu::pack_mla_block(const UnitCall& call, const KeyUnit& unit, int block, int thread) {
  Thread& scratch = threads_[static_cast<size_t>(thread)];
  const MlaArgs& a = *call.mla;
  const MlaHead& head = a.heads[static_cast<size_t>(unit.head)];
  const int64_t d4 = round_up(call.d, 4);
  const int64_t dv = round_up(call.dv, kPanel);
  const int first = block * kKeyBlock;
  const int count = std::min(kKeyBlock, unit.keys - first);
  float* k = unit.data + block * call.block_floats();
  float* v = k + kKeyBlock * d4;
  const int held = static_cast<int>(round_up(count, kPanel));
  if (count < held) std::fill_n(scratch.rows, held * row_width_, 0.0f);
  widen_rows(a.kv, unit.sequence->blocks, first, count, 0, a.latent + a.rope, scratch.rows,
             row_width_);

  const auto expand = [&](const Matrix& w, float* y, int64_t ldy) {
    GemmArgs g = panel_gemm(w, {0, 0}, scratch.rows, row_width_, held);
    g.y = y;
    g.ldy = ldy;
    g.n = w.n;
    g.scratch = gemm_scratch(thread);
    multiply_stored(g);
  };
  if (d4 != call.d) std::fill_n(scratch.key_rows, held * d4, 0.0f);
  expand(head.k_up, scratch.key_rows, d4);
  for (int i = 0; i < held; ++i) {
    std::copy_n(scratch.rows + i * row_width_ + a.latent, a.rope,
                scratch.key_rows + i * d4 + a.nope);
  }
  transpose_keys(scratch.key_rows, d4, held, d4, k);
  if (dv != call.dv) std::fill_n(scratch.key_rows, held * dv, 0.0f);
  expand(head.v_up, scratch.key_rows, dv);
  kernels_.pack_columns(scratch.key_rows, dv, held, static_cast<int>(dv), v, kKeyBlock);
}

// Rows of the tile: positions ascending, the group's heads within a position.
void OpsCpu::attend_item(const UnitCall& call, const QueryItem& item, Thread& scratch) {
  const KeyUnit& unit = units_[static_cast<size_t>(item.unit)];
  const Sequence& sequence = *unit.sequence;
  AttendTile& tile = scratch.tile;
  const int64_t d4 = round_up(call.d, 4);
  const int head = unit.head * call.group;
  const float scale = call.scale * std::numbers::log2e_v<float>;
  tile.begin((item.end - item.begin) * call.group, call.dv, call.window);
  for (int i = item.begin, r = 0; i < item.end; ++i, r += call.group) {
    const float* q = call.q + (int64_t{sequence.row + i} * call.heads + head) * call.d;
    kernels_.scale(q, scale, int64_t{call.group} * call.d, tile.q + int64_t{r} * call.d);
    std::fill_n(tile.limit + r, call.group, sequence.past + i + 1);
    for (int h = 0; call.sinks != nullptr && h < call.group; ++h) {
      tile.sink(r + h, call.sinks[head + h] * std::numbers::log2e_v<float>);
    }
  }
  const int last = sequence.past + item.end - 1;
  const int oldest =
      call.window > 0 ? std::max(0, sequence.past + item.begin + 1 - call.window) : 0;
  for (int block = oldest / kKeyBlock; block <= last / kKeyBlock; ++block) {
    const float* k = unit.data + block * call.block_floats();
    tile.block(kernels_, block * kKeyBlock, tile.q, call.d, {k, call.d, k + kKeyBlock * d4, 0});
  }
  for (int i = item.begin, r = 0; i < item.end; ++i, r += call.group) {
    float* out = call.out + (int64_t{sequence.row + i} * call.heads + head) * call.dv;
    tile.finish(kernels_, r, call.group, call.dv, out, call.dv);
  }
}

// Adds a unit of the sequence's first `queries` rows to the chunk; runs the chunk first if it is
// full.
void OpsCpu::add_unit(const UnitCall& call, const Sequence& sequence, int head, int queries) {
  const int keys = sequence.past + queries;
  const int blocks = (keys + kKeyBlock - 1) / kKeyBlock;
  const int64_t size = blocks * call.block_floats();
  CHECK(size <= key_capacity_, "context of {}: reserve() was for less", keys);
  if (keys_used_ + size > key_capacity_ || units_.size() == kMaxUnits) run_units(call);
  const int first_block = static_cast<int>(keys_used_ / call.block_floats());
  units_.push_back({&sequence, head, keys, queries, first_block, keys_ + keys_used_});
  keys_used_ += size;

  const int positions = std::max(1, kQueryRows / call.group);
  const int tiles = (queries + positions - 1) / positions;
  for (int i = 0; i < tiles; ++i) {
    const Part part = part_of(queries, tiles, i);
    queries_.push_back({static_cast<int>(units_.size()) - 1, part.begin, part.end,
                        int64_t{part.size()} * (sequence.past + part.end)});
  }
}

void OpsCpu::run_units(const UnitCall& call) {
  const int blocks = static_cast<int>(keys_used_ / call.block_floats());
  team_.parallel_for(blocks, [&](int item, int thread) {
    const auto after =
        std::upper_bound(units_.begin(), units_.end(), item,
                         [](int number, const KeyUnit& unit) { return number < unit.first_block; });
    const KeyUnit& unit = *(after - 1);
    if (call.gqa != nullptr) {
      pack_gqa_block(call, unit, item - unit.first_block, threads_[static_cast<size_t>(thread)]);
    } else {
      pack_mla_block(call, unit, item - unit.first_block, thread);
    }
  });
  std::sort(queries_.begin(), queries_.end(),
            [](const QueryItem& a, const QueryItem& b) { return a.cost > b.cost; });
  team_.parallel_for(static_cast<int>(queries_.size()), [&](int item, int thread) {
    attend_item(call, queries_[static_cast<size_t>(item)], threads_[static_cast<size_t>(thread)]);
  });
  units_.clear();
  queries_.clear();
  keys_used_ = 0;
}

void OpsCpu::attention_gqa(const GqaArgs& args) {
  UnitCall call;
  call.q = args.q;
  call.out = args.out;
  call.heads = args.heads;
  call.group = args.heads / args.kv_heads;
  call.d = call.dv = args.d;
  call.scale = args.scale;
  call.window = args.window;
  call.sinks = args.sinks;
  call.gqa = &args;
  for (const Sequence& sequence : args.sequences) {
    if (sequence.n == 0) continue;
    for (int head = 0; head < args.kv_heads; ++head) add_unit(call, sequence, head, sequence.n);
  }
  run_units(call);
}

// The form of a row is a property of its position: prompt rows that see everything they may see are
// expanded; generated rows, and rows that attend to a selection, are absorbed (ops_cpu_mla.cc).
void OpsCpu::attention_mla(const MlaArgs& args) {
  UnitCall call;
  call.q = args.q;
  call.out = args.out;
  call.heads = static_cast<int>(args.heads.size());
  call.group = 1;
  call.d = args.nope + args.rope;
  call.dv = args.v;
  call.scale = args.scale;
  call.mla = &args;
  absorbed_rows_.clear();
  for (const Sequence& sequence : args.sequences) {
    int end = std::min(sequence.past + sequence.n, sequence.prompt);
    if (args.selected != nullptr) end = std::min(end, args.topk);
    const int expanded = std::max(0, end - sequence.past);
    for (int head = 0; expanded > 0 && head < call.heads; ++head) {
      add_unit(call, sequence, head, expanded);
    }
    for (int i = expanded; i < sequence.n; ++i) {
      if (static_cast<int>(absorbed_rows_.size()) == absorbed_limit_) run_absorbed(args);
      absorbed_rows_.push_back({&sequence, sequence.row + i, sequence.past + i});
    }
  }
  run_units(call);
  run_absorbed(args);
}

}  // namespace asap
