#include "asap/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "asap/chat/deepseek_v32.h"
#include "asap/chat/json.h"
#include "asap/model/read_file.h"

namespace asap {

namespace {

using jinja::DictBuilder;
using jinja::Kind;
using jinja::Template;
using jinja::Value;

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// What Hugging Face hands to templates of the special tokens.
constexpr std::array<std::string_view, 7> kSpecialTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

Result<Value> read_json(const std::string& path) {
  ASAP_ASSIGN(const std::string text, read_file(path, kMaxConfigBytes));
  auto value = jinja::parse_json(text);
  if (!value) return fail(Code::invalid, "{}: {}", path, value.error().message);
  if (!value->is(Kind::dict)) return fail(Code::invalid, "{}: it must be a JSON object", path);
  return value;
}

// The JSON object in a file, or an empty one if there is no such file.
Result<Value> read_json_if_any(const std::string& path) {
  if (!exists(path)) return DictBuilder().finish();
  return read_json(path);
}

const Value* present(const Value& object, std::string_view name) {
  const Value* found = object.dict().find(name);
  return found && !found->is_none() ? found : nullptr;
}

Value special_tokens(const Value& config) {
  DictBuilder tokens;
  for (const std::string_view name : kSpecialTokens) {
    const Value* token = present(config, name);
    // Either the text or a description that holds it.
    if (token && token->is(Kind::dict)) token = token->dict().find("content");
    if (token && token->is_string()) tokens.set(std::string(name), *token);
  }
  if (const Value* more = present(config, "additional_special_tokens")) {
    tokens.set("additional_special_tokens", *more);
  }
  return tokens.finish();
}

// A template's text with where it was found.
struct Source {
  std::string origin;
  std::string text;
  std::string tools_text;  // of the variant for conversations with tools; "": none
};

// "chat_template": a text, or a list of {name, template}.
Result<Source> source_of(const Value& value, const std::string& origin) {
  Source source;
  source.origin = origin;
  if (value.is_string()) {
    source.text = value.as_string();
    return source;
  }
  std::string names;
  if (value.is(Kind::sequence)) {
    for (const Value& entry : value.sequence().items) {
      const Value* name = entry.is(Kind::dict) ? entry.dict().find("name") : nullptr;
      const Value* text = entry.is(Kind::dict) ? entry.dict().find("template") : nullptr;
      if (!name || !text || !name->is_string() || !text->is_string()) {
        return fail(Code::invalid, "{}: each entry of chat_template needs a name and a template",
                    origin);
      }
      if (name->as_string() == "default") source.text = text->as_string();
      if (name->as_string() == "tool_use") source.tools_text = text->as_string();
      names += (names.empty() ? "" : ", ") + name->as_string();
    }
  }
  if (!source.text.empty()) return source;
  return fail(Code::invalid,
              "{}: chat_template must be a text, or a list with one named \"default\"{}", origin,
              names.empty() ? "" : "; there are " + names);
}

// Hugging Face's order: a file of its own wins over tokenizer_config.json.
Result<std::optional<Source>> find_source(const std::string& directory, const Value& config) {
  const std::string own = directory + "/chat_template.jinja";
  if (exists(own)) {
    Source source;
    source.origin = own;
    ASAP_ASSIGN(source.text, read_file(own, jinja::kMaxTemplateBytes));
    const std::string tools = directory + "/additional_chat_templates/tool_use.jinja";
    if (exists(tools)) {
      ASAP_ASSIGN(source.tools_text, read_file(tools, jinja::kMaxTemplateBytes));
    }
    return source;
  }
  const std::string json = directory + "/chat_template.json";
  ASAP_ASSIGN(const Value processor, read_json_if_any(json));
  for (const auto& [object, origin] :
       {std::pair(&processor, json), {&config, directory + "/tokenizer_config.json"}}) {
    if (const Value* value = present(*object, "chat_template")) return source_of(*value, origin);
  }
  return std::nullopt;
}

Result<std::vector<Template>> parse_source(const Source& source) {
  std::vector<Template> templates;
  for (const std::string* text : {&source.text, &source.tools_text}) {
    if (text == &source.tools_text && text->empty()) continue;
    auto parsed = Template::parse(*text);
    if (!parsed) {
      return fail(parsed.error().code, "chat template {}: {}", source.origin,
                  parsed.error().message);
    }
    templates.push_back(*std::move(parsed));
  }
  return templates;
}

// A model's type as config.json says, "" if it does not.
Result<std::string> model_type(const std::string& directory) {
  ASAP_ASSIGN(const Value config, read_json_if_any(directory + "/config.json"));
  const Value* type = present(config, "model_type");
  return type && type->is_string() ? type->as_string() : "";
}

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const std::string& directory) {
  ASAP_ASSIGN(const Value config, read_json_if_any(directory + "/tokenizer_config.json"));
  ASAP_ASSIGN(const std::optional<Source> source, find_source(directory, config));
  ChatTemplate made;
  if (source) {
    ASAP_ASSIGN(made.templates_, parse_source(*source));
    made.origin_ = source->origin;
  } else {
    ASAP_ASSIGN(const std::string type, model_type(directory));
    made.deepseek_v32_ = type == "deepseek_v32";
    made.origin_ = "built in for " + type;
    if (!made.deepseek_v32_) {
      return fail(Code::not_found,
                  "{} has no chat template (no chat_template.jinja, and no chat_template in "
                  "tokenizer_config.json): give one with --chat-template FILE",
                  directory);
    }
  }
  made.special_tokens_ = special_tokens(config);
  made.find_out_wants();
  return made;
}

Result<ChatTemplate> ChatTemplate::load_file(const std::string& file,
                                             const std::string& directory) {
  Source source;
  source.origin = file;
  ASAP_ASSIGN(source.text, read_file(file, jinja::kMaxTemplateBytes));
  ASAP_ASSIGN(const Value config, read_json_if_any(directory + "/tokenizer_config.json"));
  ChatTemplate made;
  ASAP_ASSIGN(made.templates_, parse_source(source));
  made.origin_ = file;
  made.special_tokens_ = special_tokens(config);
  made.find_out_wants();
  return made;
}

Result<ChatTemplate> ChatTemplate::parse(const std::string& text, const std::string& config) {
  Source source;
  source.origin = "(text)";
  source.text = text;
  Value tokens = DictBuilder().finish();
  if (!config.empty()) {
    ASAP_ASSIGN(const Value parsed, jinja::parse_json(config));
    if (!parsed.is(Kind::dict)) return fail(Code::invalid, "the configuration is no JSON object");
    tokens = special_tokens(parsed);
  }
  ChatTemplate made;
  ASAP_ASSIGN(made.templates_, parse_source(source));
  made.origin_ = source.origin;
  made.special_tokens_ = std::move(tokens);
  made.find_out_wants();
  return made;
}

const Template& ChatTemplate::chosen(bool with_tools) const {
  return with_tools && templates_.size() > 1 ? templates_[1] : templates_[0];
}

Result<std::string> ChatTemplate::render(const ChatInput& input, int64_t now) const {
  ChatInput ready = input;
  ASAP_ASSIGN(ready.messages, prepared(input.messages));
  return render_prepared(ready, now);
}

Result<std::string> ChatTemplate::render_prepared(const ChatInput& input, int64_t now) const {
  DictBuilder variables;
  for (const auto& [name, value] : special_tokens_.dict().entries) variables.set(name, value);
  variables.set("tools", input.tools.truth() ? input.tools : Value::none());
  variables.set("documents", Value::none());
  variables.set("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  if (input.variables.is(Kind::dict)) {
    for (const auto& [name, value] : input.variables.dict().entries) variables.set(name, value);
  }
  variables.set("messages", input.messages);
  const Value all = variables.finish();
  if (deepseek_v32_) return render_deepseek_v32(all);
  auto text = chosen(input.tools.truth()).render(all, now);
  if (text) return text;
  return fail(text.error().code, "chat template, {}", text.error().message);
}

}  // namespace asap
