#include "asap/model/bpe.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "asap/base/prng.h"
#include "asap/model/json_reader.h"
#include "asap/model/utf8.h"

namespace asap {

namespace {

constexpr size_t kMaxMerges = size_t{1} << 24;
constexpr size_t kMaxTokenBytes = 64 << 10;
constexpr size_t kMaxPieceBytes = size_t{1} << 30;  // positions are 32 bits wide
constexpr size_t kMaxSeenBytes = 64;                // longer pieces hardly repeat

constexpr char kWhere[] = "tokenizer.json: model";

// Character of the byte alphabet -> byte, -1 for none. Printable Latin-1 stands for itself, the
// other 68 bytes follow from U+0100 on.
const std::array<int16_t, 0x144>& alphabet() {
  static const auto table = [] {
    std::array<int16_t, 0x144> out;
    out.fill(-1);
    size_t moved = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      out[printable ? static_cast<size_t>(byte) : moved++] = static_cast<int16_t>(byte);
    }
    return out;
  }();
  return table;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// The two halves of one entry of "merges": "a b" or ["a", "b"].
std::optional<std::pair<std::string_view, std::string_view>> halves(const nlohmann::json& entry) {
  if (entry.is_string()) {
    const std::string_view text = entry.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) return {};
    return {{text.substr(0, space), text.substr(space + 1)}};
  }
  if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
    return {{entry[0].get_ref<const std::string&>(), entry[1].get_ref<const std::string&>()}};
  }
  return {};
}

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = utf8_at(token, at);
    at += c.length;
    if (!c.valid || c.code >= alphabet().size() || alphabet()[c.code] < 0) return {};
    bytes.push_back(static_cast<char>(alphabet()[c.code]));
  }
  return bytes;
}

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

Result<Bpe> Bpe::parse(const nlohmann::json& model) {
  if (!model.is_object()) return fail(Code::invalid, "{} is not an object", kWhere);
  Bpe out;
  ASAP_TRY(out.read_vocab(model));
  ASAP_TRY(out.read_options(model));
  ASAP_TRY(out.read_merges(model));
  out.find_whole_tokens();
  return out;
}

Status Bpe::read_vocab(const nlohmann::json& model) {
  JsonReader reader(model, kWhere);
  const std::string type = reader.string_or("type", "BPE");
  ASAP_TRY(reader.status());
  if (type != "BPE") {
    return fail(Code::unsupported, "{}: type \"{}\" is not supported; only BPE is", kWhere, type);
  }
  if (!reader.has("vocab") || !reader.raw("vocab").is_object()) {
    return fail(Code::invalid, "{}: vocab is not an object", kWhere);
  }
  const nlohmann::json& vocab = reader.raw("vocab");
  vocab_.reserve(vocab.size());
  byte_ids_.fill(-1);
  for (const auto& [token, value] : vocab.items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= kMaxTokenId) {
      return fail(Code::invalid, "{}: the id of \"{}\" is not a whole number below {}", kWhere,
                  token.substr(0, 100), kMaxTokenId);
    }
    if (token.size() > kMaxTokenBytes) {
      return fail(Code::invalid, "{}: a token of {} bytes exceeds {}", kWhere, token.size(),
                  kMaxTokenBytes);
    }
    const auto id = value.get<int32_t>();
    vocab_.emplace(token, id);
    const std::optional<std::string> bytes = bytes_of_alphabet(token);
    if (bytes && bytes->size() == 1) byte_ids_[static_cast<uint8_t>(bytes->front())] = id;
  }
  return {};
}

Status Bpe::read_options(const nlohmann::json& model) {
  JsonReader reader(model, kWhere);
  ignore_merges_ = reader.boolean_or("ignore_merges", false);
  fuse_unknown_ = reader.boolean_or("fuse_unk", false);
  const bool byte_fallback = reader.boolean_or("byte_fallback", false);
  const double dropout = reader.number_or("dropout", 0, 0, 1);
  const std::string prefix = reader.string_or("continuing_subword_prefix", "");
  const std::string suffix = reader.string_or("end_of_word_suffix", "");
  const std::string unknown = reader.string_or("unk_token", "");
  ASAP_TRY(reader.status());
  const char* foreign = byte_fallback     ? "byte_fallback (SentencePiece style)"
                        : dropout != 0    ? "dropout"
                        : !prefix.empty() ? "continuing_subword_prefix"
                        : !suffix.empty() ? "end_of_word_suffix"
                                          : nullptr;
  if (foreign != nullptr) {
    return fail(Code::unsupported, "{}: {} is not supported; only plain byte-level BPE is", kWhere,
                foreign);
  }
  if (!unknown.empty()) {
    const auto it = vocab_.find(unknown);
    if (it == vocab_.end()) {
      return fail(Code::invalid, "{}: unk_token \"{}\" is not in the vocabulary", kWhere, unknown);
    }
    unknown_ = it->second;
  }
  return {};
}

Status Bpe::read_merges(const nlohmann::json& model) {
  JsonReader reader(model, kWhere);
  if (!reader.has("merges") || !reader.raw("merges").is_array() ||
      reader.raw("merges").size() > kMaxMerges) {
    return fail(Code::invalid, "{}: merges is not a list of at most {} entries", kWhere,
                kMaxMerges);
  }
  const nlohmann::json& merges = reader.raw("merges");
  merges_ = MergeTable(merges.size());
  uint32_t rank = 0;
  std::string both;
  for (const nlohmann::json& entry : merges) {
    const auto parts = halves(entry);
    if (!parts) {
      return fail(Code::invalid, "{}: merges[{}] is not a pair of tokens", kWhere, rank);
    }
    both.assign(parts->first).append(parts->second);
    const auto left = vocab_.find(parts->first);
    const auto right = vocab_.find(parts->second);
    const auto result = vocab_.find(both);
    if (left == vocab_.end() || right == vocab_.end() || result == vocab_.end()) {
      return fail(Code::invalid, "{}: merges[{}] names a token that is not in the vocabulary",
                  kWhere, rank);
    }
    merges_.set(left->second, right->second, {rank, result->second});
    ++rank;
  }
  return {};
}

// With ignore_merges a piece that is a token is that token. Without, it is so only if merging the
// piece ends there, which holds for nearly every token; knowing it saves a dozen look-ups per word.
void Bpe::find_whole_tokens() {
  std::vector<int32_t> ids;
  BpeEncoder encoder(*this, 0, &ids);
  TokenIds whole;
  whole.reserve(vocab_.size());
  for (const auto& [token, id] : vocab_) {
    std::optional<std::string> bytes = bytes_of_alphabet(token);
    if (!bytes) continue;
    ids.clear();
    if (!ignore_merges_) encoder.encode(*bytes);
    if (ignore_merges_ || (ids.size() == 1 && ids[0] == id)) whole.emplace(std::move(*bytes), id);
  }
  whole_tokens_ = std::move(whole);
}

BpeEncoder::BpeEncoder(const Bpe& bpe, size_t text_bytes, std::vector<int32_t>* out)
    : bpe_(bpe), out_(out), seen_(std::bit_ceil(std::clamp<size_t>(text_bytes / 4, 16, 8192))) {}

void BpeEncoder::add(std::string_view piece) {
  if (piece.size() > kMaxSeenBytes) {
    for (; piece.size() > kMaxPieceBytes; piece.remove_prefix(kMaxPieceBytes)) {
      encode(piece.substr(0, kMaxPieceBytes));
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
  bool after_unknown = false;
  for (const char c : piece) {
    int32_t id = bpe_.byte_ids_[static_cast<uint8_t>(c)];
    const bool unknown = id < 0;
    if (unknown) id = bpe_.fuse_unknown_ && after_unknown ? -1 : bpe_.unknown_;
    after_unknown = unknown;
    const auto position = static_cast<int32_t>(symbols_.size());
    if (id >= 0) symbols_.push_back({id, position - 1, position + 1});
  }
  if (!symbols_.empty()) symbols_.back().next = -1;
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
