#include "asap/model/added_tokens.h"

#include <algorithm>

#include "asap/model/regex.h"
#include "asap/model/utf8.h"

namespace asap {

namespace {

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word_char(utf8_last(text.substr(0, begin)));
  const bool word_after = end < text.size() && is_word_char(utf8_at(text, end).code);
  return !word_before && !word_after;
}

}  // namespace

bool AddedTokens::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return true;
  int32_t node = kRoot;
  for (const char c : pattern) {
    const auto byte = static_cast<uint8_t>(c);
    const uint64_t key = static_cast<uint64_t>(node) << 8 | byte;
    const auto [child, fresh] = children_.try_emplace(key, static_cast<int32_t>(token_at_.size()));
    if (fresh) token_at_.push_back(-1);
    if (node == kRoot) first_[byte] = child->second;
    node = child->second;
  }
  if (token_at_[static_cast<size_t>(node)] >= 0) return false;
  token_at_[static_cast<size_t>(node)] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  return true;
}

// Index of the longest token that begins at text[at], or -1.
int32_t AddedTokens::longest_match(std::string_view text, size_t at, size_t* end) const {
  int32_t best = -1;
  int32_t node = first_[static_cast<uint8_t>(text[at])];
  while (node != kRoot) {
    ++at;
    if (const int32_t token = token_at_[static_cast<size_t>(node)]; token >= 0) {
      best = token;
      *end = at;
    }
    if (at == text.size()) break;
    const auto child =
        children_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[at]));
    node = child == children_.end() ? kRoot : child->second;
  }
  return best;
}

std::vector<AddedTokens::Segment> AddedTokens::split(std::string_view text) const {
  std::vector<Segment> segments;
  size_t done = 0;  // the text before this is in `segments`
  Span space;       // the white space that was absorbed last, so that it is walked once
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    size_t match_end = 0;
    const int32_t index = longest_match(text, at, &match_end);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    size_t end = match_end;
    at = match_end;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    // Space that an earlier token absorbed is not taken twice. A token made of such space still
    // counts, unless it would absorb what is before it; the text goes on after it even if the
    // earlier one reached further. That is odd, but what Hugging Face's library does.
    if (token.lstrip) begin = std::max(space_begin(text, begin, done), done);
    if (token.rstrip) {
      if (end < space.begin || end >= space.end) space = {end, space_end(text, end)};
      end = space.end;
    }
    if (begin >= end) continue;
    if (done < begin) segments.push_back({text.substr(done, begin - done), -1});
    segments.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
  return segments;
}

}  // namespace asap
