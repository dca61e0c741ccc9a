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
      } else {
        add_normalized(tokenizer_.normalizer.apply(part, &arena_), part.data() == text.data());
      }
    }
  }

 private:
  // `beginning`: nothing stands before `text`.
  void add_normalized(std::string_view text, bool beginning) {
    for (const auto& [part, id] : tokenizer_.normalized_tokens.split(text)) {
      if (id >= 0) {
        out_->push_back(id);
        continue;
      }
      pieces_.clear();
      tokenizer_.pretokenizer.split(part, beginning && part.data() == text.data(), &arena_,
                                    &pieces_);
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

int32_t TokenizerData::id_of(std::string_view token) const {
  const auto added = added_ids.find(token);
  if (added != added_ids.end()) return added->second;
  const auto it = bpe.vocab().find(token);
  return it == bpe.vocab().end() ? -1 : it->second;
}

const TokenizerData::Token* TokenizerData::find(int32_t id, bool skip_special) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens.size()) return nullptr;
  const Token& token = tokens[static_cast<size_t>(id)];
  return !token.known || (skip_special && token.special) ? nullptr : &token;
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
  std::string text;
  TextDecoder::State state;
  const TextDecoder& decoder = impl_->decoder;
  const bool just_bytes = decoder.just_bytes();  // which is five times as fast at once
  for (const int32_t id : ids) {
    const TokenizerData::Token* token = impl_->find(id, skip_special);
    if (token == nullptr) continue;
    if (just_bytes) {
      text += impl_->text_of(*token);
    } else {
      decoder.push(impl_->text_of(*token), &state, &text);
    }
  }
  if (just_bytes) return is_utf8(text) ? text : repair_utf8(text);
  decoder.finish(&state, &text);
  return text;
}

std::string Tokenizer::token_bytes(int32_t id, bool skip_special) const {
  const TokenizerData::Token* token = impl_->find(id, skip_special);
  return token == nullptr ? "" : impl_->decoder.alone(impl_->text_of(*token));
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(impl_->tokens.size());
}

int32_t Tokenizer::id_of(std::string_view token) const {
  return impl_->id_of(token);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->tokens[static_cast<size_t>(id)].special;
}

size_t Tokenizer::most_bytes_per_id() const {
  return impl_->most_bytes_per_id;
}

std::string StreamDecoder::push(int32_t id) {
  std::string text;
  const Tokenizer::Impl& impl = *tokenizer_->impl_;
  const TokenizerData::Token* token = impl.find(id, skip_special_);
  if (token != nullptr) impl.decoder.push(impl.text_of(*token), &state_, &text);
  return text;
}

std::string StreamDecoder::flush() {
  std::string text;
  tokenizer_->impl_->decoder.finish(&state_, &text);
  return text;
}

}  // namespace asap
