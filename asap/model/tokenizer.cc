#include "asap/model/tokenizer.h"

#include <deque>
#include <utility>

#include "asap/model/tokenizer_impl.h"
#include "asap/model/utf8.h"

namespace asap {

namespace {

// The way of one text through normaliser, pre-tokenizer and BPE. Owns the texts that pieces point
// into.
class Encoding {
 public:
  Encoding(const TokenizerData& tokenizer, size_t text_bytes, std::vector<int32_t>* out)
      : tokenizer_(tokenizer), out_(out), encoder_(tokenizer.bpe, text_bytes, out) {}

  // Raw added tokens are found first, then each text between them is normalised and searched for
  // the others.
  void add(std::string_view text) {
    for (const auto& [part, id] : tokenizer_.raw_tokens.split(text)) {
      if (id >= 0) {
        out_->push_back(id);
      } else if (tokenizer_.normalize_nfc) {
        add_normalized(arena_.emplace_back(nfc(part)));
      } else {
        add_normalized(part);
      }
    }
  }

 private:
  void add_normalized(std::string_view text) {
    for (const auto& [part, id] : tokenizer_.normalized_tokens.split(text)) {
      if (id >= 0) {
        out_->push_back(id);
        continue;
      }
      pieces_.clear();
      tokenizer_.pretokenizer.split(part, &arena_, &pieces_);
      for (const std::string_view piece : pieces_) encoder_.add(piece);
    }
  }

  const TokenizerData& tokenizer_;
  std::vector<int32_t>* out_;
  BpeEncoder encoder_;
  std::deque<std::string> arena_;
  std::vector<std::string_view> pieces_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::string_view TokenizerData::bytes_of(int32_t id, bool skip_special) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens.size()) return {};
  const Token& token = tokens[static_cast<size_t>(id)];
  if (skip_special && token.special) return {};
  return std::string_view(bytes).substr(token.begin, token.length);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  std::string repaired;
  if (!is_utf8(text)) text = repaired = repair_utf8(text);
  std::vector<int32_t> ids;
  if (add_special) ids = impl_->prefix;
  Encoding(*impl_, text.size(), &ids).add(text);
  if (add_special) ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += impl_->bytes_of(id, skip_special);
  return is_utf8(bytes) ? bytes : repair_utf8(bytes);
}

std::string Tokenizer::token_bytes(int32_t id, bool skip_special) const {
  return std::string(impl_->bytes_of(id, skip_special));
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(impl_->tokens.size());
}

int32_t Tokenizer::id_of(std::string_view token) const {
  const auto added = impl_->added_ids.find(token);
  if (added != impl_->added_ids.end()) return added->second;
  const auto it = impl_->bpe.vocab().find(token);
  return it == impl_->bpe.vocab().end() ? -1 : it->second;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->tokens[static_cast<size_t>(id)].special;
}

std::string StreamDecoder::push(int32_t id) {
  pending_ += tokenizer_->token_bytes(id, skip_special_);
  const size_t whole = pending_.size() - utf8_incomplete_tail(pending_);
  std::string text = repair_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::flush() {
  return repair_utf8(std::exchange(pending_, {}));
}

}  // namespace asap
