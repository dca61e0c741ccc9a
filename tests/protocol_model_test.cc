// The flag protocol between attention and expert ranks, explored exhaustively: every reachable
// state of a small instance, under a memory that may delay whatever one device writes into another.
//
// What the model keeps of the system (wire/layout.h, runtime/attention.h, runtime/expert.h):
//   - Attention rank t sends its row of an item to every expert rank: payload, then flag. It
//   consumes
//     the answers of all of them, then goes on with the next layer, on the same buffers. It handles
//     one stage at a time, the stages in any order.
//   - Expert rank e accepts an item once all T flags show the expected seq, computes on the rows
//   where
//     they lie, and answers each rank: payload, then flag. It answers one item at a time, items in
//     any order.
//   - Memory: writes of one device to one slot land in order, at any later time; a flag never lands
//     before its payload. Nothing orders different slots.
//   - An expert rank may die. What it had written and had not landed is lost. Its successor finds
//   the
//     windows as they are: it takes an item that is announced for answered if all its answers stand
//     in the ranks' windows, else it serves it and writes the answers that are missing.
//   - A group may die, with what it had written and had not landed. Its successor has the next
//   epoch
//     and begins anew, once every expert rank has acknowledged that epoch, which it does when it
//     holds no item of the group. Flags of earlier epochs mean nothing to it, or to an expert rank
//     that has acknowledged.
//
// Checked in every state: a row is not overwritten before its answer was sent, an answer not before
// it was consumed; what a flag announces is there and is of the expected seq (and with it, layer);
// each item gets exactly one answer, also if it is empty; somebody can always go on, until all is
// done. Ranks of a group are kept in step by their exchanges in the system, but not here while
// nobody dies: the protocol must not need it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "asap/base/check.h"
#include "asap/base/prng.h"

namespace asap {
namespace {

enum class Fault {
  none,
  flag_before_payload,  // a flag may land before its payload
  reused_early,         // a rank sends the next layer before it has the answers of this one
  empty_unanswered,     // experts drop items without tokens
  out_of_step,          // a rank sends the next item before its group has consumed this one
  forgotten_items,      // an expert's successor takes for answered all that was announced
  unfenced_group,       // a group's successor does not wait for acknowledgements
};

struct Shape {
  int groups, stages, ranks, experts, layers;
  int batches = 1;
  int deaths = 0;                                 // of groups and expert ranks, at most
  int steps() const { return layers * batches; }  // items of a stage per expert rank
};

// Counters of one stage of a group. Seq s is the s-th item, from 1; what a slot holds is a stamp,
// which names its epoch too, and of which later epochs have the larger ones.
constexpr int kMaxCounters = 64;
using State = std::array<uint8_t, kMaxCounters>;  // stage after stage; then the deaths so far
constexpr int kDeaths = kMaxCounters - 1;
constexpr int kEpochStamps = 32;

constexpr int stamp(int epoch, int seq) {
  return epoch * kEpochStamps + seq;
}
// The next one to land in a slot that holds `landed`, where `epoch` has sent `sent` in all; 0:
// none.
constexpr int next_stamp(int landed, int epoch, int sent) {
  const int next = std::max(landed, stamp(epoch, 0)) + 1;
  return next <= stamp(epoch, sent) ? next : 0;
}

class Model {
 public:
  Model(const Shape& shape, Fault fault) : shape_(shape), fault_(fault) {
    CHECK(machines() * stage_counters() <= kDeaths);
    CHECK(shape.steps() * std::max(shape.ranks, shape.experts) <= UINT8_MAX);
    CHECK(shape.steps() < kEpochStamps && stamp(shape.deaths + 1, 0) <= UINT8_MAX);
  }

  int stage_counters() const { return 2 * shape_.ranks + 4 * slots() + 4 * shape_.experts + 2; }

  // Calls visit(next state, action, a, b) for everything that can happen in `state`.
  template <typename Visit>
  void expand(const State& state, const Visit& visit);
  bool complete(const State& state) const;
  // Equal for states that differ only in the names of stages and groups.
  State canonical(const State& state) const;
  // "" while all is well.
  const std::string& violation() const { return violation_; }

 private:
  int machines() const { return shape_.groups * shape_.stages; }
  int slots() const { return shape_.ranks * shape_.experts; }
  int slot(int t, int e) const { return t * shape_.experts + e; }

  // Offsets in a stage's counters.
  int consumed(int t) const { return t; }             // items whose answers rank t consumed
  int sent(int t) const { return shape_.ranks + t; }  // rows sent, expert after expert
  // Stamp of the payload that landed in slot i.
  int row(int i) const { return 2 * shape_.ranks + i; }
  int row_flag(int i) const { return row(slots()) + i; }
  int part(int i) const { return row_flag(slots()) + i; }  // of the answer that landed in slot i
  int part_flag(int i) const { return part(slots()) + i; }
  int accepted(int e) const { return part_flag(slots()) + e; }
  int computed(int e) const { return accepted(shape_.experts) + e; }
  int answered(int e) const { return computed(shape_.experts) + e; }  // answers, rank after rank
  // The epoch of the group from which expert rank e takes items; its own counters are of that
  // epoch.
  int view(int e) const { return answered(shape_.experts) + e; }
  int epoch() const { return view(shape_.experts); }  // of the group; of its ranks' counters
  int down() const { return epoch() + 1; }  // 1: the group died, its successor waits for all views

  // Rows that rank t has sent to e; answers that e has sent to t.
  int sent_to(const uint8_t* m, int t, int e) const {
    return (m[sent(t)] + shape_.experts - 1 - e) / shape_.experts;
  }
  int answered_to(const uint8_t* m, int e, int t) const {
    return (m[answered(e)] + shape_.ranks - 1 - t) / shape_.ranks;
  }
  // Some items have tokens of all ranks, some of none.
  bool empty(int e, int seq) const { return mix(static_cast<uint64_t>(e * 64 + seq)) % 2 == 0; }

  bool may_send(const State& state, int machine, int t) const;
  bool all_flags(const uint8_t* m, int e, int seq) const;
  bool may_answer(const State& state, int machine, int e) const;
  bool may_consume(const uint8_t* m, int t) const;
  template <typename Step>
  void rank_actions(const State& state, int machine, const Step& step);
  template <typename Step>
  void expert_actions(const State& state, int machine, const Step& step);
  template <typename Step>
  void memory_actions(const uint8_t* m, const Step& step);
  template <typename Visit>
  void group_deaths(const State& state, const Visit& visit);
  template <typename Visit>
  void expert_deaths(const State& state, const Visit& visit);
  void succeed(uint8_t* m, int e) const;
  bool holds_nothing(const State& state, int group, int e) const;
  uint8_t* machine_of(State& state, int machine) const {
    return state.data() + machine * stage_counters();
  }

  void require(bool good, const char* what, int seq) {
    if (!good && violation_.empty()) violation_ = fmt::format("{} (seq {})", what, seq);
  }

  const Shape shape_;
  const Fault fault_;
  std::string violation_;
};

// A rank sends to all experts before it turns to another stage of its group.
bool Model::may_send(const State& state, int machine, int t) const {
  const uint8_t* m = state.data() + machine * stage_counters();
  if (m[down()] != 0) return false;
  // The exchanges of a group keep its ranks in step. Recovery needs that, nothing else does.
  for (int peer = 0; shape_.deaths > 0 && fault_ != Fault::out_of_step && peer < shape_.ranks;
       ++peer) {
    if (m[sent(t)] >= (m[consumed(peer)] + 1) * shape_.experts) return false;
  }
  const int ahead = fault_ == Fault::reused_early ? 2 : 1;
  const int allowed = std::min(m[consumed(t)] + ahead, shape_.steps()) * shape_.experts;
  if (m[sent(t)] >= allowed) return false;
  const int first = machine / shape_.stages * shape_.stages;
  for (int other = first; other < first + shape_.stages; ++other) {
    const uint8_t* o = state.data() + other * stage_counters();
    if (other != machine && o[sent(t)] % shape_.experts != 0) return false;
  }
  return true;
}

bool Model::all_flags(const uint8_t* m, int e, int seq) const {
  for (int t = 0; t < shape_.ranks; ++t) {
    if (m[row_flag(slot(t, e))] != stamp(m[view(e)], seq)) return false;
  }
  return true;
}

// The send agent of an expert rank finishes an item before it takes the next.
bool Model::may_answer(const State& state, int machine, int e) const {
  const uint8_t* m = state.data() + machine * stage_counters();
  if (m[answered(e)] >= m[computed(e)] * shape_.ranks) return false;
  for (int other = 0; other < machines(); ++other) {
    const uint8_t* o = state.data() + other * stage_counters();
    if (other != machine && o[answered(e)] % shape_.ranks != 0) return false;
  }
  return true;
}

bool Model::may_consume(const uint8_t* m, int t) const {
  if (m[consumed(t)] == shape_.steps() || m[down()] != 0) return false;
  for (int e = 0; e < shape_.experts; ++e) {
    if (m[part_flag(slot(t, e))] != stamp(m[epoch()], m[consumed(t)] + 1)) return false;
  }
  return true;
}

template <typename Step>
void Model::rank_actions(const State& state, int machine, const Step& step) {
  const uint8_t* m = state.data() + machine * stage_counters();
  for (int t = 0; t < shape_.ranks; ++t) {
    if (may_send(state, machine, t)) {
      step(sent(t), m[sent(t)] + 1, "rank sends", t, m[sent(t)] % shape_.experts);
    }
    if (!may_consume(m, t)) continue;
    const int seq = m[consumed(t)] + 1;
    for (int e = 0; e < shape_.experts; ++e) {
      require(m[part(slot(t, e))] == stamp(m[epoch()], seq),
              "a flag announced an answer that is not there", seq);
    }
    step(consumed(t), seq, "rank consumes", t, seq);
  }
}

template <typename Step>
void Model::expert_actions(const State& state, int machine, const Step& step) {
  const uint8_t* m = state.data() + machine * stage_counters();
  for (int e = 0; e < shape_.experts; ++e) {
    const bool holds = m[answered(e)] != m[accepted(e)] * shape_.ranks;
    if (!holds && all_flags(m, e, m[accepted(e)] + 1)) {
      const int seq = m[accepted(e)] + 1;
      for (int t = 0; t < shape_.ranks; ++t) {
        require(m[row(slot(t, e))] == stamp(m[view(e)], seq),
                "a flag announced a row that is not there", seq);
      }
      step(accepted(e), seq, "expert accepts", e, seq);
    }
    const bool dropped = fault_ == Fault::empty_unanswered && empty(e, m[computed(e)] + 1);
    if (m[computed(e)] < m[accepted(e)] && !dropped) {
      const int seq = m[computed(e)] + 1;
      for (int t = 0; t < shape_.ranks; ++t) {
        require(m[row(slot(t, e))] == stamp(m[view(e)], seq),
                "a row changed before it was computed", seq);
      }
      step(computed(e), seq, "expert computes", e, seq);
    }
    if (may_answer(state, machine, e)) {
      step(answered(e), m[answered(e)] + 1, "expert answers", e, m[answered(e)] % shape_.ranks);
    }
  }
}

// What was written becomes visible.
template <typename Step>
void Model::memory_actions(const uint8_t* m, const Step& step) {
  const bool any_order = fault_ == Fault::flag_before_payload;
  for (int t = 0; t < shape_.ranks; ++t) {
    for (int e = 0; e < shape_.experts; ++e) {
      const int i = slot(t, e);
      const int rows = sent_to(m, t, e);
      const int parts = answered_to(m, e, t);
      if (const int next = next_stamp(m[row(i)], m[epoch()], rows)) {
        if (m[view(e)] == m[epoch()]) {
          require(stamp(m[view(e)], parts) >= m[row(i)] || m[part_flag(i)] >= m[row(i)],
                  "a row was overwritten before its answer was sent", m[row(i)] % kEpochStamps);
        } else {
          require(m[answered(e)] == m[accepted(e)] * shape_.ranks,
                  "a row was overwritten while an item of an earlier epoch was served",
                  m[accepted(e)]);
        }
        step(row(i), next, "row lands", t, e);
      }
      const int row_next = next_stamp(m[row_flag(i)], m[epoch()], rows);
      if (row_next != 0 && (any_order || row_next <= m[row(i)])) {
        step(row_flag(i), row_next, "row's flag lands", t, e);
      }
      if (const int next = next_stamp(m[part(i)], m[view(e)], parts)) {
        require(m[view(e)] != m[epoch()] || stamp(m[epoch()], m[consumed(t)]) >= m[part(i)],
                "an answer was overwritten before it was consumed", m[part(i)] % kEpochStamps);
        step(part(i), next, "answer lands", e, t);
      }
      const int part_next = next_stamp(m[part_flag(i)], m[view(e)], parts);
      if (part_next != 0 && (any_order || part_next <= m[part(i)])) {
        step(part_flag(i), part_next, "answer's flag lands", e, t);
      }
    }
  }
}

bool Model::holds_nothing(const State& state, int group, int e) const {
  for (int machine = group * shape_.stages; machine < (group + 1) * shape_.stages; ++machine) {
    const uint8_t* m = state.data() + machine * stage_counters();
    if (m[answered(e)] != m[accepted(e)] * shape_.ranks) return false;
  }
  return true;
}

// A group dies, is acknowledged by an expert rank, begins anew.
template <typename Visit>
void Model::group_deaths(const State& state, const Visit& visit) {
  for (int group = 0; group < shape_.groups; ++group) {
    const int first = group * shape_.stages;
    const auto change = [&](const char* action, int deaths, int e, const auto& each) {
      State next = state;
      for (int machine = first; machine < first + shape_.stages; ++machine) {
        each(machine_of(next, machine));
      }
      next[kDeaths] = static_cast<uint8_t>(next[kDeaths] + deaths);
      visit(next, action, group, e);
    };
    const uint8_t* m = state.data() + first * stage_counters();
    if (state[kDeaths] < shape_.deaths) {
      change("group dies", 1, 0, [&](uint8_t* stage) {
        for (int t = 0; t < shape_.ranks; ++t) stage[consumed(t)] = stage[sent(t)] = 0;
        ++stage[epoch()];
        stage[down()] = fault_ == Fault::unfenced_group ? 0 : 1;
      });
    }
    bool all = true;
    for (int e = 0; e < shape_.experts; ++e) {
      all = all && m[view(e)] == m[epoch()];
      if (m[view(e)] == m[epoch()] || !holds_nothing(state, group, e)) continue;
      // What it has answered is there by the time that the successor begins.
      change("acknowledged by expert", 0, e, [&](uint8_t* stage) {
        for (int t = 0; t < shape_.ranks; ++t) {
          const int last = stamp(stage[view(e)], answered_to(stage, e, t));
          uint8_t& payload = stage[part(slot(t, e))];
          uint8_t& flag = stage[part_flag(slot(t, e))];
          payload = static_cast<uint8_t>(std::max<int>(payload, last));
          flag = static_cast<uint8_t>(std::max<int>(flag, last));
        }
        stage[view(e)] = stage[epoch()];
        stage[accepted(e)] = stage[computed(e)] = stage[answered(e)] = 0;
      });
    }
    if (m[down()] != 0 && all)
      change("successors of group", 0, 0, [&](uint8_t* stage) { stage[down()] = 0; });
  }
}

// What the successor of expert rank e makes of one stage's windows.
void Model::succeed(uint8_t* m, int e) const {
  int least = UINT8_MAX;
  int most = 0;
  for (int t = 0; t < shape_.ranks; ++t) {
    uint8_t& flag = m[part_flag(slot(t, e))];
    m[part(slot(t, e))] = flag;  // more may have landed, but nothing says so
    least = std::min<int>(least, flag);
    most = std::max<int>(most, m[row_flag(slot(t, e))]);
  }
  if (fault_ == Fault::forgotten_items && most > least) {
    least = most;
    for (int t = 0; t < shape_.ranks; ++t) {  // nothing more lands in this epoch
      const int end = stamp(m[view(e)], kEpochStamps - 1);
      m[part(slot(t, e))] = m[part_flag(slot(t, e))] = static_cast<uint8_t>(end);
    }
  }
  const int done = std::max(0, least - stamp(m[view(e)], 0));
  m[accepted(e)] = m[computed(e)] = static_cast<uint8_t>(done);
  m[answered(e)] = static_cast<uint8_t>(done * shape_.ranks);
}

template <typename Visit>
void Model::expert_deaths(const State& state, const Visit& visit) {
  if (state[kDeaths] == shape_.deaths) return;
  for (int e = 0; e < shape_.experts; ++e) {
    State next = state;
    for (int machine = 0; machine < machines(); ++machine) succeed(machine_of(next, machine), e);
    ++next[kDeaths];
    visit(next, "expert dies", e, 0);
  }
}

template <typename Visit>
void Model::expand(const State& state, const Visit& visit) {
  group_deaths(state, visit);
  expert_deaths(state, visit);
  for (int machine = 0; machine < machines(); ++machine) {
    const int base = machine * stage_counters();
    const auto step = [&](int counter, int value, const char* action, int a, int b) {
      State next = state;
      next[static_cast<size_t>(base + counter)] = static_cast<uint8_t>(value);
      visit(next, action, a, b);
    };
    rank_actions(state, machine, step);
    expert_actions(state, machine, step);
    memory_actions(state.data() + base, step);
  }
}

bool Model::complete(const State& state) const {
  for (int machine = 0; machine < machines(); ++machine) {
    const uint8_t* m = state.data() + machine * stage_counters();
    for (int t = 0; t < shape_.ranks; ++t) {
      if (m[consumed(t)] != shape_.steps()) return false;
    }
    for (int e = 0; e < shape_.experts; ++e) {
      if (m[answered(e)] != shape_.steps() * shape_.ranks) return false;  // one per item and rank
    }
  }
  return true;
}

// Sorts `count` blocks of `bytes` each.
void sort_blocks(uint8_t* blocks, int count, int bytes) {
  for (int i = 1; i < count; ++i) {
    for (int j = i; j > 0; --j) {
      uint8_t* a = blocks + (j - 1) * bytes;
      if (std::memcmp(a, a + bytes, static_cast<size_t>(bytes)) <= 0) break;
      std::swap_ranges(a, a + bytes, a + bytes);
    }
  }
}

State Model::canonical(const State& state) const {
  State out = state;
  const int group_bytes = shape_.stages * stage_counters();
  for (int g = 0; g < shape_.groups; ++g) {
    sort_blocks(out.data() + g * group_bytes, shape_.stages, stage_counters());
  }
  sort_blocks(out.data(), shape_.groups, group_bytes);
  return out;
}

// All states seen, in the order of discovery: the queue of the breadth-first search, too.
class Seen {
 public:
  Seen() : table_(1u << 16, kNone) {}

  // False if it was there.
  bool insert(const State& state) {
    if (states_.size() * 2 >= table_.size()) grow();
    uint32_t& place = find(state);
    if (place != kNone) return false;
    place = static_cast<uint32_t>(states_.size());
    states_.push_back(state);
    return true;
  }
  size_t size() const { return states_.size(); }
  const State& at(size_t i) const { return states_[i]; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t& find(const State& state) {
    uint64_t hash = 0;
    for (size_t i = 0; i < state.size(); i += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, state.data() + i, sizeof(word));
      hash = mix(hash ^ word);
    }
    size_t at = hash & (table_.size() - 1);
    while (table_[at] != kNone && states_[table_[at]] != state) at = (at + 1) & (table_.size() - 1);
    return table_[at];
  }
  void grow() {
    table_.assign(table_.size() * 2, kNone);
    for (size_t i = 0; i < states_.size(); ++i) find(states_[i]) = static_cast<uint32_t>(i);
  }

  std::vector<State> states_;
  std::vector<uint32_t> table_;  // indices into states_
};

struct Outcome {
  size_t states = 0;
  size_t depth = 0;              // actions of the longest way
  int completions = 0;           // states in which all is done
  std::string violation;         // "" if there is none
  std::vector<std::string> way;  // shortest sequence of actions to the violation
};

struct Origin {
  uint32_t from;
  const char* action;
  int8_t a, b;
};

std::vector<std::string> way_to(const std::vector<Origin>& origins, size_t state) {
  std::vector<std::string> way;
  for (size_t i = state; i != 0; i = origins[i].from) {
    way.push_back(fmt::format("{} {} {}", origins[i].action, origins[i].a, origins[i].b));
  }
  std::reverse(way.begin(), way.end());
  return way;
}

Outcome explore(const Shape& shape, Fault fault) {
  Model model(shape, fault);
  Seen seen;
  std::vector<Origin> origins{{0, "", 0, 0}};
  seen.insert(State{});
  Outcome outcome;
  size_t level_end = 1;
  for (size_t i = 0; i < seen.size() && outcome.violation.empty(); ++i) {
    if (i == level_end) {
      ++outcome.depth;
      level_end = seen.size();
    }
    const State state = seen.at(i);
    bool stuck = true;
    model.expand(state, [&](const State& next, const char* action, int a, int b) {
      stuck = false;
      if (!seen.insert(model.canonical(next))) return;
      origins.push_back(
          {static_cast<uint32_t>(i), action, static_cast<int8_t>(a), static_cast<int8_t>(b)});
    });
    outcome.violation = model.violation();
    if (stuck && model.complete(state)) ++outcome.completions;
    if (stuck && !model.complete(state)) outcome.violation = "nobody can go on";
    if (!outcome.violation.empty()) outcome.way = way_to(origins, i);
  }
  outcome.states = seen.size();
  return outcome;
}

std::string name_of(const Shape& s) {
  return fmt::format("D={} R={} T={} E={} L={} batches={}", s.groups, s.stages, s.ranks, s.experts,
                     s.layers, s.batches);
}

const std::vector<Shape> kShapes = {
    {1, 1, 1, 1, 3, 2}, {2, 1, 1, 1, 3, 2}, {1, 1, 2, 1, 3}, {1, 1, 1, 3, 2}, {2, 1, 1, 2, 2},
    {1, 2, 1, 2, 2},    {1, 2, 2, 1, 2},    {2, 1, 2, 1, 2}, {1, 3, 1, 1, 2}, {2, 2, 1, 1, 2},
    {1, 1, 2, 2, 3},    {1, 2, 2, 2, 2},    {2, 1, 2, 2, 2}, {1, 1, 3, 2, 2},
};

TEST(ProtocolModelTest, HoldsInEveryState) {
  size_t total = 0;
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(name_of(shape));
    const Outcome outcome = explore(shape, Fault::none);
    fmt::print("{}: {} states, {} actions deep\n", name_of(shape), outcome.states, outcome.depth);
    EXPECT_EQ(outcome.violation, "") << fmt::format("{}", fmt::join(outcome.way, "\n"));
    EXPECT_EQ(outcome.completions, 1);
    total += outcome.states;
  }
  fmt::print("{} states in all\n", total);
}

// The shortest way to the violation, for a protocol with `fault`.
Outcome caught(const Shape& shape, Fault fault) {
  Outcome outcome = explore(shape, fault);
  fmt::print("{}: \"{}\" after {} states, by:\n  {}\n", name_of(shape), outcome.violation,
             outcome.states, fmt::join(outcome.way, "\n  "));
  return outcome;
}

std::string name_with_deaths(const Shape& s) {
  return fmt::format("{} deaths={}", name_of(s), s.deaths);
}

const std::vector<Shape> kMortalShapes = {
    {1, 1, 1, 1, 3, 1, 2}, {1, 1, 2, 1, 2, 1, 2}, {1, 1, 1, 2, 2, 1, 2}, {2, 1, 1, 1, 2, 1, 2},
    {1, 2, 1, 1, 2, 1, 2}, {1, 1, 2, 2, 2, 1, 1}, {1, 2, 2, 1, 1, 1, 1}, {2, 1, 1, 2, 1, 1, 1},
};

TEST(ProtocolModelTest, HoldsWhoeverDies) {
  size_t total = 0;
  for (const Shape& shape : kMortalShapes) {
    SCOPED_TRACE(name_with_deaths(shape));
    const Outcome outcome = explore(shape, Fault::none);
    fmt::print("{}: {} states, {} actions deep\n", name_with_deaths(shape), outcome.states,
               outcome.depth);
    EXPECT_EQ(outcome.violation, "") << fmt::format("{}", fmt::join(outcome.way, "\n"));
    EXPECT_GE(outcome.completions, 1);
    total += outcome.states;
  }
  fmt::print("{} states in all\n", total);
}

TEST(ProtocolModelTest, CatchesASuccessorThatForgetsItems) {
  for (const Shape& shape : kMortalShapes) {
    EXPECT_NE(explore(shape, Fault::forgotten_items).violation, "") << name_with_deaths(shape);
  }
}

TEST(ProtocolModelTest, CatchesRanksOutOfStep) {
  for (const Shape& shape : kMortalShapes) {
    if (shape.ranks == 1 || shape.steps() == 1) continue;
    EXPECT_NE(explore(shape, Fault::out_of_step).violation, "") << name_with_deaths(shape);
  }
}

TEST(ProtocolModelTest, CatchesAGroupThatIsNotFenced) {
  for (const Shape& shape : kMortalShapes) {
    EXPECT_NE(explore(shape, Fault::unfenced_group).violation, "") << name_with_deaths(shape);
  }
}

TEST(ProtocolModelTest, CatchesAFlagBeforeItsPayload) {
  for (const Shape& shape : kShapes) {
    const Outcome outcome = caught(shape, Fault::flag_before_payload);
    EXPECT_EQ(outcome.violation, "a flag announced a row that is not there (seq 1)");
  }
}

TEST(ProtocolModelTest, CatchesARegionReusedEarly) {
  for (const Shape& shape : kShapes) {
    if (shape.steps() == 1) continue;  // there is no next layer
    const Outcome outcome = caught(shape, Fault::reused_early);
    EXPECT_EQ(outcome.violation, "a row was overwritten before its answer was sent (seq 1)");
  }
}

TEST(ProtocolModelTest, CatchesUnansweredEmptyItems) {
  const Outcome outcome = caught({2, 1, 1, 1, 3, 2}, Fault::empty_unanswered);
  EXPECT_EQ(outcome.violation, "nobody can go on");
  EXPECT_EQ(caught({1, 2, 2, 1, 2}, Fault::empty_unanswered).violation, "nobody can go on");
}

}  // namespace
}  // namespace asap
