// AddedTokens: finds the added tokens of tokenizer.json in a text, leftmost first and longest among
// those.
//
// A trie over bytes; a text without the first byte of any token is passed at the speed of a table
// look-up per byte.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace asap {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only between non-word characters
  bool lstrip = false;       // absorbs the white space before it
  bool rstrip = false;       // absorbs the white space after it
  bool normalized = false;   // is looked for in the normalised text
  bool special = false;      // is left out by decode(skip_special)
};

class AddedTokens {
 public:
  struct Segment {
    std::string_view text;
    int32_t id;  // -1: text between added tokens
  };

  AddedTokens() { first_.fill(0); }
  // `pattern` is the (normalised) content. An empty one never matches. False: another token has
  // this one.
  [[nodiscard]] bool add(const AddedToken& token, std::string_view pattern);
  // The segments of a valid text, in order; none of them is empty.
  std::vector<Segment> split(std::string_view text) const;

 private:
  static constexpr int32_t kRoot = 0;

  int32_t longest_match(std::string_view text, size_t at, size_t* end) const;

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> token_at_{-1};               // per node: index into tokens_, or -1
  std::array<int32_t, 256> first_;                  // the root's children; 0: none
  std::unordered_map<uint64_t, int32_t> children_;  // (node << 8 | byte) -> node
};

}  // namespace asap
