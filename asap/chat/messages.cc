// ChatTemplate: messages as clients send them, checked and put into the form that the template
// wants.
#include <algorithm>

#include "asap/chat/chat_template.h"
#include "asap/chat/json.h"

namespace asap {

namespace {

using jinja::DictBuilder;
using jinja::Kind;
using jinja::Value;

// A probe's words, which no template writes by itself.
constexpr std::string_view kProbe = "PROBE-7f3a";

Value text(std::string_view value) {
  return Value::text(std::string(value));
}

Value object(std::vector<std::pair<std::string, Value>> fields) {
  DictBuilder dict;
  for (auto& [name, value] : fields) dict.set(std::move(name), std::move(value));
  return dict.finish();
}

// The same fields with some replaced.
Value with(const Value& dict, std::vector<std::pair<std::string, Value>> fields) {
  DictBuilder out;
  for (const auto& [name, value] : dict.dict().entries) out.set(name, value);
  for (auto& [name, value] : fields) out.set(std::move(name), std::move(value));
  return out.finish();
}

Value part(std::string_view words) {
  return object({{"type", text("text")}, {"text", text(words)}});
}

Value message(std::string_view role, Value content) {
  return object({{"role", text(role)}, {"content", std::move(content)}});
}

// A question, a tool call of the assistant, and its result.
Value calling(Value content, Value arguments) {
  const Value call = object(
      {{"id", text("call_1")},
       {"type", text("function")},
       {"function", object({{"name", text("probe")}, {"arguments", std::move(arguments)}})}});
  const Value assistant =
      with(message("assistant", std::move(content)), {{"tool_calls", jinja::make_list({call})}});
  const Value result = with(message("tool", text("21")),
                            {{"tool_call_id", text("call_1")}, {"name", text("probe")}});
  return jinja::make_list({message("user", text("q")), assistant, result});
}

Result<Value> prepared_parts(const Value& parts, const std::string& path) {
  std::string joined;
  for (size_t i = 0; i < parts.sequence().items.size(); ++i) {
    const Value& one = parts.sequence().items[i];
    const std::string where = fmt::format("{}.content[{}]", path, i);
    if (!one.is(Kind::dict)) {
      return fail(Code::invalid, "{} is a {}: expected an object with \"type\" and \"text\"", where,
                  one.type_name());
    }
    const Value* type = one.dict().find("type");
    const Value* words = one.dict().find("text");
    if (type && type->is_string() && type->as_string() != "text") {
      return fail(Code::unsupported, "{} has the type \"{}\": this server takes text only", where,
                  type->as_string());
    }
    if (!type || !type->is_string() || !words || !words->is_string()) {
      return fail(Code::invalid, "{} must be {{\"type\":\"text\",\"text\":\"...\"}}", where);
    }
    if (i > 0) joined += '\n';
    joined += words->as_string();
  }
  return Value::text(std::move(joined));
}

// Arguments as an object, or as its JSON.
Result<Value> prepared_arguments(const Value& arguments, bool as_text, const std::string& path) {
  if (as_text) {
    if (arguments.is_string()) return arguments;
    const jinja::RenderLimits limits;
    jinja::Budget budget(limits);
    std::string out;
    ASAP_TRY(
        jinja::append_json(arguments.is(Kind::dict) ? arguments : object({}), {}, out, budget));
    return Value::text(std::move(out));
  }
  if (!arguments.is_string()) return arguments.is(Kind::dict) ? arguments : object({});
  if (arguments.as_string().empty()) return object({});
  const auto parsed = jinja::parse_json(arguments.as_string());
  if (parsed && parsed->is(Kind::dict)) return *parsed;
  return fail(Code::invalid, "{}.function.arguments is no JSON object{}", path,
              parsed ? "" : ": " + parsed.error().message);
}

Result<Value> prepared_calls(const Value& calls, bool arguments_text, const std::string& path) {
  if (!calls.is(Kind::sequence)) {
    return fail(Code::invalid, "{}.tool_calls is a {}: expected an array", path, calls.type_name());
  }
  std::vector<Value> out;
  for (const Value& call : calls.sequence().items) {
    const std::string where = fmt::format("{}.tool_calls[{}]", path, out.size());
    const Value* function = call.is(Kind::dict) ? call.dict().find("function") : nullptr;
    const Value* name =
        function && function->is(Kind::dict) ? function->dict().find("name") : nullptr;
    if (!name || !name->is_string()) {
      return fail(Code::invalid, "{} needs a function with a name", where);
    }
    const Value* given = function->dict().find("arguments");
    ASAP_ASSIGN(Value arguments,
                prepared_arguments(given ? *given : Value::none(), arguments_text, where));
    out.push_back(
        with(call, {{"function", with(*function, {{"arguments", std::move(arguments)}})}}));
  }
  return jinja::make_list(std::move(out));
}

}  // namespace

void ChatTemplate::find_out_wants() {
  // The built-in scheme takes texts and objects, and no content as none.
  wants_ = Wants{false, false, deepseek_v32_};
  if (deepseek_v32_) return;
  const auto rendered = [&](Value messages) {
    ChatInput input;
    input.messages = std::move(messages);
    return render_prepared(input, 0);
  };
  const auto shows = [](const Result<std::string>& result, std::string_view words) {
    return result && result->find(words) != std::string::npos;
  };
  const auto whole = rendered(jinja::make_list({message("user", text(kProbe))}));
  const auto parts =
      rendered(jinja::make_list({message("user", jinja::make_list({part(kProbe)}))}));
  wants_.parts = whole && parts && *whole == *parts && shows(whole, kProbe);

  const Value as_object = object({{"q", text(kProbe)}});
  const Value as_text = text(fmt::format("{{\"q\": \"{}\"}}", kProbe));
  wants_.arguments_text = !shows(rendered(calling(text(""), as_object)), kProbe) &&
                          shows(rendered(calling(text(""), as_text)), kProbe);

  const Value& arguments = wants_.arguments_text ? as_text : as_object;
  const auto with_empty = rendered(calling(text(""), arguments));
  const auto without = rendered(calling(Value::none(), arguments));
  // Some print what they are given, and so the word None.
  wants_.null_content =
      shows(without, kProbe) && (!shows(without, "None") || shows(with_empty, "None"));
}

Result<Value> ChatTemplate::prepared(const Value& messages) const {
  if (!messages.is(Kind::sequence)) {
    return fail(Code::invalid, "messages is a {}: expected an array", messages.type_name());
  }
  std::vector<Value> out;
  for (const Value& one : messages.sequence().items) {
    ASAP_ASSIGN(Value ready, prepared_message(one, fmt::format("messages[{}]", out.size())));
    out.push_back(std::move(ready));
  }
  return jinja::make_list(std::move(out));
}

Result<Value> ChatTemplate::prepared_message(const Value& message, const std::string& path) const {
  const Value* role = message.is(Kind::dict) ? message.dict().find("role") : nullptr;
  if (!role || !role->is_string()) {
    return fail(Code::invalid, "{} must be an object with a \"role\"", path);
  }
  DictBuilder out;
  const Value* calls = message.dict().find("tool_calls");
  const bool has_calls = calls && calls->truth();
  for (const auto& [name, value] : message.dict().entries) {
    if (name.as_string() != "tool_calls") {
      out.set(name, value);
    } else if (has_calls) {  // an empty list or null means the same as none
      ASAP_ASSIGN(Value ready, prepared_calls(value, wants_.arguments_text, path));
      out.set(name, std::move(ready));
    }
  }
  const Value* content = message.dict().find("content");
  if (!content || content->is_none()) {
    out.set("content", has_calls && wants_.null_content ? Value::none() : text(""));
  } else if (content->is(Kind::sequence)) {
    ASAP_ASSIGN(Value joined, prepared_parts(*content, path));
    if (!wants_.parts) out.set("content", std::move(joined));
  } else if (!content->is_string()) {
    return fail(Code::invalid, "{}.content is a {}: expected a string or an array of parts", path,
                content->type_name());
  }
  return out.finish();
}

}  // namespace asap
