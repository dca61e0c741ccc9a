// What the tests of attention and indexer share: prompts, a paged cache full of poison, and a
// driver that plays any schedule of pieces of prompts through one op.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "asap/compute/ops_test_util.h"

namespace asap::optest {

// The inputs of one sequence at one layer.
struct Prompt {
  int length = 0;
  int prompt = 0;                 // see Sequence::prompt
  std::vector<float> q;           // [length, q_width]
  std::vector<float> kv;          // [length, kv_width], representable in the cache's dtype
  std::vector<int32_t> selected;  // [length, topk], or empty
};

struct Widths {
  int q, kv, out;
  int topk = 0;
};

// Rows [past, past + n) of prompt `index`.
struct Piece {
  int index, past, n;
};
using Call = std::vector<Piece>;
using Schedule = std::vector<Call>;

// A paged cache whose blocks are handed out in random order. Slots never written hold NaN, so an op
// that lets one of them touch a result is found out.
class PagedCache {
 public:
  PagedCache(DType dtype, int width, const std::vector<Prompt>& prompts, uint64_t seed)
      : dtype_(dtype), width_(width), prompts_(prompts) {
    int blocks = 1;
    for (const Prompt& p : prompts) blocks += (p.length + kKvBlock - 1) / kKvBlock;
    data_.assign(sz(blocks) * kKvBlock * sz(width) * dtype_bytes(dtype), std::byte{0xFF});
    std::vector<int32_t> free(sz(blocks));
    Prng prng(seed);
    for (int i = 0; i < blocks; ++i) {
      const auto j = prng.below(sz(i + 1));
      free[sz(i)] = free[j];
      free[j] = i;
    }
    for (const Prompt& p : prompts) {
      tables_.emplace_back();
      for (int b = 0; b * kKvBlock < p.length; ++b) {
        tables_.back().push_back(free.back());
        free.pop_back();
      }
    }
  }

  KvCache view() { return {data_.data(), dtype_, width_}; }
  const int32_t* blocks(int prompt) const { return tables_[sz(prompt)].data(); }
  void store(Ops& ops, const Piece& piece) {
    std::vector<int32_t> slots;
    for (int position = piece.past; position < piece.past + piece.n; ++position) {
      slots.push_back(blocks(piece.index)[position / kKvBlock] * kKvBlock + position % kKvBlock);
    }
    const float* rows = prompts_[sz(piece.index)].kv.data() + int64_t{piece.past} * width_;
    ops.kv_store(view(), slots.data(), rows, piece.n, width_);
  }

 private:
  DType dtype_;
  int width_;
  const std::vector<Prompt>& prompts_;
  std::vector<std::byte> data_;
  std::vector<std::vector<int32_t>> tables_;
};

// The inputs of one call of an op.
struct CallInputs {
  std::vector<Sequence> sequences;
  std::vector<float> q;           // [rows, q_width]
  std::vector<int32_t> selected;  // [rows, topk], or empty
  int rows = 0;
};

inline CallInputs inputs_of(const Call& call, const std::vector<Prompt>& prompts,
                            const Widths& widths, const PagedCache& cache) {
  CallInputs in;
  for (const Piece& piece : call) {
    const Prompt& p = prompts[sz(piece.index)];
    in.sequences.push_back({in.rows, piece.n, piece.past, p.prompt, cache.blocks(piece.index)});
    const auto rows = [&](const auto& from, int width, auto& to) {
      const auto begin = from.begin() + int64_t{piece.past} * width;
      to.insert(to.end(), begin, begin + int64_t{piece.n} * width);
    };
    rows(p.q, widths.q, in.q);
    if (!p.selected.empty()) rows(p.selected, widths.topk, in.selected);
    in.rows += piece.n;
  }
  return in;
}

// Plays a schedule on an empty cache; T is the element of an output row. Returns the rows of all
// prompts, one prompt after the other.
template <typename T>
std::vector<T> play(Ops& ops, const std::vector<Prompt>& prompts, const Widths& widths,
                    DType cache_dtype, const Schedule& schedule, uint64_t seed,
                    const std::function<void(const CallInputs&, KvCache, T*)>& attend) {
  PagedCache cache(cache_dtype, widths.kv, prompts, seed);
  std::vector<std::vector<T>> out;
  for (const Prompt& p : prompts) out.emplace_back(sz(p.length) * sz(widths.out));
  for (const Call& call : schedule) {
    for (const Piece& piece : call) cache.store(ops, piece);
    const CallInputs in = inputs_of(call, prompts, widths, cache);
    std::vector<T> rows(sz(in.rows) * sz(widths.out), std::numeric_limits<T>::quiet_NaN());
    attend(in, cache.view(), rows.data());
    auto from = rows.begin();
    for (const Piece& piece : call) {
      const int64_t count = int64_t{piece.n} * widths.out;
      std::copy_n(from, count, out[sz(piece.index)].begin() + int64_t{piece.past} * widths.out);
      from += count;
    }
  }
  std::vector<T> all;
  for (const auto& rows : out) append(all, rows);
  return all;
}

// All prompts in one call, in the given order of indices.
inline Schedule together(const std::vector<Prompt>& prompts, bool reversed = false) {
  Call call;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t index = reversed ? prompts.size() - 1 - i : i;
    call.push_back({static_cast<int>(index), 0, prompts[index].length});
  }
  return {call};
}
inline Schedule one_call_each(const std::vector<Prompt>& prompts) {
  Schedule schedule;
  const Call all = together(prompts)[0];
  for (const Piece& piece : all) schedule.push_back({piece});
  return schedule;
}
inline Schedule token_by_token(const std::vector<Prompt>& prompts) {
  Schedule schedule;
  const Call all = together(prompts)[0];
  for (const Piece& piece : all) {
    for (int past = 0; past < piece.n; ++past) schedule.push_back({{piece.index, past, 1}});
  }
  return schedule;
}
// Calls of random pieces of up to `longest` tokens of random prompts.
inline Schedule random_cuts(const std::vector<Prompt>& prompts, int longest, uint64_t seed) {
  Prng prng(seed);
  std::vector<int> past(prompts.size());
  Schedule schedule;
  for (bool left = true; left;) {
    left = false;
    Call call;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const int rest = prompts[i].length - past[i];
      const int n = std::min(rest, static_cast<int>(prng.below(sz(longest + 1))));
      if (n > 0)
        call.insert(call.begin() + static_cast<int>(prng.below(call.size() + 1)),
                    Piece{static_cast<int>(i), past[i], n});
      past[i] += n;
      left = left || n < rest;
    }
    if (!call.empty()) schedule.push_back(call);
  }
  return schedule;
}

// Prompts of random rows.
inline std::vector<Prompt> random_prompts(Prng& prng, const std::vector<int>& lengths,
                                          const Widths& widths, DType cache_dtype) {
  std::vector<Prompt> prompts;
  for (const int length : lengths) {
    Prompt p;
    p.length = p.prompt = length;
    p.q = random_floats(prng, int64_t{length} * widths.q);
    p.kv = random_floats(prng, int64_t{length} * widths.kv, cache_dtype);
    prompts.push_back(std::move(p));
  }
  return prompts;
}

// A random selection of min(topk, p + 1) of the keys 0..p of each row p, ascending, padded with -1.
inline void select_randomly(Prng& prng, int topk, std::vector<Prompt>* prompts) {
  for (Prompt& p : *prompts) {
    for (int position = 0; position < p.length; ++position) {
      int wanted = std::min(topk, position + 1);
      const int kept = wanted;
      for (int key = 0; key <= position; ++key) {
        if (static_cast<int>(prng.below(sz(position + 1 - key))) < wanted) {
          p.selected.push_back(key);
          --wanted;
        }
      }
      p.selected.insert(p.selected.end(), sz(topk - kept), -1);
    }
  }
}

struct GqaShape {
  int heads, kv_heads, d;
  int window = 0;
  std::vector<float> sinks = {};  // [heads] or empty
  Widths widths() const { return {heads * d, 2 * kv_heads * d, heads * d}; }
  float scale() const { return 2.5f / std::sqrt(static_cast<float>(d)); }
  ModelSpec spec() const {
    ModelSpec out = ffn_spec(64, 64);
    out.attention = AttentionKind::gqa;
    out.heads = heads;
    out.kv_heads = kv_heads;
    out.head_dim = d;
    out.attention_scale = scale();
    return out;
  }
  std::vector<float> run(Ops& ops, const std::vector<Prompt>& prompts, DType dtype,
                         const Schedule& schedule, uint64_t seed = 1) const {
    const auto attend = [&](const CallInputs& in, KvCache cache, float* out) {
      ops.attention_gqa({in.sequences, in.q.data(), cache, heads, kv_heads, d, scale(), window,
                         sinks.empty() ? nullptr : sinks.data(), out});
    };
    return play<float>(ops, prompts, widths(), dtype, schedule, seed, attend);
  }
};

struct MlaShape {
  int heads, nope, rope, v, latent;
  int topk = 0;
  Widths widths() const { return {heads * (nope + rope), latent + rope, heads * v, topk}; }
  float scale() const { return 1.5f / std::sqrt(static_cast<float>(nope + rope)); }
  ModelSpec spec() const {
    ModelSpec out = ffn_spec(64, 64);
    out.attention = AttentionKind::mla;
    out.heads = heads;
    out.kv_lora = latent;
    out.q_lora = 32;
    out.qk_nope = nope;
    out.qk_rope = rope;
    out.v_head = v;
    out.attention_scale = scale();
    if (topk > 0) {
      out.index_heads = 1;
      out.index_dim = 16;
      out.index_topk = topk;
    }
    return out;
  }
  // kv_b of every head, [nope + v, latent]
  std::vector<Stored> random_heads(Prng& prng, DType dtype) const {
    std::vector<Stored> out;
    for (int h = 0; h < heads; ++h) out.push_back(random_matrix(prng, nope + v, latent, dtype));
    return out;
  }
  std::vector<MlaHead> pack(Ops& ops, const std::vector<Stored>& kv_b, Arena& arena) const {
    std::vector<MlaHead> out;
    for (const Stored& head : kv_b) out.push_back(ops.pack_mla_head(head.view, nope, v, arena));
    return out;
  }
  std::vector<float> run(Ops& ops, const std::vector<MlaHead>& packed,
                         const std::vector<Prompt>& prompts, DType dtype, const Schedule& schedule,
                         uint64_t seed = 1) const {
    const auto attend = [&](const CallInputs& in, KvCache cache, float* out) {
      const int32_t* selected = in.selected.empty() ? nullptr : in.selected.data();
      ops.attention_mla({in.sequences, in.q.data(), cache, packed, nope, rope, v, latent, scale(),
                         selected, topk, out});
    };
    return play<float>(ops, prompts, widths(), dtype, schedule, seed, attend);
  }
};

// The q rows of an indexer prompt are [u (heads·dim) | w (heads)], the kv rows its keys.
struct IndexShape {
  int heads, dim, topk;
  Widths widths() const { return {heads * dim + heads, dim, topk}; }
  ModelSpec spec() const {
    ModelSpec out = MlaShape{2, 16, 8, 16, 32, topk}.spec();
    out.index_heads = heads;
    out.index_dim = dim;
    return out;
  }
  // Cuts every call's rows into `parts` ranges, as the ranks of a group do.
  std::vector<int32_t> run(Ops& ops, const std::vector<Prompt>& prompts, DType dtype,
                           const Schedule& schedule, int parts = 1, uint64_t seed = 1) const {
    const auto attend = [&](const CallInputs& in, KvCache cache, int32_t* out) {
      for (int i = 0; i < parts; ++i) {
        const Part part = part_of(in.rows, parts, i);
        std::vector<float> u, w;
        for (int row = part.begin; row < part.end; ++row) {
          const auto at = in.q.begin() + int64_t{row} * widths().q;
          u.insert(u.end(), at, at + heads * dim);
          w.insert(w.end(), at + heads * dim, at + widths().q);
        }
        ops.indexer({in.sequences, part.begin, part.end, u.data(), w.data(), cache, heads, dim,
                     topk, out + int64_t{part.begin} * topk});
      }
    };
    return play<int32_t>(ops, prompts, widths(), dtype, schedule, seed, attend);
  }
};

}  // namespace asap::optest
