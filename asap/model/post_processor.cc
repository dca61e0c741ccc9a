#include "asap/model/post_processor.h"

#include <nlohmann/json.hpp>

#include "asap/model/json_reader.h"

namespace asap {

namespace {

using nlohmann::json;

constexpr size_t kMaxSpecials = 64;  // ids before or after a text
constexpr int kMaxPostProcessorDepth = 8;

constexpr char kPostProcessorWhere[] = "tokenizer.json: post_processor";

// A value of the object, or null.
const json& field(const json& object, const std::string& key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

class FrameReader {
 public:
  explicit FrameReader(const std::function<bool(int64_t)>& is_token) : is_token_(is_token) {}

  Status add(const json& config, int depth) {
    if (!config.is_object()) return fail(Code::invalid, "{} is not an object", kPostProcessorWhere);
    JsonReader reader(config, kPostProcessorWhere);
    const std::string type = reader.string_or("type", "");
    ASAP_TRY(reader.status());
    if (depth > kMaxPostProcessorDepth) {
      return fail(Code::invalid, "{}: more than {} nested sequences", kPostProcessorWhere,
                  kMaxPostProcessorDepth);
    }
    if (type == "ByteLevel") return {};  // trims offsets, adds nothing
    if (type == "TemplateProcessing") return add_template(config);
    if (type == "BertProcessing" || type == "RobertaProcessing") return add_pair(config, type);
    if (type != "Sequence") {
      return fail(Code::unsupported,
                  "{}: type \"{}\" is not supported; known are ByteLevel, TemplateProcessing, "
                  "BertProcessing, RobertaProcessing, Sequence",
                  kPostProcessorWhere, type);
    }
    const json& list = field(config, "processors");
    if (!list.is_array()) {
      return fail(Code::invalid, "{}: Sequence has no list \"processors\"", kPostProcessorWhere);
    }
    for (const json& step : list) ASAP_TRY(add(step, depth + 1));
    return {};
  }

  Frame take() { return std::move(frame_); }

 private:
  // The template for one text: special tokens before and after exactly one {"Sequence": {"id":
  // "A"}}.
  Status add_template(const json& config) {
    const json& single = field(config, "single");
    std::vector<int32_t> before, after;
    int sequences = 0;
    for (const json& item : single.is_array() ? single : json::array()) {
      if (item.is_object() && item.contains("Sequence")) {
        ++sequences;
      } else {
        ASAP_TRY(add_special(config, item, sequences == 0 ? &before : &after));
      }
    }
    if (sequences != 1) {
      return fail(Code::invalid,
                  "{}: TemplateProcessing: \"single\" holds {} sequences instead of one",
                  kPostProcessorWhere, sequences);
    }
    return put_around(before, after);
  }

  // {"SpecialToken": {"id": NAME}}; its ids stand in config.special_tokens[NAME].ids.
  Status add_special(const json& config, const json& item, std::vector<int32_t>* out) {
    const json& name = field(field(item, "SpecialToken"), "id");
    const json& entry = field(field(config, "special_tokens"),
                              name.is_string() ? name.get_ref<const std::string&>() : "");
    const json& ids = field(entry, "ids");
    if (!ids.is_array() || ids.size() > kMaxSpecials) {
      return fail(Code::invalid,
                  "{}: TemplateProcessing: an item of \"single\" has no ids in special_tokens",
                  kPostProcessorWhere);
    }
    for (const json& id : ids) ASAP_TRY(add_id("TemplateProcessing", id, out));
    return {};
  }

  // "cls" and "sep", each ["<s>", 0].
  Status add_pair(const json& config, const std::string& type) {
    std::vector<int32_t> before, after;
    for (const char* key : {"cls", "sep"}) {
      const json& token = field(config, key);
      if (!token.is_array() || token.size() != 2) {
        return fail(Code::invalid, "{}: {}: \"{}\" is not a token and its id", kPostProcessorWhere,
                    type, key);
      }
      ASAP_TRY(add_id(type, token[1], before.empty() ? &before : &after));
    }
    return put_around(before, after);
  }

  Status add_id(const std::string& type, const json& id, std::vector<int32_t>* out) {
    if (!id.is_number_integer() || !is_token_(id.get<int64_t>())) {
      return fail(Code::invalid, "{}: {}: id {} is no token", kPostProcessorWhere, type, shown(id));
    }
    out->push_back(id.get<int32_t>());
    return {};
  }

  Status put_around(const std::vector<int32_t>& before, const std::vector<int32_t>& after) {
    frame_.prefix.insert(frame_.prefix.begin(), before.begin(), before.end());
    frame_.suffix.insert(frame_.suffix.end(), after.begin(), after.end());
    if (frame_.prefix.size() <= kMaxSpecials && frame_.suffix.size() <= kMaxSpecials) return {};
    return fail(Code::invalid, "{} adds more than {} tokens", kPostProcessorWhere, kMaxSpecials);
  }

  const std::function<bool(int64_t)>& is_token_;
  Frame frame_;
};

}  // namespace

Result<Frame> Frame::parse(const json& config, const std::function<bool(int64_t)>& is_token) {
  FrameReader reader(is_token);
  if (!config.is_null()) ASAP_TRY(reader.add(config, 0));
  return reader.take();
}

}  // namespace asap
