#include "asap/model/bpe.h"

#include <algorithm>
#include <bit>

#include "asap/base/prng.h"
#include "asap/model/utf8.h"

namespace asap {

namespace {

constexpr size_t kMaxPieceBytes = size_t{1} << 30;  // positions are 32 bits wide
constexpr size_t kMaxSeenBytes = 64;                // longer pieces hardly repeat

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(2 * merges + 1)) {}

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = mix(key) & mask;
  while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(pair_key(left, right))];
  return slot.key == kEmpty ? nullptr : &slot.merge;
}

int32_t Bpe::id_of_char(char32_t code) const {
  if (code < low_char_ids_.size()) return low_char_ids_[code];
  const auto it = high_char_ids_.find(code);
  return it == high_char_ids_.end() ? -1 : it->second;
}

size_t Bpe::most_bytes_per_id() const {
  const bool each_byte = (byte_level_ || byte_fallback_) &&
                         std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
  const bool each_unknown = unknown_ >= 0 && !fuse_unknown_;
  return each_byte || each_unknown ? longest_ : 0;
}

BpeEncoder::BpeEncoder(const Bpe& bpe, size_t text_bytes, std::vector<int32_t>* out)
    : bpe_(bpe), out_(out), seen_(std::bit_ceil(std::clamp<size_t>(text_bytes / 4, 16, 8192))) {}

void BpeEncoder::add(std::string_view piece) {
  if (!bpe_.cuts_) return add_whole(piece);
  size_t begin = 0;
  int32_t previous = -1;
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char c = utf8_at(piece, at);
    const int32_t id = bpe_.id_of_char(c.code);
    // A character without token may be fused with its neighbours, so there is no cut beside one.
    if (previous >= 0 && id >= 0 && bpe_.joints_.find(previous, id) == nullptr) {
      add_whole(piece.substr(begin, at - begin));
      begin = at;
    }
    previous = id;
    at += c.length;
  }
  if (begin < piece.size()) add_whole(piece.substr(begin));
}

// `piece` as one sequence of symbols.
void BpeEncoder::add_whole(std::string_view piece) {
  if (piece.size() > kMaxSeenBytes) {
    while (piece.size() > kMaxPieceBytes) {
      size_t cut = kMaxPieceBytes;
      while ((static_cast<uint8_t>(piece[cut]) & 0xC0) == 0x80) --cut;
      encode(piece.substr(0, cut));
      piece.remove_prefix(cut);
    }
    return encode(piece);
  }
  Seen& seen = seen_[StringHash()(piece) & (seen_.size() - 1)];
  const size_t begin = out_->size();
  if (seen.piece == piece) {
    for (size_t i = 0; i < seen.count; ++i) out_->push_back((*out_)[seen.begin + i]);
    return;
  }
  encode(piece);
  seen = {piece, begin, out_->size() - begin};
}

void BpeEncoder::encode(std::string_view piece) {
  const auto whole = bpe_.whole_tokens_.find(piece);
  if (whole != bpe_.whole_tokens_.end()) return out_->push_back(whole->second);
  load_symbols(piece);
  merge();
  for (const Symbol& symbol : symbols_) {
    if (symbol.id >= 0) out_->push_back(symbol.id);
  }
}

void BpeEncoder::load_symbols(std::string_view piece) {
  symbols_.clear();
  unknown_waits_ = false;
  if (bpe_.byte_level_) {
    load_bytes(piece);
  } else {
    load_characters(piece);
  }
  if (unknown_waits_) add_symbol(bpe_.unknown_);
  if (!symbols_.empty()) symbols_.back().next = -1;
}

void BpeEncoder::load_bytes(std::string_view piece) {
  for (const char c : piece) {
    const int32_t id = bpe_.byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      add_known(id);
    } else {
      add_unknown();
    }
  }
}

void BpeEncoder::load_characters(std::string_view piece) {
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char c = utf8_at(piece, at);
    const std::string_view bytes = piece.substr(at, c.length);
    at += c.length;
    const auto has_token = [&](char b) { return bpe_.byte_ids_[static_cast<uint8_t>(b)] >= 0; };
    const int32_t id = bpe_.id_of_char(c.code);
    if (id >= 0) {
      add_known(id);
    } else if (bpe_.byte_fallback_ && std::all_of(bytes.begin(), bytes.end(), has_token)) {
      // Hugging Face's library leaves an unknown token waiting here, and so it comes later.
      for (const char b : bytes) add_symbol(bpe_.byte_ids_[static_cast<uint8_t>(b)]);
    } else {
      add_unknown();
    }
  }
}

void BpeEncoder::add_symbol(int32_t id) {
  const auto position = static_cast<int32_t>(symbols_.size());
  symbols_.push_back({id, position - 1, position + 1});
}

void BpeEncoder::add_known(int32_t id) {
  if (unknown_waits_) add_symbol(bpe_.unknown_);
  unknown_waits_ = false;
  add_symbol(id);
}

void BpeEncoder::add_unknown() {
  if (bpe_.unknown_ < 0) return;
  if (unknown_waits_ && !bpe_.fuse_unknown_) add_symbol(bpe_.unknown_);
  unknown_waits_ = true;
}

// Puts the pair that begins at `left` on the heap if there is a merge for it.
void BpeEncoder::push_candidate(int32_t left) {
  const Symbol& symbol = symbols_[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const MergeTable::Merge* merge =
      bpe_.merges_.find(symbol.id, symbols_[static_cast<size_t>(symbol.next)].id);
  if (merge == nullptr) return;
  heap_.push_back(
      {static_cast<uint64_t>(merge->rank) << 32 | static_cast<uint32_t>(left), merge->result});
}

// Applies the merges lowest rank first, leftmost on ties. Symbols are a linked list; an entry of
// the heap whose pair has changed since is recognised when it comes up.
void BpeEncoder::merge() {
  heap_.clear();
  for (size_t i = 0; i < symbols_.size(); ++i) push_candidate(static_cast<int32_t>(i));
  std::make_heap(heap_.begin(), heap_.end());
  while (!heap_.empty()) {
    const Candidate top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    const auto at = static_cast<int32_t>(top.order & 0xFFFFFFFF);
    Symbol& left = symbols_[static_cast<size_t>(at)];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.next)];
    const MergeTable::Merge* now = bpe_.merges_.find(left.id, right.id);
    if (now == nullptr || now->result != top.result) continue;
    left.id = top.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].previous = at;
    for (const int32_t changed : {left.previous, at}) {
      const size_t before = heap_.size();
      if (changed >= 0) push_candidate(changed);
      if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end());
    }
  }
}

}  // namespace asap
