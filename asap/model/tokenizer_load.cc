// Reads tokenizer.json, tiktoken.model and tokenizer_config.json. All are untrusted: every size, id
// and nesting is bounded here.

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "asap/model/json_reader.h"
#include "asap/model/post_processor.h"
#include "asap/model/read_file.h"
#include "asap/model/tiktoken.h"
#include "asap/model/tokenizer_impl.h"

namespace asap {

namespace {

using nlohmann::json;

constexpr char kJsonFile[] = "tokenizer.json";
constexpr char kTiktokenFile[] = "tiktoken.model";
constexpr char kConfigFile[] = "tokenizer_config.json";

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr int kMaxJsonDepth = 64;
constexpr size_t kMaxAddedTokens = size_t{1} << 20;
// Of one added token: searching a text for it takes up to its length times that of the text.
constexpr size_t kMaxAddedBytes = 4096;
constexpr size_t kMaxTexts = size_t{1} << 30;  // of all tokens together, as the decoder takes them
constexpr int32_t kTiktokenSpecials = 256;     // ids after those of tiktoken.model

// Depth is counted before parsing: what walks the document later (a message that quotes it, for
// one) may recurse.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) {
      if (c == '\\') ++i;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxJsonDepth) return true;
  }
  return false;
}

Result<json> parse_object(const std::string& text, const char* file) {
  if (text.size() > kMaxFileBytes) {
    return fail(Code::invalid, "{}: {} bytes exceed {}", file, text.size(), kMaxFileBytes);
  }
  if (too_deep(text)) {
    return fail(Code::invalid, "{}: JSON is nested deeper than {}", file, kMaxJsonDepth);
  }
  json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return fail(Code::invalid, "{} is not a JSON object", file);
  return document;
}

// A value of the document, or null.
const json& field(const json& object, const char* key) {
  static const json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

// Builds the parts of a Tokenizer in the order in which they depend on each other.
class Reader {
 public:
  Reader(const char* file, TokenizerData* out) : file_(file), out_(*out) {}

  Status read_json(const json& file) {
    ASAP_ASSIGN(out_.normalizer, Normalizer::parse(field(file, "normalizer")));
    ASAP_ASSIGN(out_.pretokenizer, Pretokenizer::parse(field(file, "pre_tokenizer")));
    if (out_.pretokenizer.minds_beginning() && !out_.normalizer.empty()) {
      // Hugging Face's library asks from where the first character came, which is lost here.
      return fail(
          Code::unsupported,
          "{}: pre_tokenizer: Metaspace with prepend_scheme \"first\" after a normalizer is "
          "not supported",
          file_);
    }
    ASAP_ASSIGN(out_.decoder, TextDecoder::parse(field(file, "decoder")));
    ASAP_ASSIGN(out_.bpe, Bpe::parse(field(file, "model"), out_.pretokenizer.byte_level()));
    for (const auto& [text, id] : out_.bpe.vocab()) ASAP_TRY(define(id, text));
    ASAP_TRY(read_added_tokens(field(file, "added_tokens")));
    const auto is_token = [&](int64_t id) {
      return id >= 0 && id < kMaxTokenId && out_.find(static_cast<int32_t>(id), false) != nullptr;
    };
    ASAP_ASSIGN(Frame frame, Frame::parse(field(file, "post_processor"), is_token));
    out_.prefix = std::move(frame.prefix);
    out_.suffix = std::move(frame.suffix);
    find_most_bytes_per_id();
    return {};
  }

  // The special tokens of `config` follow the ranks; ids that it does not name are reserved.
  Status read_tiktoken(const std::string& text, const json& config) {
    ASAP_ASSIGN(const std::vector<std::string> tokens, parse_tiktoken(text));
    ASAP_ASSIGN(out_.pretokenizer, Pretokenizer::kimi());
    out_.decoder = TextDecoder::bytes();
    out_.bpe = Bpe::from_ranks(tokens);
    const auto base = static_cast<int32_t>(tokens.size());
    for (int32_t id = 0; id < base; ++id) ASAP_TRY(define(id, tokens[static_cast<size_t>(id)]));
    ASAP_ASSIGN(const auto named, read_names(base, field(config, "added_tokens_decoder")));
    for (int32_t id = base; id < base + kTiktokenSpecials; ++id) {
      if (named.contains(id)) continue;
      AddedToken reserved;
      reserved.id = id;
      reserved.content = fmt::format("<|reserved_token_{}|>", id);
      reserved.special = true;
      ASAP_TRY(add(reserved));
    }
    find_most_bytes_per_id();
    return {};
  }

  // add_bos_token and add_eos_token, unless the post-processor puts that token there already.
  Status read_config(const json& config) {
    JsonReader reader(config, kConfigFile);
    const bool add_bos = reader.boolean_or("add_bos_token", false);
    const bool add_eos = reader.boolean_or("add_eos_token", false);
    ASAP_TRY(reader.status());
    if (add_bos) {
      ASAP_ASSIGN(const int32_t id, config_token(config, "bos_token"));
      if (out_.prefix.empty() || out_.prefix.front() != id) {
        out_.prefix.insert(out_.prefix.begin(), id);
      }
    }
    if (add_eos) {
      ASAP_ASSIGN(const int32_t id, config_token(config, "eos_token"));
      if (out_.suffix.empty() || out_.suffix.back() != id) out_.suffix.push_back(id);
    }
    return {};
  }

 private:
  // Enters `text` under `id`.
  Status define(int32_t id, const std::string& text) {
    const auto index = static_cast<size_t>(id);
    if (index >= out_.tokens.size()) out_.tokens.resize(index + 1);
    TokenizerData::Token& token = out_.tokens[index];
    if (token.known) {
      return fail(Code::invalid, "{}: id {} is given to more than one token", file_, id);
    }
    const std::string prepared = out_.decoder.prepared(text);
    if (out_.texts.size() + prepared.size() > kMaxTexts) {
      return fail(Code::invalid, "{}: the texts of all tokens exceed {} bytes", file_, kMaxTexts);
    }
    token.begin = static_cast<uint32_t>(out_.texts.size());
    token.length = static_cast<uint32_t>(prepared.size());
    token.known = true;
    out_.texts += prepared;
    return {};
  }

  Status read_added_tokens(const json& list) {
    if (list.is_null()) return {};
    if (!list.is_array() || list.size() > kMaxAddedTokens) {
      return fail(Code::invalid, "{}: added_tokens is not a list of at most {} entries", file_,
                  kMaxAddedTokens);
    }
    for (const json& entry : list) {
      JsonReader reader(entry, fmt::format("{}: added_tokens", file_));
      const int32_t id = reader.integer("id", 0, kMaxTokenId - 1);
      ASAP_TRY(read_added_token(id, reader));
    }
    return {};
  }

  // added_tokens_decoder of tokenizer_config.json, whose keys are ids. Gives the ids.
  Result<std::set<int32_t>> read_names(int32_t base, const json& names) {
    std::set<int32_t> ids;
    if (names.is_null()) return ids;
    if (!names.is_object() || names.size() > kMaxAddedTokens) {
      return fail(Code::invalid, "{}: added_tokens_decoder is not an object of at most {} entries",
                  kConfigFile, kMaxAddedTokens);
    }
    for (const auto& [key, entry] : names.items()) {
      int32_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || id < base ||
          id >= kMaxTokenId) {
        return fail(Code::invalid, "{}: added_tokens_decoder: \"{}\" is not an id from {} on",
                    kConfigFile, key.substr(0, 100), base);
      }
      JsonReader reader(entry, fmt::format("{}: added_tokens_decoder", kConfigFile));
      ASAP_TRY(read_added_token(id, reader));
      ids.insert(id);
    }
    return ids;
  }

  Status read_added_token(int32_t id, JsonReader& reader) {
    if (!reader.has("content")) {
      return fail(Code::invalid, "{}: the token of id {} has no content", reader.file(), id);
    }
    AddedToken token;
    token.id = id;
    token.content = reader.string_or("content", "");
    token.single_word = reader.boolean_or("single_word", false);
    token.lstrip = reader.boolean_or("lstrip", false);
    token.rstrip = reader.boolean_or("rstrip", false);
    token.special = reader.boolean_or("special", false);
    token.normalized = reader.boolean_or("normalized", !token.special);
    ASAP_TRY(reader.status());
    return add(token);
  }

  Status add(const AddedToken& token) {
    if (token.content.size() > kMaxAddedBytes) {
      return fail(Code::invalid, "{}: added token {} has {} bytes; the limit is {}", file_,
                  token.id, token.content.size(), kMaxAddedBytes);
    }
    const int32_t before = out_.id_of(token.content);
    if (before >= 0 && before != token.id) {
      return fail(Code::invalid, "{}: token \"{}\" has two ids, {} and {}", file_,
                  token.content.substr(0, 100), before, token.id);
    }
    if (before < 0) ASAP_TRY(define(token.id, token.content));
    if (!out_.added_ids.emplace(token.content, token.id).second) return {};
    out_.tokens[static_cast<size_t>(token.id)].special = token.special;
    const std::string pattern =
        token.normalized ? out_.normalizer.apply(token.content) : token.content;
    longest_added_ = std::max({longest_added_, token.content.size(), pattern.size()});
    absorbs_ = absorbs_ || token.lstrip || token.rstrip;
    AddedTokens& tokens = token.normalized ? out_.normalized_tokens : out_.raw_tokens;
    if (tokens.add(token, pattern) && pattern.empty() == token.content.empty()) return {};
    return fail(
        Code::unsupported,
        "{}: added token {} is to be normalized, which leaves nothing of it or what is left "
        "of another one; that is not supported",
        file_, token.id);
  }

  void find_most_bytes_per_id() {
    const size_t of_pieces = out_.bpe.most_bytes_per_id();
    if (of_pieces == 0 || absorbs_ || out_.pretokenizer.removes()) return;
    out_.most_bytes_per_id =
        std::max(of_pieces, longest_added_) * out_.normalizer.most_bytes_per_byte();
  }

  // The id of bos_token or eos_token: a text, or an object that holds it.
  Result<int32_t> config_token(const json& config, const char* key) const {
    const json& token = field(config, key);
    const json& content = token.is_object() ? field(token, "content") : token;
    if (!content.is_string()) {
      return fail(Code::invalid, "{}: {} is to be added, but it is not a string", kConfigFile, key);
    }
    const std::string& text = content.get_ref<const std::string&>();
    const int32_t id = out_.id_of(text);
    if (id >= 0) return id;
    return fail(Code::invalid, "{}: {} \"{}\" is not in {}", kConfigFile, key, text.substr(0, 100),
                file_);
  }

  const char* file_;
  TokenizerData& out_;
  size_t longest_added_ = 0;  // bytes
  bool absorbs_ = false;      // an added token takes the white space beside it
};

Result<json> parse_config(const std::string& text) {
  if (text.empty()) return json::object();
  return parse_object(text, kConfigFile);
}

}  // namespace

Result<Tokenizer> Tokenizer::parse(const std::string& tokenizer_json, const std::string& config) {
  ASAP_ASSIGN(const json file, parse_object(tokenizer_json, kJsonFile));
  ASAP_ASSIGN(const json settings, parse_config(config));
  auto impl = std::make_unique<Impl>();
  Reader reader(kJsonFile, impl.get());
  ASAP_TRY(reader.read_json(file));
  ASAP_TRY(reader.read_config(settings));
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::parse_tiktoken(const std::string& tiktoken_model,
                                            const std::string& config) {
  ASAP_ASSIGN(const json settings, parse_config(config));
  auto impl = std::make_unique<Impl>();
  Reader reader(kTiktokenFile, impl.get());
  ASAP_TRY(reader.read_tiktoken(tiktoken_model, settings));
  ASAP_TRY(reader.read_config(settings));
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
  const auto path = [&](const char* file) { return fmt::format("{}/{}", directory, file); };
  const auto exists = [&](const char* file) {
    std::error_code error;
    return std::filesystem::exists(path(file), error);
  };
  const bool tiktoken = !exists(kJsonFile) && exists(kTiktokenFile);
  const char* name = tiktoken ? kTiktokenFile : kJsonFile;
  ASAP_ASSIGN(const std::string file, read_file(path(name), kMaxFileBytes));
  std::string config;
  if (exists(kConfigFile)) {
    ASAP_ASSIGN(config, read_file(path(kConfigFile), kMaxFileBytes));
  }
  Result<Tokenizer> out = tiktoken ? parse_tiktoken(file, config) : parse(file, config);
  if (!out) return fail(out.error().code, "{}/{}", directory, out.error().message);
  return out;
}

}  // namespace asap
