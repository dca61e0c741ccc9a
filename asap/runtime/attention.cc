#include "asap/runtime/attention.h"

#include <algorithm>
#include <cstring>

#include "asap/base/check.h"
#include "asap/runtime/sampler.h"

namespace asap {

namespace {

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

}  // namespace

struct AttentionAgent::Stage {
  int index = 0;
  Phase phase = Phase::idle;
  uint64_t batch = 0;  // number on this stage; the command waited for has batch + 1
  uint64_t trace_id = 0;
  int layer = 0;
  int moe_layer = 0;  // MoE layers passed in this batch
  BatchRows rows;
  std::vector<SequenceCommand> commands;
  std::vector<Sequence> sequences;
  std::vector<int32_t> blocks;     // block tables, one after another
  std::vector<int32_t> tokens;     // [tokens]
  std::vector<int32_t> positions;  // [tokens]
  std::vector<int32_t> slots;      // [tokens]
  std::vector<float> angles, index_angles;
  std::vector<int32_t> sampled;            // batch row of each sampled sequence's last token
  std::vector<float> h;                    // [slice, H] residual stream
  std::vector<float> x;                    // [slice, H] post-attention norm
  std::vector<float> shared;               // [slice, H] shared expert
  std::vector<int32_t> ids;                // [slice, K]
  std::vector<float> weights;              // [slice, K]
  std::vector<std::vector<int32_t>> sent;  // [E] own rows dispatched to each expert rank, ascending
};

AttentionAgent::AttentionAgent(const Geometry& geometry, int group, int rank,
                               std::shared_ptr<const AttentionWeights> weights, int kv_blocks,
                               Ops& ops, std::unique_ptr<Port> port, Tracer tracer)
    : geometry_(geometry),
      group_(group),
      rank_(rank),
      layout_(geometry),
      expert_layout_(geometry),
      front_layout_(geometry),
      spec_(weights->spec),
      caches_(*weights, kv_blocks, geometry.activation),
      ops_(ops),
      side_(std::move(weights), caches_, ops, geometry.max_batch_tokens),
      port_(std::move(port)),
      tracer_(tracer),
      interleave_(geometry.stages),
      queued_(sz(geometry.stages), 0),
      rope_(rope_frequencies(spec_.rope)),
      index_rope_(spec_.index_topk > 0 ? rope_frequencies(spec_.index_rope)
                                       : std::vector<double>()) {
  const size_t tokens = sz(geometry.max_batch_tokens);
  const size_t slice = sz(geometry.slice_tokens());
  const size_t hidden = sz(geometry.hidden);
  for (int r = 0; r < geometry.stages; ++r) {
    auto stage = std::make_unique<Stage>();
    stage->index = r;
    for (auto* rows : {&stage->h, &stage->x, &stage->shared}) rows->resize(slice * hidden);
    stage->ids.resize(slice * sz(geometry.top_k));
    stage->weights.resize(slice * sz(geometry.top_k));
    stage->angles.resize(tokens * sz(spec_.rope.dim));
    stage->index_angles.resize(tokens * sz(spec_.index_rope.dim));
    stage->sent.resize(sz(geometry.expert_ranks));
    stages_.push_back(std::move(stage));
  }
  gathered_.resize(tokens * sz(geometry.gather_width));
  partial_.resize(tokens * hidden);
  selected_.resize(tokens * sz(geometry.index_topk));
  head_rows_.resize(sz(geometry.max_batch_seqs) * hidden);
  logits_.resize(sz(geometry.max_batch_seqs) * sz(geometry.vocab));
  row_logits_.resize(sz(geometry.vocab));
  wire_.resize(slice * geometry.row_bytes());
  counts_.reserve(sz(geometry.local_experts()));
  next_.reserve(sz(geometry.local_experts()) + 1);
  rows_.reserve(slice * sz(geometry.local_top_k()));
}

AttentionAgent::~AttentionAgent() = default;

std::string AttentionAgent::name() const {
  return device_name(geometry_, attention_device(geometry_, group_, rank_));
}

int AttentionAgent::do_work(Instant now) {
  for (const auto& stage : stages_) {
    if (queued_[sz(stage->index)] == 0 && arrived(*stage)) {
      queued_[sz(stage->index)] = 1;
      interleave_.on_ready(stage->index, now);
    }
  }
  const auto next = interleave_.next();
  if (!next) return 0;
  queued_[sz(*next)] = 0;
  advance(*stages_[sz(*next)]);
  return 1;
}

// The flag of a group exchange: one per (batch, layer); the last "layer" is the head.
uint64_t AttentionAgent::group_flag(const Stage& stage) const {
  return make_flag(epoch_, stage.batch * sz(geometry_.layers + 1) + sz(stage.layer));
}

ItemId AttentionAgent::item(const Stage& stage) const {
  return {.group = group_,
          .stage = stage.index,
          .layer = stage.layer,
          .epoch = epoch_,
          .seq = (stage.batch - 1) * sz(geometry_.moe_layers) + sz(stage.moe_layer) + 1,
          .trace_id = stage.trace_id};
}

bool AttentionAgent::arrived(const Stage& stage) const {
  const std::byte* window = port_->window();
  const auto all = [&](const Area& area) {
    return group_ready(window, layout_, area, geometry_.ranks, stage.index, group_flag(stage));
  };
  switch (stage.phase) {
    case Phase::idle:
      return load_flag(window + layout_.command.flag(stage.index)) ==
             make_flag(epoch_, stage.batch + 1);
    case Phase::gather: return all(layout_.gather);
    case Phase::select: return all(layout_.select);
    case Phase::reduce: return all(layout_.reduce);
    case Phase::combine: return combine_recv(window, geometry_, layout_, item(stage));
    case Phase::rows: return all(layout_.rows);
    case Phase::logits: return all(layout_.logits);
  }
  return false;
}

void AttentionAgent::advance(Stage& stage) {
  switch (stage.phase) {
    case Phase::idle: return begin_batch(stage);
    case Phase::gather: return on_gathered(stage);
    case Phase::select: return on_selected(stage);
    case Phase::reduce: return on_reduced(stage);
    case Phase::combine: return on_combined(stage);
    case Phase::rows: return on_rows(stage);
    case Phase::logits: return on_logits(stage);
  }
}

void AttentionAgent::trace(const Stage& stage, TraceOp op, Instant begin, TraceFlow flow) const {
  if (!tracer_.on()) return;
  TraceEvent event;
  event.batch = stage.trace_id;
  event.op = op;
  event.layer =
      static_cast<int16_t>(op == TraceOp::embed || op == TraceOp::head ? -1 : stage.layer);
  event.group = static_cast<int16_t>(group_);
  event.stage = static_cast<int16_t>(stage.index);
  event.flow = flow;
  event.flow_id =
      (stage.trace_id * sz(geometry_.layers + 1) + sz(stage.layer)) * sz(geometry_.ranks) +
      sz(rank_);
  tracer_.add(event, begin);
}

void AttentionAgent::begin_batch(Stage& stage) {
  const Instant begin = tracer_.now();
  ++stage.batch;
  stage.layer = 0;
  stage.moe_layer = 0;
  read_command(stage);
  place_tokens(stage);
  const Part slice = stage.rows.slice;
  side_.embed({stage.tokens.data() + slice.begin, sz(slice.size())}, stage.h.data());
  trace(stage, TraceOp::embed, begin);
  project(stage);
}

// Copies the command out of the window and checks everything that will be used as an index.
void AttentionAgent::read_command(Stage& stage) {
  const std::byte* at = port_->window() + layout_.command.payload(stage.index);
  BatchCommand command;
  std::memcpy(&command, at, sizeof(command));
  CHECK(command.magic == kCommandMagic && command.epoch == epoch_ && command.batch == stage.batch,
        "command for {} stage {}: magic {:#x}, epoch {}, batch {}; expected epoch {}, batch {}",
        name(), stage.index, command.magic, command.epoch, command.batch, epoch_, stage.batch);
  CHECK(command.sequences > 0 && command.sequences <= geometry_.max_batch_seqs &&
            command.tokens > 0 && command.tokens <= geometry_.max_batch_tokens &&
            command.blocks >= 0 && command.blocks <= command.sequences * geometry_.max_seq_blocks,
        "command of {} sequences, {} tokens, {} blocks exceeds the geometry", command.sequences,
        command.tokens, command.blocks);
  at += sizeof(command);
  const auto read = [&](auto& out, int32_t count) {
    out.resize(sz(count));
    std::memcpy(out.data(), at, out.size() * sizeof(out[0]));
    at += out.size() * sizeof(out[0]);
  };
  read(stage.commands, command.sequences);
  read(stage.blocks, command.blocks);
  read(stage.tokens, command.tokens);
  stage.trace_id = command.trace_id;
  for (const int32_t token : stage.tokens) CHECK(token >= 0 && token < geometry_.vocab);
}

// Positions, cache slots and angles of every token of the batch.
void AttentionAgent::place_tokens(Stage& stage) {
  const int tokens = static_cast<int>(stage.tokens.size());
  stage.sequences.clear();
  stage.positions.clear();
  stage.slots.clear();
  stage.sampled.clear();
  bool select = false;
  int row = 0;
  int block = 0;
  for (const SequenceCommand& c : stage.commands) {
    const int end = c.past + c.tokens;
    CHECK(c.past >= 0 && c.tokens > 0 && row + c.tokens <= tokens && c.blocks >= 0 &&
          block + c.blocks <= static_cast<int>(stage.blocks.size()) && end <= c.blocks * kKvBlock);
    const int32_t* table = stage.blocks.data() + block;
    stage.sequences.push_back({row, c.tokens, c.past, c.prompt, table});
    for (int position = c.past; position < end; ++position) {
      stage.positions.push_back(position);
      stage.slots.push_back(table[position / kKvBlock] * kKvBlock + position % kKvBlock);
    }
    select = select || (spec_.index_topk > 0 && end > spec_.index_topk);
    row += c.tokens;
    block += c.blocks;
    if (c.sample != 0) stage.sampled.push_back(row - 1);
  }
  CHECK(row == tokens, "sequences of {} tokens in a batch of {}", row, tokens);
  rope_angles(rope_, spec_.rope.amplitude, stage.positions, stage.angles.data());
  rope_angles(index_rope_, spec_.index_rope.amplitude, stage.positions, stage.index_angles.data());
  stage.rows = {tokens,
                part_of(tokens, geometry_.ranks, rank_),
                stage.sequences,
                stage.slots.data(),
                stage.angles.data(),
                stage.index_angles.data(),
                select};
}

void AttentionAgent::project(Stage& stage) {
  const Instant begin = tracer_.now();
  const int n = stage.rows.slice.size();
  const uint64_t elements = sz(n) * sz(geometry_.gather_width);
  side_.project(stage.layer, stage.rows, stage.h.data(), gathered_.data());
  for (int to = 0; to < geometry_.ranks; ++to) {
    group_put(*port_, geometry_, layout_, layout_.gather,
              {group_, rank_, stage.index, group_flag(stage)}, to, gathered_.data(),
              elements * sizeof(float));
  }
  stage.phase = Phase::gather;
  trace(stage, TraceOp::project, begin);
}

const float* AttentionAgent::collect_gathered(const Stage& stage) {
  for (int peer = 0; peer < geometry_.ranks; ++peer) {
    const Part slice = part_of(stage.rows.tokens, geometry_.ranks, peer);
    const uint64_t payload = layout_.gather.payload(layout_.peer_slot(stage.index, peer));
    std::memcpy(gathered_.data() + static_cast<int64_t>(slice.begin) * geometry_.gather_width,
                port_->window() + payload,
                sz(slice.size()) * sz(geometry_.gather_width) * sizeof(float));
  }
  return gathered_.data();
}

void AttentionAgent::on_gathered(Stage& stage) {
  const Instant begin = tracer_.now();
  const float* gathered = collect_gathered(stage);
  side_.store(stage.layer, stage.rows, gathered);
  if (!stage.rows.select) return attend(stage, nullptr);
  if (!spec_.indexes(stage.layer)) {
    // The selection of an earlier layer still lies in the window: peers send the next one only
    // after this rank's part in this layer.
    collect_selected(stage);
    return attend(stage, selected_.data());
  }
  side_.select(stage.layer, stage.rows, stage.h.data(), gathered, selected_.data());
  const size_t count = sz(stage.rows.slice.size()) * sz(geometry_.index_topk);
  const uint64_t bytes = count * sizeof(int32_t);
  if (observer_) {
    observer_({stage.layer, stage.commands, stage.rows.slice, {}, {}, {selected_.data(), count}});
  }
  for (int to = 0; to < geometry_.ranks; ++to) {
    group_put(*port_, geometry_, layout_, layout_.select,
              {group_, rank_, stage.index, group_flag(stage)}, to, selected_.data(), bytes);
  }
  stage.phase = Phase::select;
  trace(stage, TraceOp::indexer, begin);
}

void AttentionAgent::collect_selected(const Stage& stage) {
  for (int peer = 0; peer < geometry_.ranks; ++peer) {
    const Part slice = part_of(stage.rows.tokens, geometry_.ranks, peer);
    const uint64_t payload = layout_.select.payload(layout_.peer_slot(stage.index, peer));
    std::memcpy(selected_.data() + static_cast<int64_t>(slice.begin) * geometry_.index_topk,
                port_->window() + payload,
                sz(slice.size()) * sz(geometry_.index_topk) * sizeof(int32_t));
  }
}

void AttentionAgent::on_selected(Stage& stage) {
  collect_gathered(stage);  // another stage may have used the buffer since
  collect_selected(stage);
  attend(stage, selected_.data());
}

void AttentionAgent::attend(Stage& stage, const int32_t* selected) {
  const Instant begin = tracer_.now();
  side_.attend(stage.layer, stage.rows, gathered_.data(), selected, partial_.data());
  for (int to = 0; to < geometry_.ranks; ++to) {
    const Part slice = part_of(stage.rows.tokens, geometry_.ranks, to);
    const int64_t elements = static_cast<int64_t>(slice.size()) * geometry_.hidden;
    group_put(*port_, geometry_, layout_, layout_.reduce,
              {group_, rank_, stage.index, group_flag(stage)}, to,
              partial_.data() + static_cast<int64_t>(slice.begin) * geometry_.hidden,
              sz(elements) * sizeof(float));
  }
  stage.phase = Phase::reduce;
  trace(stage, TraceOp::attention, begin);
}

void AttentionAgent::on_reduced(Stage& stage) {
  const Instant begin = tracer_.now();
  const int n = stage.rows.slice.size();
  const int64_t elements = static_cast<int64_t>(n) * geometry_.hidden;
  // Partial sums in ascending rank order, then the residual: the bits do not depend on arrival.
  std::fill_n(partial_.begin(), elements, 0.0f);
  for (int peer = 0; peer < geometry_.ranks; ++peer) {
    const uint64_t payload = layout_.reduce.payload(layout_.peer_slot(stage.index, peer));
    ops_.add(port_->window() + payload, elements, DType::f32, partial_.data());
  }
  for (int64_t i = 0; i < elements; ++i) stage.h[sz(i)] += partial_[sz(i)];
  if (spec_.moe_layer[sz(stage.layer)] == 0) {
    side_.dense(stage.layer, n, stage.h.data());
    trace(stage, TraceOp::dense, begin);
    return next_layer(stage);
  }
  side_.route(stage.layer, n, stage.h.data(), stage.x.data(), stage.ids.data(),
              stage.weights.data());
  if (observer_) {
    const size_t count = sz(n) * sz(geometry_.top_k);
    observer_({stage.layer,
               stage.commands,
               stage.rows.slice,
               {stage.ids.data(), count},
               {stage.weights.data(), count},
               {}});
  }
  trace(stage, TraceOp::router, begin);
  dispatch(stage);
  const Instant shared = tracer_.now();
  side_.shared(stage.layer, n, stage.x.data(), stage.shared.data());
  trace(stage, TraceOp::shared, shared);
  stage.phase = Phase::combine;
}

// Each expert rank gets each token once, with one row per local expert that the token selected.
void AttentionAgent::dispatch(Stage& stage) {
  const Instant begin = tracer_.now();
  const int n = stage.rows.slice.size();
  const int k = geometry_.top_k;
  ops_.narrow(stage.x.data(), static_cast<int64_t>(n) * geometry_.hidden, geometry_.activation,
              wire_.data());
  for (int e = 0; e < geometry_.expert_ranks; ++e) {
    const Part own = part_of(geometry_.experts, geometry_.expert_ranks, e);
    std::vector<int32_t>& sent = stage.sent[sz(e)];
    sent.clear();
    counts_.assign(sz(own.size()), 0);
    for (int i = 0; i < n; ++i) {
      bool any = false;
      for (int j = 0; j < k; ++j) {
        const int expert = stage.ids[sz(i * k + j)];
        if (expert < own.begin || expert >= own.end) continue;
        ++counts_[sz(expert - own.begin)];
        any = true;
      }
      if (any) sent.push_back(i);
    }
    next_.assign(sz(own.size()) + 1, 0);
    for (int x = 0; x < own.size(); ++x) next_[sz(x) + 1] = next_[sz(x)] + counts_[sz(x)];
    rows_.resize(sz(next_.back()));
    for (size_t token = 0; token < sent.size(); ++token) {
      for (int j = 0; j < k; ++j) {
        const size_t choice = sz(sent[token] * k + j);
        const int expert = stage.ids[choice];
        if (expert < own.begin || expert >= own.end) continue;
        rows_[sz(next_[sz(expert - own.begin)]++)] = {static_cast<int32_t>(token),
                                                      stage.weights[choice]};
      }
    }
    dispatch_send(*port_, geometry_, expert_layout_, e, rank_, item(stage),
                  {counts_, rows_, sent, wire_.data()});
  }
  trace(stage, TraceOp::dispatch, begin, TraceFlow::start);
}

void AttentionAgent::on_combined(Stage& stage) {
  const Instant begin = tracer_.now();
  const int n = stage.rows.slice.size();
  const int hidden = geometry_.hidden;
  const int64_t elements = static_cast<int64_t>(n) * hidden;
  // Ascending expert rank, then the shared expert, then the residual.
  std::fill_n(partial_.begin(), elements, 0.0f);
  for (int e = 0; e < geometry_.expert_ranks; ++e) {
    const std::vector<int32_t>& sent = stage.sent[sz(e)];
    const std::byte* rows =
        combine_rows(port_->window(), layout_, item(stage), e, static_cast<int>(sent.size()));
    for (size_t i = 0; i < sent.size(); ++i) {
      ops_.add(rows + i * geometry_.row_bytes(), hidden, geometry_.activation,
               partial_.data() + static_cast<int64_t>(sent[i]) * hidden);
    }
  }
  for (int64_t i = 0; i < elements; ++i) {
    stage.h[sz(i)] += partial_[sz(i)] + stage.shared[sz(i)];
  }
  ++stage.moe_layer;
  trace(stage, TraceOp::combine, begin, TraceFlow::end);
  next_layer(stage);
}

void AttentionAgent::next_layer(Stage& stage) {
  ++stage.layer;
  if (stage.layer < geometry_.layers) return project(stage);
  send_rows(stage);
}

// Every rank gets the final-norm rows of all sampled sequences; each owner sends those of its
// slice, in batch order.
void AttentionAgent::send_rows(Stage& stage) {
  const Instant begin = tracer_.now();
  const Part slice = stage.rows.slice;
  const size_t hidden = sz(geometry_.hidden);
  size_t own = 0;
  for (const int32_t row : stage.sampled) {
    if (row < slice.begin || row >= slice.end) continue;
    side_.final_norm(1, stage.h.data() + sz(row - slice.begin) * hidden,
                     head_rows_.data() + own * hidden);
    ++own;
  }
  for (int to = 0; to < geometry_.ranks; ++to) {
    group_put(*port_, geometry_, layout_, layout_.rows,
              {group_, rank_, stage.index, group_flag(stage)}, to, head_rows_.data(),
              own * hidden * sizeof(float));
  }
  stage.phase = Phase::rows;
  trace(stage, TraceOp::head, begin);
}

void AttentionAgent::on_rows(Stage& stage) {
  const Instant begin = tracer_.now();
  const size_t hidden = sz(geometry_.hidden);
  taken_.assign(sz(geometry_.ranks), 0);
  for (size_t i = 0; i < stage.sampled.size(); ++i) {
    int owner = 0;
    while (stage.sampled[i] >= part_of(stage.rows.tokens, geometry_.ranks, owner).end) ++owner;
    const uint64_t payload = layout_.rows.payload(layout_.peer_slot(stage.index, owner));
    std::memcpy(head_rows_.data() + i * hidden,
                port_->window() + payload + taken_[sz(owner)]++ * hidden * sizeof(float),
                hidden * sizeof(float));
  }
  const int samples = static_cast<int>(stage.sampled.size());
  const Part vocab = part_of(geometry_.vocab, geometry_.ranks, rank_);
  side_.head(samples, head_rows_.data(), logits_.data());
  group_put(*port_, geometry_, layout_, layout_.logits,
            {group_, rank_, stage.index, group_flag(stage)}, 0, logits_.data(),
            sz(samples) * sz(vocab.size()) * sizeof(float));
  stage.phase = Phase::logits;
  trace(stage, TraceOp::head, begin);
  if (rank_ != 0) finish(stage);
}

void AttentionAgent::on_logits(Stage& stage) {
  const Instant begin = tracer_.now();
  const int slot = front_layout_.slot(group_, stage.index);
  const uint64_t payload = front_layout_.result.payload(slot);
  const size_t vocab = sz(geometry_.vocab);
  size_t sampled = 0;
  for (const SequenceCommand& c : stage.commands) {
    if (c.sample == 0) continue;
    for (int peer = 0; peer < geometry_.ranks; ++peer) {
      const Part part = part_of(geometry_.vocab, geometry_.ranks, peer);
      const uint64_t shard = layout_.logits.payload(layout_.peer_slot(stage.index, peer));
      std::memcpy(row_logits_.data() + part.begin,
                  port_->window() + shard + sampled * sz(part.size()) * sizeof(float),
                  sz(part.size()) * sizeof(float));
    }
    ResultEntry entry{};
    entry.sequence = c.sequence;
    entry.logits_row = c.logits_row;
    sample(row_logits_, {c.temperature, c.seed, c.past + c.tokens, c.logprobs}, &entry);
    port_->put(kFrontDevice, payload + front_layout_.entries_at + sampled * sizeof(entry), &entry,
               sizeof(entry));
    if (c.logits_row >= 0) {
      CHECK(c.logits_row < geometry_.logits_rows);
      port_->put(kFrontDevice,
                 payload + front_layout_.logits_at + sz(c.logits_row) * vocab * sizeof(float),
                 row_logits_.data(), vocab * sizeof(float));
    }
    ++sampled;
  }
  const ResultHeader header{kResultMagic, static_cast<uint32_t>(epoch_), stage.batch,
                            static_cast<int32_t>(sampled), 0};
  port_->put(kFrontDevice, payload, &header, sizeof(header));
  port_->put_flag(kFrontDevice, front_layout_.result.flag(slot), make_flag(epoch_, stage.batch));
  trace(stage, TraceOp::head, begin);
  finish(stage);
}

void AttentionAgent::finish(Stage& stage) {
  stage.phase = Phase::idle;
}

std::string AttentionAgent::waiting_for() const {
  static constexpr const char* kWhat[] = {"",
                                          "latents of the group",
                                          "selections of the group",
                                          "partial sums of the group",
                                          "answers of the expert ranks",
                                          "last rows of the group",
                                          "logits of the group"};
  std::string out;
  for (const auto& stage : stages_) {
    if (stage->phase == Phase::idle) continue;
    out += fmt::format("{}stage {} batch {} layer {} waits for {}", out.empty() ? "" : "; ",
                       stage->index, stage->batch, stage->layer,
                       kWhat[static_cast<size_t>(stage->phase)]);
  }
  return out;
}

}  // namespace asap
