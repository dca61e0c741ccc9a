#include "asap/runtime/layer_rig.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "asap/base/check.h"
#include "asap/runtime/memory_plan.h"
#include "asap/runtime/placement.h"

namespace asap {

namespace {

constexpr uint64_t kEpoch = 1;
constexpr uint32_t kEventsPerLayer = 64;  // of an agent: more than it has
constexpr int kRings = 4;

template <typename T>
void append(std::vector<std::byte>& out, const T& value) {
  out.resize(out.size() + sizeof(value));
  std::memcpy(out.data() + out.size() - sizeof(value), &value, sizeof(value));
}

EngineConfig rig_config(const LayerRig::Options& options) {
  EngineConfig config = options.config;
  config.data_parallel_size = config.tensor_parallel_size = config.stages = 1;
  config.scheduler = "asap";
  config.max_num_batched_tokens = options.max_tokens;
  config.max_num_seqs = options.max_sequences;
  config.max_model_len = std::max(options.max_tokens, options.max_context);
  // Every sequence starts a block of its own.
  config.kv_cache_tokens =
      options.max_tokens + options.max_context + (options.max_sequences + 1) * kKvBlock;
  return config;
}

}  // namespace

Result<std::unique_ptr<LayerRig>> LayerRig::open(const Options& options, const Platform& platform) {
  EngineConfig config = rig_config(options);
  ASAP_ASSIGN(const ModelSpec spec, load_spec(source_of(config)));
  ASAP_TRY(resolve_isa(spec, &config));
  ASAP_ASSIGN(const EnginePlan plan, make_plan(config, spec, Topology::system().cores()));
  std::unique_ptr<LayerRig> rig(new LayerRig(config, options.clock, plan, spec, platform));
  ASAP_TRY(rig->connect(platform));
  ASAP_TRY(rig->load(options));
  return rig;
}

LayerRig::LayerRig(const EngineConfig& config, Clock clock, const EnginePlan& plan,
                   const ModelSpec& spec, const Platform& platform)
    : config_(config),
      clock_(clock),
      spec_(spec),
      plan_(plan),
      layout_(plan.geometry),
      expert_layout_(plan.geometry),
      front_layout_(plan.geometry),
      team_(std::make_unique<Team>(plan.threads)),
      ops_(platform.make_ops(config_.ops, config_.isa, *team_)) {
  ops_->reserve(spec_, plan_.limits);
  const auto events = kEventsPerLayer * static_cast<uint32_t>(spec_.layers + 1);
  for (int i = 0; i < kRings; ++i) {
    rings_.push_back(TraceRing::create(ring_memory_.allocate(TraceRing::bytes(events)), events));
  }
}

LayerRig::~LayerRig() = default;

Status LayerRig::connect(const Platform& platform) {
  const Geometry& g = plan_.geometry;
  ASAP_ASSIGN(windows_, Windows::open(g, platform));
  front_ = windows_.link().attach(kFrontDevice);
  for (int e = 1; e < g.expert_ranks; ++e)
    others_.push_back(windows_.link().attach(expert_device(g, e)));
  answered_.assign(others_.size(), 0);
  return {};
}

Status LayerRig::load(const Options& options) {
  const Geometry& g = plan_.geometry;
  ASAP_ASSIGN(const OpenWeights weights, open_weights(source_of(config_), spec_));
  MemoryPlan memory = memory_plan(config_, spec_, plan_, kept_type(config_, spec_, &weights.views));
  memory.expert_ranks = 1;  // the others only answer
  ASAP_TRY(check_memory(memory, machine_memory()));
  const auto progress = [&, done = 0](int) mutable {
    weights.checkpoint.release();
    if (options.progress) options.progress(++done, 2 * spec_.layers);
  };
  const Tracer tracer{rings_[0], clock_};
  auto rows = std::make_unique<AttentionRows>(
      g, 0, load_attention_weights(spec_, weights.checkpoint, weights.views, 0, 1, *ops_, progress),
      plan_.kv_blocks, *ops_);
  attention_ = std::make_unique<AttentionAgent>(
      g, spec_, 0, 0, std::move(rows), windows_.link().attach(attention_device(g, 0, 0)), tracer);
  const Tracer tracers[] = {{rings_[1], clock_}, {rings_[2], clock_}, {rings_[3], clock_}};
  auto experts =
      std::make_unique<ExpertRows>(g,
                                   load_expert_weights(spec_, weights.checkpoint, weights.views, 0,
                                                       g.expert_ranks, *ops_, progress),
                                   *ops_);
  experts_ =
      std::make_unique<ExpertRank>(g, 0, std::move(experts), windows_.link(), plan_.queue, tracers);
  return {};
}

void LayerRig::send_command(std::span<const RigSequence> sequences) {
  const Geometry& g = plan_.geometry;
  ++batch_;
  BatchCommand command{kCommandMagic, kEpoch, batch_, 0, 0, 0, 0, 0, 0, batch_};
  std::vector<int32_t> blocks;
  for (const RigSequence& s : sequences) {
    const int count = (s.past + s.tokens + kKvBlock - 1) / kKvBlock;
    for (int i = 0; i < count; ++i) blocks.push_back(static_cast<int32_t>(blocks.size()));
    command.tokens += s.tokens;
    ++command.sequences;
    ++command.samples;
  }
  command.blocks = static_cast<int32_t>(blocks.size());
  CHECK(command.sequences <= g.max_batch_seqs && command.tokens <= g.max_batch_tokens &&
            command.blocks <= plan_.kv_blocks,
        "a batch of {} sequences, {} tokens and {} blocks; the rig has {}, {} and {}",
        command.sequences, command.tokens, command.blocks, g.max_batch_seqs, g.max_batch_tokens,
        plan_.kv_blocks);
  command_.clear();
  append(command_, command);
  for (const RigSequence& s : sequences) {
    SequenceCommand c{};
    c.sequence = batch_;
    c.past = s.past;
    c.tokens = s.tokens;
    c.prompt = s.past + s.tokens;
    c.blocks = (s.past + s.tokens + kKvBlock - 1) / kKvBlock;
    c.sample = 1;
    c.logprobs = -1;
    c.logits_row = -1;
    c.follows = -1;
    c.top_p = 1;
    c.repetition_penalty = 1;
    append(command_, c);
  }
  for (const int32_t block : blocks) append(command_, block);
  for (int i = 0; i < command.tokens; ++i) {
    append(command_, static_cast<int32_t>(prng_.below(static_cast<uint64_t>(g.vocab))));
  }
  const int device = attention_device(g, 0, 0);
  front_->put(device, layout_.command.payload(0), command_.data(), command_.size());
  front_->put_flag(device, layout_.command.flag(0), make_flag(kEpoch, batch_));
}

// Seconds of one turn; none if nothing was ready.
double LayerRig::step(Agent& agent) {
  const Instant begin = clock_();
  if (agent.do_work(begin) == 0) return 0;
  return (clock_() - begin).to_seconds();
}

// What is in the answers does not matter: they are as long as real ones.
void LayerRig::answer_for_others() {
  const Geometry& g = plan_.geometry;
  for (size_t i = 0; i < others_.size(); ++i) {
    const std::byte* window = others_[i]->window();
    const uint64_t next = answered_[i] + 1;
    if (load_flag(window + expert_layout_.dispatch.flag(0)) != make_flag(kEpoch, next)) continue;
    const auto& header =
        *reinterpret_cast<const DispatchHeader*>(window + expert_layout_.dispatch.payload(0));
    const ItemId item{.layer = header.layer, .epoch = kEpoch, .seq = next, .trace_id = batch_};
    combine_finish(*others_[i], g, layout_, item, 0, static_cast<int>(i) + 1, header.tokens);
    answered_[i] = next;
  }
}

// Spans of this batch; what is a part of the attention agent's turns, but not of attention, is
// taken off.
void LayerRig::add_events(LayerTimes* times) const {
  double dense = 0;
  for (const TraceRing* ring : rings_) {
    for (const TraceEvent& event : ring->snapshot()) {
      if (event.batch != batch_) continue;
      const double seconds = 1e-9 * static_cast<double>(event.end_ns - event.begin_ns);
      switch (event.op) {
        case TraceOp::dispatch: times->dispatch += seconds; break;
        case TraceOp::combine: times->add += seconds; break;
        case TraceOp::embed:
        case TraceOp::head: times->batch += seconds; break;
        case TraceOp::dense: dense += seconds; break;
        case TraceOp::receive: times->receive += seconds; break;
        case TraceOp::experts: times->experts += seconds; break;
        case TraceOp::combine_send: times->combine += seconds; break;
        default: break;
      }
    }
  }
  times->attention -= times->dispatch + times->add + times->batch + dense;
}

std::map<std::string_view, double> LayerRig::op_seconds() const {
  std::map<std::string_view, double> out;
  for (const TraceRing* ring : rings_) {
    for (const TraceEvent& event : ring->snapshot()) {
      if (event.batch != batch_) continue;
      out[trace_op_name(event.op)] += 1e-9 * static_cast<double>(event.end_ns - event.begin_ns);
    }
  }
  return out;
}

LayerTimes LayerRig::run(std::span<const RigSequence> sequences) {
  send_command(sequences);
  LayerTimes times;
  const uint64_t flag = make_flag(kEpoch, batch_);
  const std::byte* result = front_->window() + front_layout_.result.flag(0);
  while (load_flag(result) != flag) {
    times.attention += step(*attention_);
    for (Agent* agent : {&experts_->receive(), &experts_->compute(), &experts_->send()}) {
      step(*agent);
    }
    answer_for_others();
  }
  add_events(&times);
  const auto moe_layers = static_cast<double>(spec_.moe_layers());
  times.attention /= spec_.layers;
  for (double* seconds :
       {&times.dispatch, &times.receive, &times.experts, &times.combine, &times.add}) {
    *seconds /= moe_layers;
  }
  // The last item still lies in the window of expert rank 0.
  const std::byte* item = windows_.link().attach(expert_device(plan_.geometry, 0))->window() +
                          expert_layout_.dispatch.payload(0);
  const auto& header = *reinterpret_cast<const DispatchHeader*>(item);
  times.expert_rows = header.rows;
  times.expert_tokens = header.tokens;
  const auto* counts = reinterpret_cast<const int32_t*>(item + expert_layout_.counts_at);
  const int half = std::accumulate(counts, counts + plan_.geometry.local_experts() / 2, 0);
  if (header.rows > 0) times.half_share = static_cast<double>(half) / header.rows;
  return times;
}

}  // namespace asap
