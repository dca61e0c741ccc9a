// Bpe: the "model" of tokenizer.json, byte-pair encoding.
//
// Byte-level models write their tokens in GPT-2's alphabet, one printable character per byte; they
// are translated once at load, and encoding works on plain bytes. Others (SentencePiece style) work
// on characters, and may spell a character without token as one token per byte, "<0xE4>".
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "asap/base/result.h"

namespace asap {

constexpr int32_t kMaxTokenId = 1 << 24;  // exclusive
constexpr size_t kMaxUtf8Bytes = 4;       // of a character

// Lets a map keyed by string be asked with a string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

// The bytes that `token` spells in the byte alphabet; nothing if one of its characters is not of
// that alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view token);

// Flat hash map from a pair of ids to its merge. Open addressing, half full at most.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t result;
  };
  explicit MergeTable(size_t merges = 0);
  void set(int32_t left, int32_t right, Merge merge);  // replaces; at most `merges` pairs
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  size_t slot_of(uint64_t key) const;
  std::vector<Slot> slots_;  // a power of two
};

class Bpe {
 public:
  // Errors: invalid; unsupported, by name.
  static Result<Bpe> parse(const nlohmann::json& model, bool byte_level);
  // Byte-level, as tiktoken has it: the id of a token is its place in `tokens` (raw bytes, all
  // different, every single byte among them), and two neighbours merge if together they are a
  // token, lowest id first.
  static Bpe from_ranks(const std::vector<std::string>& tokens);

  // By the text in the file: for from_ranks the token's bytes.
  const TokenIds& vocab() const { return vocab_; }
  // Bytes of a text that one id may stand for. 0: any number, as some bytes may give no id.
  size_t most_bytes_per_id() const;

 private:
  friend class BpeEncoder;

  Status read_vocab(const nlohmann::json& model);
  Status read_options(const nlohmann::json& model);
  Status read_byte_fallback();
  Status read_merges(const nlohmann::json& model);
  void find_characters();
  void find_joints(const nlohmann::json& merges);
  void find_whole_tokens();
  std::optional<std::string> spelled(std::string_view token) const;
  int32_t id_of_char(char32_t code) const;

  bool byte_level_ = true;
  TokenIds vocab_;
  TokenIds whole_tokens_;                // by bytes: a piece that is just this is just this token
  std::array<int32_t, 256> byte_ids_{};  // byte-level or fallback; -1: no token for this byte
  std::vector<int32_t> low_char_ids_;    // characters below U+10000; -1: no token
  std::unordered_map<char32_t, int32_t> high_char_ids_;
  MergeTable merges_;
  MergeTable joints_;     // pairs of characters that some merge joins
  bool cuts_ = false;     // whether a piece may be cut where there is none
  int32_t unknown_ = -1;  // -1: what has no token gives nothing
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  size_t longest_ = kMaxUtf8Bytes;  // bytes that a token spells; a character may be unknown
};

// Encodes the pieces of one text. Remembers where in the output a piece was encoded before, so that
// a repeated word costs one look-up; the pieces must outlive the encoder.
//
// A piece of a model that works on characters is often a whole text. It is cut where no merge can
// reach across, which is before nearly every word, so that there are words to remember.
class BpeEncoder {
 public:
  BpeEncoder(const Bpe& bpe, size_t text_bytes, std::vector<int32_t>* out);
  void add(std::string_view piece);
  // Without memory of earlier pieces, so `piece` need not stay.
  void encode(std::string_view piece);

 private:
  struct Symbol {
    int32_t id;  // -1: merged into its left neighbour
    int32_t previous, next;
  };
  struct Candidate {
    uint64_t order;  // rank, then position
    int32_t result;
    bool operator<(const Candidate& other) const { return order > other.order; }  // a min-heap
  };
  struct Seen {
    std::string_view piece;
    size_t begin = 0, count = 0;  // its ids in `out_`
  };

  void add_whole(std::string_view piece);
  void load_symbols(std::string_view piece);
  void load_bytes(std::string_view piece);
  void load_characters(std::string_view piece);
  void add_symbol(int32_t id);
  void add_known(int32_t id);
  void add_unknown();
  void push_candidate(int32_t left);
  void merge();

  const Bpe& bpe_;
  std::vector<int32_t>* out_;
  std::vector<Seen> seen_;  // direct-mapped, a power of two
  std::vector<Symbol> symbols_;
  bool unknown_waits_ = false;  // an unknown token that the next one may be fused with
  std::vector<Candidate> heap_;
};

}  // namespace asap
