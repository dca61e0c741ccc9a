// Reads the "model" of tokenizer.json into a Bpe, and makes one of tiktoken's ranks.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/model/bpe.h"
#include "asap/model/json_reader.h"
#include "asap/model/utf8.h"

namespace asap {

namespace {

constexpr size_t kMaxMerges = size_t{1} << 24;
constexpr size_t kMaxTokenBytes = 64 << 10;

constexpr char kBpeWhere[] = "tokenizer.json: model";

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

Result<Bpe> Bpe::parse(const nlohmann::json& model, bool byte_level) {
  if (!model.is_object()) return fail(Code::invalid, "{} is not an object", kBpeWhere);
  Bpe out;
  out.byte_level_ = byte_level;
  ASAP_TRY(out.read_vocab(model));
  ASAP_TRY(out.read_options(model));
  ASAP_TRY(out.read_merges(model));
  out.find_whole_tokens();
  return out;
}

Bpe Bpe::from_ranks(const std::vector<std::string>& tokens) {
  Bpe out;
  out.ignore_merges_ = true;
  out.vocab_.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    out.vocab_.emplace(tokens[id], static_cast<int32_t>(id));
    out.longest_ = std::max(out.longest_, tokens[id].size());
    if (tokens[id].size() == 1) {
      out.byte_ids_[static_cast<uint8_t>(tokens[id].front())] = static_cast<int32_t>(id);
    }
  }
  struct Half {
    int32_t left, right, result;
  };
  std::vector<Half> merges;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = out.vocab_.find(token.substr(0, cut));
      const auto right = out.vocab_.find(token.substr(cut));
      if (left == out.vocab_.end() || right == out.vocab_.end()) continue;
      merges.push_back({left->second, right->second, static_cast<int32_t>(id)});
    }
  }
  out.merges_ = MergeTable(merges.size());
  for (const Half& merge : merges) {
    out.merges_.set(merge.left, merge.right, {static_cast<uint32_t>(merge.result), merge.result});
  }
  out.whole_tokens_ = out.vocab_;
  return out;
}

// What a piece has to be in order to be spelled like `token`; nothing if no piece is.
std::optional<std::string> Bpe::spelled(std::string_view token) const {
  return byte_level_ ? bytes_of_alphabet(token) : std::string(token);
}

Status Bpe::read_vocab(const nlohmann::json& model) {
  JsonReader reader(model, kBpeWhere);
  const std::string type = reader.string_or("type", "BPE");
  ASAP_TRY(reader.status());
  if (type != "BPE") {
    return fail(Code::unsupported, "{}: type \"{}\" is not supported; only BPE is", kBpeWhere,
                type);
  }
  if (!reader.has("vocab") || !reader.raw("vocab").is_object()) {
    return fail(Code::invalid, "{}: vocab is not an object", kBpeWhere);
  }
  const nlohmann::json& vocab = reader.raw("vocab");
  vocab_.reserve(vocab.size());
  byte_ids_.fill(-1);
  for (const auto& [token, value] : vocab.items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= kMaxTokenId) {
      return fail(Code::invalid, "{}: the id of \"{}\" is not a whole number below {}", kBpeWhere,
                  token.substr(0, 100), kMaxTokenId);
    }
    if (token.size() > kMaxTokenBytes) {
      return fail(Code::invalid, "{}: a token of {} bytes exceeds {}", kBpeWhere, token.size(),
                  kMaxTokenBytes);
    }
    const auto id = value.get<int32_t>();
    vocab_.emplace(token, id);
    const std::optional<std::string> bytes = spelled(token);
    if (bytes) longest_ = std::max(longest_, bytes->size());
    if (!byte_level_) continue;
    if (bytes && bytes->size() == 1) byte_ids_[static_cast<uint8_t>(bytes->front())] = id;
  }
  if (!byte_level_) find_characters();
  return {};
}

void Bpe::find_characters() {
  low_char_ids_.assign(0x10000, -1);
  for (const auto& [token, id] : vocab_) {
    if (token.empty()) continue;
    const Utf8Char c = utf8_at(token, 0);
    if (c.length != token.size()) continue;
    if (c.code < low_char_ids_.size()) {
      low_char_ids_[c.code] = id;
    } else {
      high_char_ids_.emplace(c.code, id);
    }
  }
}

Status Bpe::read_options(const nlohmann::json& model) {
  JsonReader reader(model, kBpeWhere);
  ignore_merges_ = reader.boolean_or("ignore_merges", false);
  fuse_unknown_ = reader.boolean_or("fuse_unk", false);
  byte_fallback_ = reader.boolean_or("byte_fallback", false);
  const double dropout = reader.number_or("dropout", 0, 0, 1);
  const std::string prefix = reader.string_or("continuing_subword_prefix", "");
  const std::string suffix = reader.string_or("end_of_word_suffix", "");
  const std::string unknown = reader.string_or("unk_token", "");
  ASAP_TRY(reader.status());
  const char* foreign = dropout != 0      ? "dropout"
                        : !prefix.empty() ? "continuing_subword_prefix"
                        : !suffix.empty() ? "end_of_word_suffix"
                                          : nullptr;
  if (foreign != nullptr) {
    return fail(Code::unsupported, "{}: {} is not supported", kBpeWhere, foreign);
  }
  if (!unknown.empty()) {
    const auto it = vocab_.find(unknown);
    if (it == vocab_.end()) {
      return fail(Code::invalid, "{}: unk_token \"{}\" is not in the vocabulary", kBpeWhere,
                  unknown);
    }
    unknown_ = it->second;
  }
  return byte_fallback_ ? read_byte_fallback() : Status{};
}

Status Bpe::read_byte_fallback() {
  if (byte_level_) {
    // With a token for every byte there is nothing to fall back from.
    const auto missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
    if (missing == byte_ids_.end()) return {};
    return fail(Code::unsupported,
                "{}: byte_fallback with ByteLevel and without a token for byte {:#04x} is not "
                "supported",
                kBpeWhere, missing - byte_ids_.begin());
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto it = vocab_.find(fmt::format("<0x{:02X}>", byte));
    if (it != vocab_.end()) byte_ids_[static_cast<size_t>(byte)] = it->second;
  }
  return {};
}

Status Bpe::read_merges(const nlohmann::json& model) {
  JsonReader reader(model, kBpeWhere);
  if (!reader.has("merges") || !reader.raw("merges").is_array() ||
      reader.raw("merges").size() > kMaxMerges) {
    return fail(Code::invalid, "{}: merges is not a list of at most {} entries", kBpeWhere,
                kMaxMerges);
  }
  const nlohmann::json& merges = reader.raw("merges");
  merges_ = MergeTable(merges.size());
  uint32_t rank = 0;
  std::string both;
  for (const nlohmann::json& entry : merges) {
    const auto parts = halves(entry);
    if (!parts) {
      return fail(Code::invalid, "{}: merges[{}] is not a pair of tokens", kBpeWhere, rank);
    }
    both.assign(parts->first).append(parts->second);
    const auto left = vocab_.find(parts->first);
    const auto right = vocab_.find(parts->second);
    const auto result = vocab_.find(both);
    if (left == vocab_.end() || right == vocab_.end() || result == vocab_.end()) {
      return fail(Code::invalid, "{}: merges[{}] names a token that is not in the vocabulary",
                  kBpeWhere, rank);
    }
    merges_.set(left->second, right->second, {rank, result->second});
    ++rank;
  }
  // A piece that ignore_merges would look up must stay in one.
  if (!byte_level_ && !ignore_merges_) find_joints(merges);
  return {};
}

// Which characters may meet in the middle of a merge: the last one of a left half and the first one
// of a right half. Where two others meet, no merge ever reaches across.
void Bpe::find_joints(const nlohmann::json& merges) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  pairs.reserve(merges.size());
  for (const nlohmann::json& entry : merges) {
    const auto parts = halves(entry);
    if (!parts || parts->first.empty() || parts->second.empty()) continue;
    const int32_t left = id_of_char(utf8_last(parts->first));
    const int32_t right = id_of_char(utf8_at(parts->second, 0).code);
    if (left >= 0 && right >= 0) pairs.emplace_back(left, right);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  joints_ = MergeTable(pairs.size());
  for (const auto& [left, right] : pairs) joints_.set(left, right, {});
  cuts_ = true;
}

// With ignore_merges a piece that is a token is that token. Without, it is so only if merging the
// piece ends there, which holds for nearly every token; knowing it saves a dozen look-ups per word.
void Bpe::find_whole_tokens() {
  std::vector<int32_t> ids;
  BpeEncoder encoder(*this, 0, &ids);
  TokenIds whole;
  whole.reserve(vocab_.size());
  for (const auto& [token, id] : vocab_) {
    std::optional<std::string> piece = spelled(token);
    if (!piece) continue;
    ids.clear();
    if (!ignore_merges_) encoder.encode(*piece);
    if (ignore_merges_ || (ids.size() == 1 && ids[0] == id)) whole.emplace(std::move(*piece), id);
  }
  whole_tokens_ = std::move(whole);
}

}  // namespace asap
