// Reads tokenizer.json and tokenizer_config.json. Both are untrusted: every size, id and nesting is
// bounded here.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "asap/model/json_reader.h"
#include "asap/model/read_file.h"
#include "asap/model/tokenizer_impl.h"
#include "asap/model/utf8.h"

namespace asap {

namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr int kMaxJsonDepth = 64;
constexpr size_t kMaxAddedTokens = size_t{1} << 20;
constexpr size_t kMaxAddedBytes =
    4096;  // of one added token: a text is searched in this times its length
constexpr size_t kMaxSpecials = 64;  // ids before or after a text
constexpr int kMaxSequenceDepth = 8;

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
  explicit Reader(TokenizerData* out) : out_(*out) {}

  Status read(const json& file) {
    ASAP_ASSIGN(out_.bpe, Bpe::parse(field(file, "model")));
    ASAP_ASSIGN(out_.pretokenizer, Pretokenizer::parse(field(file, "pre_tokenizer")));
    ASAP_TRY(read_normalizer(field(file, "normalizer"), 0));
    ASAP_TRY(read_vocab());
    ASAP_TRY(read_added_tokens(field(file, "added_tokens")));
    ASAP_TRY(read_post_processor(field(file, "post_processor"), 0));
    return read_decoder(field(file, "decoder"));
  }

  // add_bos_token, unless the post-processor puts that token first already.
  Status read_config(const json& config) {
    JsonReader reader(config, "tokenizer_config.json");
    const bool add_bos = reader.boolean_or("add_bos_token", false);
    ASAP_TRY(reader.status());
    if (!add_bos) return {};
    const json& token = field(config, "bos_token");
    const json& content = token.is_object() ? field(token, "content") : token;
    if (!content.is_string()) {
      return fail(Code::invalid,
                  "tokenizer_config.json: add_bos_token is true, but bos_token is not a string");
    }
    const std::string& text = content.get_ref<const std::string&>();
    const int32_t id = id_of(text);
    if (id < 0) {
      return fail(Code::invalid, "tokenizer_config.json: bos_token \"{}\" is not in tokenizer.json",
                  text.substr(0, 100));
    }
    if (out_.prefix.empty() || out_.prefix.front() != id) {
      out_.prefix.insert(out_.prefix.begin(), id);
    }
    return {};
  }

 private:
  int32_t id_of(std::string_view token) const {
    const auto added = out_.added_ids.find(token);
    if (added != out_.added_ids.end()) return added->second;
    const auto it = out_.bpe.vocab().find(token);
    return it == out_.bpe.vocab().end() ? -1 : it->second;
  }

  // Enters `text` under `id`. A token outside the byte alphabet stands for its own characters.
  Status define(int32_t id, const std::string& text) {
    const auto index = static_cast<size_t>(id);
    if (index >= out_.tokens.size()) out_.tokens.resize(index + 1);
    TokenizerData::Token& token = out_.tokens[index];
    if (token.known) {
      return fail(Code::invalid, "tokenizer.json: id {} is given to more than one token", id);
    }
    const std::string bytes = bytes_of_alphabet(text).value_or(text);
    token.begin = static_cast<uint32_t>(out_.bytes.size());
    token.length = static_cast<uint32_t>(bytes.size());
    token.known = true;
    out_.bytes += bytes;
    return {};
  }

  Status read_vocab() {
    for (const auto& [text, id] : out_.bpe.vocab()) ASAP_TRY(define(id, text));
    return {};
  }

  Status read_normalizer(const json& config, int depth) {
    if (config.is_null()) return {};
    JsonReader reader(config, "tokenizer.json: normalizer");
    const std::string type = reader.string_or("type", "");
    ASAP_TRY(reader.status());
    if (type == "NFC") {
      out_.normalize_nfc = true;
      return {};
    }
    const json& list = field(config, "normalizers");
    if (type != "Sequence" || !list.is_array() || depth > kMaxSequenceDepth) {
      return fail(Code::unsupported,
                  "tokenizer.json: normalizer \"{}\" is not supported; known are NFC and Sequence",
                  type);
    }
    for (const json& step : list) ASAP_TRY(read_normalizer(step, depth + 1));
    return {};
  }

  Status read_added_tokens(const json& list) {
    if (list.is_null()) return {};
    if (!list.is_array() || list.size() > kMaxAddedTokens) {
      return fail(Code::invalid, "tokenizer.json: added_tokens is not a list of at most {} entries",
                  kMaxAddedTokens);
    }
    for (const json& entry : list) ASAP_TRY(read_added_token(entry));
    return {};
  }

  Status read_added_token(const json& entry) {
    JsonReader reader(entry, "tokenizer.json: added_tokens");
    AddedToken token;
    token.id = reader.integer("id", 0, kMaxTokenId - 1);
    token.content = reader.string_or("content", "");
    token.single_word = reader.boolean_or("single_word", false);
    token.lstrip = reader.boolean_or("lstrip", false);
    token.rstrip = reader.boolean_or("rstrip", false);
    token.special = reader.boolean_or("special", false);
    token.normalized = reader.boolean_or("normalized", !token.special);
    ASAP_TRY(reader.status());
    if (token.content.size() > kMaxAddedBytes) {
      return fail(Code::invalid, "tokenizer.json: added token {} has {} bytes; the limit is {}",
                  token.id, token.content.size(), kMaxAddedBytes);
    }
    const int32_t before = id_of(token.content);
    if (before >= 0 && before != token.id) {
      return fail(Code::invalid, "tokenizer.json: token \"{}\" has two ids, {} and {}",
                  token.content.substr(0, 100), before, token.id);
    }
    if (before < 0) ASAP_TRY(define(token.id, token.content));
    if (!out_.added_ids.emplace(token.content, token.id).second) return {};
    out_.tokens[static_cast<size_t>(token.id)].special = token.special;
    if (!token.normalized) {
      out_.raw_tokens.add(token, token.content);
    } else {
      out_.normalized_tokens.add(token, out_.normalize_nfc ? nfc(token.content) : token.content);
    }
    return {};
  }

  Status read_post_processor(const json& config, int depth) {
    if (config.is_null()) return {};
    JsonReader reader(config, "tokenizer.json: post_processor");
    const std::string type = reader.string_or("type", "");
    ASAP_TRY(reader.status());
    if (type == "ByteLevel") return {};  // trims offsets, adds nothing
    if (type == "TemplateProcessing") return read_template(config);
    const json& list = field(config, "processors");
    if (type != "Sequence" || !list.is_array() || depth > kMaxSequenceDepth) {
      return fail(Code::unsupported,
                  "tokenizer.json: post_processor \"{}\" is not supported; known are ByteLevel, "
                  "TemplateProcessing and Sequence",
                  type);
    }
    for (const json& step : list) ASAP_TRY(read_post_processor(step, depth + 1));
    return {};
  }

  // The template for one text: special tokens before and after exactly one {"Sequence": {"id":
  // "A"}}.
  Status read_template(const json& config) {
    const json& single = field(config, "single");
    std::vector<int32_t> before, after;
    int sequences = 0;
    for (const json& item : single.is_array() ? single : json::array()) {
      if (item.is_object() && item.contains("Sequence")) {
        ++sequences;
      } else {
        ASAP_TRY(read_special(config, item, sequences == 0 ? &before : &after));
      }
    }
    if (sequences != 1) {
      return fail(
          Code::invalid,
          "tokenizer.json: TemplateProcessing: \"single\" holds {} sequences instead of one",
          sequences);
    }
    out_.prefix.insert(out_.prefix.begin(), before.begin(), before.end());
    out_.suffix.insert(out_.suffix.end(), after.begin(), after.end());
    if (out_.prefix.size() > kMaxSpecials || out_.suffix.size() > kMaxSpecials) {
      return fail(Code::invalid, "tokenizer.json: post_processor adds more than {} tokens",
                  kMaxSpecials);
    }
    return {};
  }

  // {"SpecialToken": {"id": NAME}}; its ids stand in config.special_tokens[NAME].ids.
  Status read_special(const json& config, const json& item, std::vector<int32_t>* out) {
    static const json null;
    const json& special = item.is_object() ? field(item, "SpecialToken") : null;
    const json& name = special.is_object() ? field(special, "id") : null;
    const json& all = field(config, "special_tokens");
    const json& entry = name.is_string() && all.is_object()
                            ? field(all, name.get_ref<const std::string&>().c_str())
                            : null;
    const json& ids = entry.is_object() ? field(entry, "ids") : null;
    if (!ids.is_array() || ids.size() > kMaxSpecials) {
      return fail(Code::invalid,
                  "tokenizer.json: TemplateProcessing: an item of \"single\" has no ids in "
                  "special_tokens");
    }
    for (const json& id : ids) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= out_.tokens.size() ||
          !out_.tokens[id.get<size_t>()].known) {
        return fail(Code::invalid, "tokenizer.json: TemplateProcessing: id {} is no token",
                    id.dump());
      }
      out->push_back(id.get<int32_t>());
    }
    return {};
  }

  Status read_decoder(const json& config) {
    JsonReader reader(config, "tokenizer.json: decoder");
    const std::string type = config.is_object() ? reader.string_or("type", "") : "none";
    ASAP_TRY(reader.status());
    if (type == "ByteLevel") return {};
    return fail(Code::unsupported,
                "tokenizer.json: decoder \"{}\" is not supported; only ByteLevel is", type);
  }

  TokenizerData& out_;
};

}  // namespace

Result<Tokenizer> Tokenizer::parse(const std::string& tokenizer_json, const std::string& config) {
  ASAP_ASSIGN(const json file, parse_object(tokenizer_json, "tokenizer.json"));
  auto impl = std::make_unique<Impl>();
  Reader reader(impl.get());
  ASAP_TRY(reader.read(file));
  if (!config.empty()) {
    ASAP_ASSIGN(const json settings, parse_object(config, "tokenizer_config.json"));
    ASAP_TRY(reader.read_config(settings));
  }
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
  const std::string config_path = directory + "/tokenizer_config.json";
  ASAP_ASSIGN(const std::string file, read_file(directory + "/tokenizer.json", kMaxFileBytes));
  std::string config;
  std::error_code error;
  if (std::filesystem::exists(config_path, error)) {
    ASAP_ASSIGN(config, read_file(config_path, kMaxFileBytes));
  }
  Result<Tokenizer> out = parse(file, config);
  if (!out) return fail(out.error().code, "{}/{}", directory, out.error().message);
  return out;
}

}  // namespace asap
