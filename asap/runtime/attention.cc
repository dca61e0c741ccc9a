#include "asap/runtime/attention.h"

#include <algorithm>
#include <cstring>

#include "asap/base/check.h"

namespace asap {

namespace {

size_t sz(int64_t n) {
  return static_cast<size_t>(n);
}

}  // namespace

struct AttentionAgent::Stage {
  Phase phase = Phase::idle;
  uint64_t batch = 0;  // number on this stage; the command waited for has batch + 1
  int moe_layer = 0;   // MoE layers passed in this batch
  StageBatch work;
  std::vector<SequenceCommand> commands;
  std::vector<int32_t> blocks;  // block tables, one after another
  std::vector<int32_t> tokens;  // [tokens]
  std::vector<LogitBias> biases;
  std::vector<int32_t> sampled;  // batch row of each sampled sequence's last token
  bool abandoned = false;
  BatchTimes times{};
  Instant parked, ready;  // since when it waits; when what it waits for was seen
  int index() const { return work.stage; }
  bool empty() const { return work.tokens == 0; }
};

AttentionAgent::AttentionAgent(const Geometry& geometry, const ModelSpec& spec, int group, int rank,
                               std::unique_ptr<AttentionCompute> compute,
                               std::unique_ptr<Port> port, Tracer tracer, uint64_t epoch)
    : geometry_(geometry),
      group_(group),
      rank_(rank),
      epoch_(epoch),
      layout_(geometry),
      expert_layout_(geometry),
      front_layout_(geometry),
      spec_(spec),
      compute_(std::move(compute)),
      port_(std::move(port)),
      tracer_(tracer),
      interleave_(geometry.stages),
      queued_(sz(geometry.stages), 0) {
  for (int r = 0; r < geometry.stages; ++r) {
    stages_.push_back(std::make_unique<Stage>());
    stages_.back()->work.stage = r;
    stages_.back()->work.window = port_->window();
  }
}

AttentionAgent::~AttentionAgent() = default;

std::string AttentionAgent::name() const {
  return device_name(geometry_, attention_device(geometry_, group_, rank_));
}

int AttentionAgent::do_work(Instant now) {
  for (const auto& stage : stages_) {
    if (queued_[sz(stage->index())] == 0 && arrived(*stage)) {
      queued_[sz(stage->index())] = 1;
      stage->ready = tracer_.now();
      interleave_.on_ready(stage->index(), now);
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
  return make_flag(epoch_, stage.batch * sz(geometry_.layers + 1) + sz(stage.work.layer));
}

ItemId AttentionAgent::item(const Stage& stage) const {
  return {.group = group_,
          .stage = stage.index(),
          .layer = stage.work.layer,
          .epoch = epoch_,
          .seq = (stage.batch - 1) * sz(geometry_.moe_layers) + sz(stage.moe_layer) + 1,
          .trace_id = stage.work.item.trace_id};
}

bool AttentionAgent::arrived(const Stage& stage) const {
  const std::byte* window = port_->window();
  const auto all = [&](const Area& area) {
    return group_ready(window, layout_, area, geometry_.ranks, stage.index(), group_flag(stage));
  };
  switch (stage.phase) {
    case Phase::idle:
      return load_flag(window + layout_.command.flag(stage.index())) ==
             make_flag(epoch_, stage.batch + 1);
    case Phase::gather: {
      const uint64_t first =
          load_flag(window + layout_.gather.flag(layout_.peer_slot(stage.index(), 0)));
      if (first == (group_flag(stage) | kAbandoned)) return true;
      return all(layout_.gather) && may_attend(stage);
    }
    case Phase::select: return all(layout_.select);
    case Phase::reduce:
      // A peer that ends the batch in the next layer, or the next batch in its first, says so
      // without us: its flag may be ahead, and what it sent before is still there.
      return group_passed(window, layout_, layout_.reduce, geometry_.ranks, stage.index(),
                          group_flag(stage));
    case Phase::turn: return may_dispatch(stage);
    case Phase::enter:
      return barrier_ready(window, geometry_, layout_.enter, make_flag(epoch_, item(stage).seq));
    case Phase::leave:
      return barrier_ready(window, geometry_, layout_.leave,
                           make_flag(epoch_, stage.work.item.seq));
    case Phase::combine: return combine_recv(window, geometry_, layout_, stage.work.item);
    case Phase::rows: return all(layout_.rows);
    case Phase::logits: return all(layout_.logits);
  }
  return false;
}

// Keys of earlier parts of the same prompts are stored in this layer.
bool AttentionAgent::may_attend(const Stage& stage) const {
  for (const SequenceCommand& c : stage.commands) {
    if (c.follows < 0) continue;
    const Stage& first = *stages_[sz(c.follows)];
    if (first.batch > c.follows_batch) continue;  // done long ago
    if (first.batch < c.follows_batch) return false;
    const bool stored = first.phase == Phase::idle || first.work.layer > stage.work.layer ||
                        (first.work.layer == stage.work.layer && first.phase != Phase::gather);
    if (!stored) return false;
  }
  return true;
}

// A region is free, and it is this stage's turn. Another stage may take it before this one is
// advanced.
bool AttentionAgent::may_dispatch(const Stage& stage) const {
  const auto away = std::count_if(stages_.begin(), stages_.end(),
                                  [](const auto& other) { return other->phase == Phase::combine; });
  if (away >= geometry_.regions) return false;
  return rank_ == 0 || load_flag(port_->window() + layout_.turn.flag(stage.index())) ==
                           make_flag(epoch_, item(stage).seq);
}

void AttentionAgent::advance(Stage& stage) {
  if (stage.phase == Phase::turn && !may_dispatch(stage)) return;
  const Instant begin = tracer_.now();
  const bool barrier = stage.phase == Phase::enter || stage.phase == Phase::leave;
  const bool experts = stage.phase == Phase::combine || stage.phase == Phase::turn;
  int64_t& waited = experts   ? stage.times.experts_ns
                    : barrier ? stage.times.barrier_ns
                              : stage.times.attention_ns;
  if (stage.phase != Phase::idle) {
    waited += (stage.ready - stage.parked).ns;
    stage.times.turn_ns += (begin - stage.ready).ns;
  }
  switch (stage.phase) {
    case Phase::idle: return begin_batch(stage);
    case Phase::gather: return on_gathered(stage);
    case Phase::select: return attend(stage);
    case Phase::reduce: return on_reduced(stage);
    case Phase::turn: return send_item(stage);
    case Phase::enter: return send_item(stage);
    case Phase::leave: return next_layer(stage);
    case Phase::combine: return on_combined(stage);
    case Phase::rows: return on_rows(stage);
    case Phase::logits: return on_logits(stage);
  }
}

void AttentionAgent::park(Stage& stage, Phase phase) {
  stage.phase = phase;
  stage.parked = tracer_.now();
}

void AttentionAgent::trace(const Stage& stage, TraceOp op, Instant begin, TraceFlow flow) const {
  if (!tracer_.on()) return;
  TraceEvent event;
  event.batch = stage.work.item.trace_id;
  event.op = op;
  event.layer =
      static_cast<int16_t>(op == TraceOp::embed || op == TraceOp::head ? -1 : stage.work.layer);
  event.group = static_cast<int16_t>(group_);
  event.stage = static_cast<int16_t>(stage.index());
  event.flow = flow;
  event.flow_id =
      (event.batch * sz(geometry_.layers + 1) + sz(stage.work.layer)) * sz(geometry_.ranks) +
      sz(rank_);
  tracer_.add(event, begin);
}

void AttentionAgent::put_to(const Stage& stage, const Area& area, int to, Payload payload) {
  group_put(*port_, geometry_, layout_, area, {group_, rank_, stage.index(), group_flag(stage)}, to,
            payload.data(), payload.size());
}

void AttentionAgent::put_all(const Stage& stage, const Area& area, Payload payload) {
  for (int to = 0; to < geometry_.ranks; ++to) put_to(stage, area, to, payload);
}

void AttentionAgent::begin_batch(Stage& stage) {
  const Instant begin = tracer_.now();
  ++stage.batch;
  stage.work.layer = 0;
  stage.moe_layer = 0;
  stage.abandoned = false;
  stage.times = {};
  read_command(stage);
  place_sequences(stage);
  compute_->begin(stage.work);
  stage.times.attention_ns += (tracer_.now() - begin).ns;
  trace(stage, TraceOp::embed, begin);
  project(stage);
}

// Copies the command out of the window and checks everything that will be used as an index.
void AttentionAgent::read_command(Stage& stage) {
  const std::byte* at = port_->window() + layout_.command.payload(stage.index());
  BatchCommand command;
  std::memcpy(&command, at, sizeof(command));
  CHECK(command.magic == kCommandMagic && command.epoch == epoch_ && command.batch == stage.batch,
        "command for {} stage {}: magic {:#x}, epoch {}, batch {}; expected epoch {}, batch {}",
        name(), stage.index(), command.magic, command.epoch, command.batch, epoch_, stage.batch);
  const int least = geometry_.lockstep ? 0 : 1;
  CHECK(command.sequences >= least && command.sequences <= geometry_.max_batch_seqs &&
            command.tokens >= least && command.tokens <= geometry_.max_batch_tokens &&
            command.blocks >= 0 && command.blocks <= command.sequences * geometry_.max_seq_blocks &&
            command.biases >= 0 && command.biases <= command.sequences * kMaxLogitBiases,
        "command of {} sequences, {} tokens, {} blocks exceeds the geometry", command.sequences,
        command.tokens, command.blocks);
  at += sizeof(command);
  const auto read = [&](auto& out, int32_t count) {
    out.resize(sz(count));
    if (count == 0) return;  // an empty vector may have no address, which memcpy must not get
    std::memcpy(out.data(), at, out.size() * sizeof(out[0]));
    at += out.size() * sizeof(out[0]);
  };
  read(stage.commands, command.sequences);
  read(stage.blocks, command.blocks);
  read(stage.tokens, command.tokens);
  read(stage.biases, command.biases);
  stage.work.item.trace_id = command.trace_id;
  for (const int32_t token : stage.tokens) CHECK(token >= 0 && token < geometry_.vocab);
  for (const LogitBias& b : stage.biases) CHECK(b.token >= 0 && b.token < geometry_.vocab);
}

void AttentionAgent::place_sequences(Stage& stage) {
  StageBatch& work = stage.work;
  work.tokens = static_cast<int>(stage.tokens.size());
  work.slice = part_of(work.tokens, geometry_.ranks, rank_);
  work.select = false;
  work.pairs = 0;
  stage.sampled.clear();
  int row = 0;
  int block = 0;
  int bias = 0;
  for (const SequenceCommand& c : stage.commands) {
    const int end = c.past + c.tokens;
    CHECK(c.past >= 0 && c.tokens > 0 && row + c.tokens <= work.tokens && c.blocks >= 0 &&
          block + c.blocks <= static_cast<int>(stage.blocks.size()) && end <= c.blocks * kKvBlock);
    CHECK(c.follows >= -1 && c.follows < geometry_.stages && c.follows != stage.index(),
          "a part of sequence {} on stage {} follows stage {}", c.sequence, stage.index(),
          c.follows);
    work.select = work.select || (spec_.index_topk > 0 && end > spec_.index_topk);
    work.pairs += static_cast<double>(c.tokens) * (c.tokens + 2.0 * c.past);
    row += c.tokens;
    block += c.blocks;
    bias += c.biases;
    CHECK(c.biases >= 0 && bias <= static_cast<int>(stage.biases.size()));
    if (c.sample != 0) stage.sampled.push_back(row - 1);
  }
  CHECK(row == work.tokens, "sequences of {} tokens in a batch of {}", row, work.tokens);
  work.commands = stage.commands;
  work.blocks = stage.blocks;
  work.ids = stage.tokens;
  work.biases = stage.biases;
  work.sampled = stage.sampled;
}

void AttentionAgent::project(Stage& stage) {
  if (stage.empty()) return meet_experts(stage);
  const Instant begin = tracer_.now();
  if (rank_ == 0 && unwanted(stage)) {
    for (int to = 0; to < geometry_.ranks; ++to) {
      group_put(*port_, geometry_, layout_, layout_.gather,
                {group_, rank_, stage.index(), group_flag(stage) | kAbandoned}, to, nullptr, 0);
    }
    return park(stage, Phase::gather);
  }
  put_all(stage, layout_.gather, compute_->project(stage.work));
  trace(stage, TraceOp::project, begin);
  park(stage, Phase::gather);
  stage.times.attention_ns += (stage.parked - begin).ns;
}

bool AttentionAgent::unwanted(const Stage& stage) const {
  return !geometry_.lockstep && load_flag(port_->window() + layout_.abandon.flag(stage.index())) ==
                                    make_flag(epoch_, stage.batch);
}

// No rank reuses a buffer of the stage before all have seen that the batch ends: as after any
// layer.
void AttentionAgent::abandon(Stage& stage) {
  stage.abandoned = true;
  for (int to = 0; to < geometry_.ranks; ++to) put_to(stage, layout_.reduce, to, {});
  park(stage, Phase::reduce);
}

void AttentionAgent::on_gathered(Stage& stage) {
  const Instant begin = tracer_.now();
  const int first = layout_.peer_slot(stage.index(), 0);
  if (load_flag(port_->window() + layout_.gather.flag(first)) != group_flag(stage)) {
    return abandon(stage);
  }
  compute_->store(stage.work);
  if (stage.work.select && spec_.indexes(stage.work.layer)) {
    put_all(stage, layout_.select, compute_->select(stage.work));
    trace(stage, TraceOp::indexer, begin);
    park(stage, Phase::select);
    stage.times.attention_ns += (stage.parked - begin).ns;
  } else {
    stage.times.attention_ns += (tracer_.now() - begin).ns;
    attend(stage);
  }
}

void AttentionAgent::attend(Stage& stage) {
  const Instant begin = tracer_.now();
  compute_->attend(stage.work);
  for (int to = 0; to < geometry_.ranks; ++to) {
    put_to(stage, layout_.reduce, to, compute_->partial(stage.work, to));
  }
  trace(stage, TraceOp::attention, begin);
  park(stage, Phase::reduce);
  stage.times.attention_ns += (stage.parked - begin).ns;
}

void AttentionAgent::on_reduced(Stage& stage) {
  if (stage.abandoned) return rank_ == 0 ? finish(stage, 0) : park(stage, Phase::idle);
  const Instant begin = tracer_.now();
  compute_->reduce(stage.work);
  if (spec_.moe_layer[sz(stage.work.layer)] == 0) {
    compute_->dense(stage.work);
    trace(stage, TraceOp::dense, begin);
    stage.times.attention_ns += (tracer_.now() - begin).ns;
    return next_layer(stage);
  }
  compute_->route(stage.work);
  trace(stage, TraceOp::router, begin);
  stage.times.attention_ns += (tracer_.now() - begin).ns;
  meet_experts(stage);
}

// The rank has what it dispatches in this layer: nothing, in a layer without experts.
void AttentionAgent::meet_experts(Stage& stage) {
  if (spec_.moe_layer[sz(stage.work.layer)] == 0) return next_layer(stage);
  if (geometry_.lockstep) return meet_others(stage, Phase::enter);
  if (geometry_.regions < geometry_.stages) return park(stage, Phase::turn);
  send_item(stage);
}

void AttentionAgent::meet_others(Stage& stage, Phase where) {
  const bool enter = where == Phase::enter;
  const uint64_t seq = enter ? item(stage).seq : stage.work.item.seq;
  barrier_send(*port_, geometry_, enter ? layout_.enter : layout_.leave,
               group_ * geometry_.ranks + rank_, make_flag(epoch_, seq), stage.work.tokens);
  park(stage, where);
}

void AttentionAgent::send_item(Stage& stage) {
  const Instant begin = tracer_.now();
  if (geometry_.lockstep) {
    stage.work.largest_tokens = barrier_largest(port_->window(), geometry_, layout_.enter);
  }
  dispatch(stage);
  const Instant sent = tracer_.now();
  if (!stage.empty()) {
    compute_->shared(stage.work);
    trace(stage, TraceOp::shared, sent);
  }
  park(stage, Phase::combine);
  stage.times.dispatch_ns += (sent - begin).ns;
  stage.times.attention_ns += (stage.parked - sent).ns;
}

void AttentionAgent::dispatch(Stage& stage) {
  const Instant begin = tracer_.now();
  stage.work.item = item(stage);
  if (rank_ == 0 && geometry_.regions < geometry_.stages) {
    for (int to = 1; to < geometry_.ranks; ++to) {
      port_->put_flag(attention_device(geometry_, group_, to), layout_.turn.flag(stage.index()),
                      make_flag(epoch_, stage.work.item.seq));
    }
  }
  for (int e = 0; e < geometry_.expert_ranks; ++e) {
    dispatch_send(*port_, geometry_, expert_layout_, e, rank_, stage.work.item,
                  compute_->share(stage.work, e));
  }
  trace(stage, TraceOp::dispatch, begin, TraceFlow::start);
}

void AttentionAgent::on_combined(Stage& stage) {
  const Instant begin = tracer_.now();
  compute_->combine(stage.work);
  ++stage.moe_layer;
  trace(stage, TraceOp::combine, begin, TraceFlow::end);
  stage.times.combine_ns += (tracer_.now() - begin).ns;
  if (geometry_.lockstep) return meet_others(stage, Phase::leave);
  next_layer(stage);
}

void AttentionAgent::next_layer(Stage& stage) {
  ++stage.work.layer;
  if (stage.work.layer < geometry_.layers) return project(stage);
  if (!stage.empty()) return send_rows(stage);
  if (rank_ == 0) return finish(stage, 0);
  park(stage, Phase::idle);
}

void AttentionAgent::send_rows(Stage& stage) {
  const Instant begin = tracer_.now();
  put_all(stage, layout_.rows, compute_->last_rows(stage.work));
  trace(stage, TraceOp::head, begin);
  park(stage, Phase::rows);
  stage.times.attention_ns += (stage.parked - begin).ns;
}

void AttentionAgent::on_rows(Stage& stage) {
  const Instant begin = tracer_.now();
  put_to(stage, layout_.logits, 0, compute_->logits(stage.work));
  trace(stage, TraceOp::head, begin);
  park(stage, rank_ == 0 ? Phase::logits : Phase::idle);
  stage.times.attention_ns += (stage.parked - begin).ns;
}

// Rank 0 only.
void AttentionAgent::on_logits(Stage& stage) {
  const Instant begin = tracer_.now();
  const int slot = front_layout_.slot(group_, stage.index());
  const uint64_t payload = front_layout_.result.payload(slot);
  int sampled = 0;
  for (const SequenceCommand& c : stage.commands) {
    if (c.sample == 0) continue;
    ResultEntry entry{};
    entry.sequence = c.sequence;
    entry.logits_row = c.logits_row;
    compute_->sample(stage.work, sampled, c, &entry);
    port_->put(kFrontDevice, payload + front_layout_.entries_at + sz(sampled) * sizeof(entry),
               &entry, sizeof(entry));
    if (c.logits_row >= 0) {
      CHECK(c.logits_row < geometry_.logits_rows);
      const Payload row = compute_->row_logits();
      port_->put(kFrontDevice, payload + front_layout_.logits_at + sz(c.logits_row) * row.size(),
                 row.data(), row.size());
    }
    ++sampled;
  }
  stage.times.attention_ns += (tracer_.now() - begin).ns;
  trace(stage, TraceOp::head, begin);
  finish(stage, sampled);
}

// Rank 0 only. The flag follows everything that was put before.
void AttentionAgent::finish(Stage& stage, int samples) {
  const int slot = front_layout_.slot(group_, stage.index());
  const ResultHeader header{kResultMagic, static_cast<uint32_t>(epoch_), stage.batch, samples, 0,
                            stage.times};
  port_->put(kFrontDevice, front_layout_.result.payload(slot), &header, sizeof(header));
  port_->put_flag(kFrontDevice, front_layout_.result.flag(slot), make_flag(epoch_, stage.batch));
  park(stage, Phase::idle);
}

std::string AttentionAgent::waiting_for() const {
  static constexpr const char* kWhat[] = {"",
                                          "latents of the group",
                                          "selections of the group",
                                          "partial sums of the group",
                                          "a region at the expert ranks",
                                          "all groups before the dispatch",
                                          "answers of the expert ranks",
                                          "all groups after the combine",
                                          "last rows of the group",
                                          "logits of the group"};
  std::string out;
  for (const auto& stage : stages_) {
    if (stage->phase == Phase::idle) continue;
    out += fmt::format("{}stage {} batch {} layer {} waits for {}", out.empty() ? "" : "; ",
                       stage->index(), stage->batch, stage->work.layer,
                       kWhat[static_cast<size_t>(stage->phase)]);
  }
  return out;
}

}  // namespace asap
