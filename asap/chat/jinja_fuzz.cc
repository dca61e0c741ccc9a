// Fuzzes chat templates. The first byte chooses. Even: the rest is a template, rendered with a
// fixed conversation. Odd: the rest is a conversation as a client sends it, for a fixed template
// and for DeepSeek-V3.2's scheme.
#include <cstdint>
#include <string>
#include <string_view>

#include "asap/base/check.h"
#include "asap/chat/chat_template.h"
#include "asap/chat/deepseek_v32.h"
#include "asap/chat/json.h"
#include "asap/chat/template.h"
#include "asap/model/utf8.h"

namespace {

using asap::jinja::Value;

// Small, so that a run goes through many inputs.
constexpr asap::jinja::RenderLimits kLimits = {
    .output_bytes = size_t{1} << 20, .made_bytes = size_t{1} << 24, .steps = 100'000};

constexpr std::string_view kConversation = R"({"bos_token": "<s>", "eos_token": "</s>",
  "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters":
    {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "array",
    "items": {"type": "integer"}}}, "required": ["a"]}}}],
  "documents": null, "add_generation_prompt": true, "enable_thinking": false, "x": 1.5, "n": 3,
  "messages": [{"role": "system", "content": "You help."},
    {"role": "user", "content": "Straße 你好 🦆\n"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes", "reasoning_content": "r"},
    {"role": "user", "content": [{"type": "text", "text": "part"}]},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
      "function": {"name": "f", "arguments": {"a": "v", "b": [1, 2.0, true, null]}}}]},
    {"role": "tool", "name": "f", "tool_call_id": "1", "content": "21"}]})";

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
    "{% for c in m.tool_calls %}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v|tojson "
    "}}"
    "{% endfor %}{% endfor %}{% endfor %}{{ tools|tojson(indent=1) if tools }}";

// A text is UTF-8; an error says something.
void check(const asap::Result<std::string>& text) {
  if (text) {
    CHECK(asap::is_utf8(*text));
  } else {
    CHECK(!text.error().message.empty());
  }
}

void fuzz_template(std::string_view source) {
  static const auto variables = asap::jinja::parse_json(kConversation);
  CHECK(variables.has_value());
  const auto parsed = asap::jinja::Template::parse(source);
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
    return;
  }
  const auto text = parsed->render(*variables, 1'754'000'000, kLimits);
  check(text);
  if (text) CHECK(text->size() <= kLimits.output_bytes);
}

void fuzz_conversation(std::string_view body) {
  static const auto chat = asap::ChatTemplate::parse(kTemplate, "");
  CHECK(chat.has_value());
  const auto value = asap::jinja::parse_json(body);
  if (!value || !value->is(asap::jinja::Kind::dict)) return;
  asap::ChatInput input;
  if (const Value* messages = value->dict().find("messages")) input.messages = *messages;
  if (const Value* tools = value->dict().find("tools")) input.tools = *tools;
  input.variables = *value;
  check(chat->render(input, 0));
  check(asap::render_deepseek_v32(*value));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  data[0] % 2 == 0 ? fuzz_template(rest) : fuzz_conversation(rest);
  return 0;
}
