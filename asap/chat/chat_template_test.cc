// Where templates come from, what is done to messages before they reach one, and DeepSeek-V3.2's
// built-in scheme against its second implementation (tests/golden/templates/deepseek_v32.py).
#include "asap/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "asap/base/check.h"
#include "asap/chat/test_support.h"
#include "asap/model/test_support.h"

namespace asap {
namespace {

using jinja::DictBuilder;
using jinja::Value;
using testing::HasSubstr;

Value json(const std::string& text) {
  auto value = jinja::parse_json(text);
  EXPECT_TRUE(value) << text << ": " << value.error().message;
  return value.value_or(Value());
}

// A conversation as one object: messages, tools, and the rest as variables.
ChatInput input_of(const Value& conversation) {
  ChatInput input;
  input.tools = Value::none();
  DictBuilder variables;
  for (const auto& [name, value] : conversation.dict().entries) {
    if (name.as_string() == "messages") {
      input.messages = value;
    } else if (name.as_string() == "tools") {
      input.tools = value;
    } else if (name.as_string() == "add_generation_prompt") {
      input.add_generation_prompt = value.truth();
    } else {
      variables.set(name, value);
    }
  }
  input.variables = variables.finish();
  return input;
}

Result<std::string> render(const ChatTemplate& chat, const std::string& conversation) {
  return chat.render(input_of(json(conversation)), jinja::test::kNow);
}

std::string text_of(const std::string& source, const std::string& conversation) {
  const auto chat = ChatTemplate::parse(source, "");
  EXPECT_TRUE(chat) << chat.error().message;
  const auto text = render(*chat, conversation);
  EXPECT_TRUE(text) << conversation << ": " << text.error().message;
  return text.value_or("");
}

constexpr const char* kHello = R"({"messages":[{"role":"user","content":"hi"}]})";

// ---- where templates come from

TEST(ChatTemplate, ReadsEveryPlaceInOrder) {
  const TemporaryDirectory directory;
  const auto shown = [&]() -> std::string {
    const auto chat = ChatTemplate::load(directory.path());
    if (!chat) return chat.error().message;
    return render(*chat, kHello).value_or("error");
  };
  EXPECT_THAT(shown(), HasSubstr("no chat template"));
  EXPECT_THAT(shown(), HasSubstr("--chat-template"));
  directory.write("tokenizer_config.json", R"({"chat_template":"config {{ bos_token }}",
      "bos_token":{"content":"<s>","lstrip":false},"eos_token":null})");
  EXPECT_EQ(shown(), "config <s>");
  directory.write("chat_template.json", R"({"chat_template":"json {{ bos_token }}"})");
  EXPECT_EQ(shown(), "json <s>");
  directory.write("chat_template.jinja", "own {{ bos_token }}{{ eos_token is defined }}");
  EXPECT_EQ(shown(), "own <s>False");
  const auto loaded = ChatTemplate::load(directory.path());
  EXPECT_EQ(loaded->origin(), directory.path() + "/chat_template.jinja");

  directory.write("given.jinja", "given {{ bos_token }}");
  const auto given = ChatTemplate::load_file(directory.path() + "/given.jinja", directory.path());
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(render(*given, kHello).value_or("error"), "given <s>");
}

TEST(ChatTemplate, ChoosesAmongNamedTemplates) {
  const TemporaryDirectory directory;
  directory.write("tokenizer_config.json", R"({"chat_template":[
      {"name":"tool_use","template":"with tools"},{"name":"rag","template":"other"},
      {"name":"default","template":"plain"}]})");
  const auto chat = ChatTemplate::load(directory.path());
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(*render(*chat, kHello), "plain");
  EXPECT_EQ(*render(*chat, R"({"messages":[],"tools":[{"type":"function"}]})"), "with tools");
  EXPECT_EQ(*render(*chat, R"({"messages":[],"tools":[]})"), "plain");

  directory.write("tokenizer_config.json",
                  R"({"chat_template":[{"name":"rag","template":"other"}]})");
  expect_error(ChatTemplate::load(directory.path()), Code::invalid,
               {"tokenizer_config.json", "\"default\"", "rag"});
}

TEST(ChatTemplate, RefusesWhatItCannotUse) {
  const TemporaryDirectory directory;
  const auto refused = [&](const std::string& config, Code code,
                           const std::vector<std::string>& parts) {
    directory.write("tokenizer_config.json", config);
    expect_error(ChatTemplate::load(directory.path()), code, parts);
  };
  refused("{", Code::invalid, {"tokenizer_config.json", "invalid JSON"});
  refused("[]", Code::invalid, {"must be a JSON object"});
  refused(R"({"chat_template":5})", Code::invalid, {"chat_template must be"});
  refused(R"({"chat_template":[{"name":"default"}]})", Code::invalid, {"needs a name"});
  refused(R"({"chat_template":"\n{% if %}"})", Code::invalid, {"tokenizer_config.json", "line 2"});
  refused(R"({"chat_template":"{% include 'x' %}"})", Code::unsupported, {"include", "line 1"});
  expect_error(ChatTemplate::load_file(directory.path() + "/none.jinja", directory.path()),
               Code::not_found, {"none.jinja"});
}

TEST(ChatTemplate, VariablesReachTheTemplate) {
  const std::string source =
      "{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ effort|default('-') }}";
  EXPECT_EQ(text_of(source, kHello), "NoneNoneTrue-");
  EXPECT_EQ(text_of(source, R"({"messages":[],"tools":[1],"add_generation_prompt":false,
                                "effort":"high","documents":[]})"),
            "[1][]Falsehigh");
  EXPECT_EQ(text_of("{{ strftime_now('%Y') }}", kHello), "2025");
  const auto chat = ChatTemplate::parse("{{ raise_exception('no ' ~ messages[0].role) }}", "");
  EXPECT_EQ(render(*chat, kHello).error().message,
            "chat template, line 1: the template refuses: no user");
}

// ---- messages

constexpr const char* kTexts =  // concatenates, as most templates do
    "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %};{% endfor %}";

TEST(ChatMessages, ContentInPartsReachesTheTemplateAsItWants) {
  const std::string two =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},
                                                {"type":"text","text":"b"}]}]})";
  EXPECT_EQ(text_of(kTexts, two), "user:a\nb;");  // joined by lines, as others do
  EXPECT_EQ(text_of(kParts, two), "ab;");
  EXPECT_EQ(text_of(kTexts, R"({"messages":[{"role":"user","content":[]}]})"), "user:;");
}

TEST(ChatMessages, MissingContentIsEmpty) {
  EXPECT_EQ(text_of(kTexts, R"({"messages":[{"role":"user"},{"role":"system","content":null},
                                            {"role":"assistant","content":""}]})"),
            "user:;system:;assistant:;");
}

TEST(ChatMessages, OtherFieldsStay) {
  EXPECT_EQ(text_of("{{ messages[0].name }}{{ messages[0].x }}{{ messages[0].tool_calls is defined "
                    "}}",
                    R"({"messages":[{"role":"user","content":"","name":"Ann","x":[1],
                                     "tool_calls":[]}]})"),
            "Ann[1]False");
}

// What a template shows of a call: the content's kind and the arguments.
std::string call_shown(const std::string& source, const std::string& arguments,
                       const std::string& content = "\"c\"") {
  return text_of(source, R"({"messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":)" +
                             content + R"(,"tool_calls":[{"type":"function","id":"1",
      "function":{"name":"f","arguments":)" +
                             arguments + "}}]}]}");
}

TEST(ChatMessages, ArgumentsReachTheTemplateAsItWants) {
  const std::string as_object =
      "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in "
      "c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}";
  EXPECT_EQ(call_shown(as_object, R"("{\"b\": 1.0, \"a\": \"x\"}")"), "b=1.0;a=x;");
  EXPECT_EQ(call_shown(as_object, R"({"b": 1.0, "a": "x"})"), "b=1.0;a=x;");
  EXPECT_EQ(call_shown(as_object, "\"\""), "");
  EXPECT_EQ(call_shown(as_object, "null"), "");
  const std::string as_text =
      "{% for m in messages %}{% for c in m.tool_calls %}{{ 'call ' + c.function.arguments }}"
      "{% endfor %}{% endfor %}";
  EXPECT_EQ(call_shown(as_text, R"("{\"b\":1}")"), "call {\"b\":1}");
  EXPECT_EQ(call_shown(as_text, R"({"b": 1.0, "a": "x"})"), "call {\"b\": 1.0, \"a\": \"x\"}");
  const std::string as_json =
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments|tojson }}"
      "{% endfor %}{% endfor %}";
  EXPECT_EQ(call_shown(as_json, R"("{\"b\":1}")"), "{\"b\": 1}");
}

TEST(ChatMessages, ACallWithoutContentIsNoneOnlyWhereTheTemplateKnowsIt) {
  const std::string arguments =
      "{% for c in m.tool_calls %}{{ c.function.arguments|tojson }}"
      "{% endfor %}{% endfor %}";
  // Prints the word None: gets the empty text.
  EXPECT_EQ(call_shown("{% for m in messages %}{{ m.content }}" + arguments, "{}", "null"), "q{}");
  // Would fail on none: gets the empty text.
  EXPECT_EQ(call_shown("{% for m in messages %}{{ m.content + '|' }}" + arguments, "{}", "null"),
            "q||{}");
  // Tells them apart: gets none.
  EXPECT_EQ(
      call_shown("{% for m in messages %}{{ '-' if m.content is none else m.content }}" + arguments,
                 "{}", "null"),
      "q-{}");
}

TEST(ChatMessages, ErrorsNameThePlace) {
  const auto chat = ChatTemplate::parse(kTexts, "");
  ASSERT_TRUE(chat);
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {R"("hi")", {"messages is a str"}},
      {R"(["hi"])", {"messages[0] must be an object with a \"role\""}},
      {R"([{"content":"hi"}])", {"messages[0]", "role"}},
      {R"([{"role":5}])", {"messages[0]", "role"}},
      {R"([{"role":"user","content":5}])", {"messages[0].content is a int"}},
      {R"([{"role":"user","content":{}}])", {"messages[0].content is a dict"}},
      {R"([{"role":"user","content":["x"]}])", {"messages[0].content[0]"}},
      {R"([{"role":"user","content":[{"type":"text"}]}])", {"messages[0].content[0]", "text"}},
      {R"([{"role":"user","content":[{"text":"x"}]}])", {"messages[0].content[0]", "type"}},
      {R"([{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url"}]}])",
       {"messages[0].content[1]", "image_url", "text only"}},
      {R"([{"role":"assistant","tool_calls":5}])", {"messages[0].tool_calls"}},
      {R"([{"role":"assistant","tool_calls":[5]}])", {"messages[0].tool_calls[0]"}},
      {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
       {"messages[0].tool_calls[0]", "name"}},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])",
       {"messages[0].tool_calls[0].function.arguments", "JSON"}},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])",
       {"messages[0].tool_calls[0].function.arguments", "object"}},
  };
  for (const auto& [messages, parts] : cases) {
    const auto text = render(*chat, std::string("{\"messages\":") + messages + "}");
    ASSERT_FALSE(text) << messages << " gives " << *text;
    for (const std::string& part : parts) {
      EXPECT_THAT(text.error().message, HasSubstr(part)) << messages;
    }
  }
}

// ---- DeepSeek-V3.2

ChatTemplate deepseek_v32(const TemporaryDirectory& directory) {
  directory.write("config.json", R"({"model_type":"deepseek_v32"})");
  auto chat = ChatTemplate::load(directory.path());
  CHECK(chat.has_value(), "{}", chat.error().message);
  return *std::move(chat);
}

TEST(DeepSeekV32, AgreesWithTheSecondImplementation) {
  const TemporaryDirectory directory;
  const ChatTemplate chat = deepseek_v32(directory);
  EXPECT_EQ(chat.origin(), "built in for deepseek_v32");
  const Value conversations = jinja::test::golden("conversations.json");
  const Value file = jinja::test::golden("deepseek_v32.json");
  int texts = 0;
  for (const Value& one : jinja::test::field(file, "cases").sequence().items) {
    const std::string& name = jinja::test::field(one, "conversation").as_string();
    const Value& thinking = jinja::test::field(one, "thinking");
    DictBuilder conversation;
    for (const auto& [key, value] : jinja::test::conversation(conversations, name).dict().entries) {
      conversation.set(key, value);
    }
    conversation.set("enable_thinking", Value::boolean(false));
    conversation.set("thinking", thinking);
    const auto text = chat.render(input_of(conversation.finish()), jinja::test::kNow);
    if (const Value* expected = one.dict().find("expected")) {
      ASSERT_TRUE(text) << name << ": " << text.error().message;
      EXPECT_EQ(*text, expected->as_string()) << name << " " << thinking.truth();
      ++texts;
    } else {
      EXPECT_FALSE(text) << name << " gives " << *text;
    }
  }
  EXPECT_GE(texts, 40);
}

TEST(DeepSeekV32, ItsOwnTemplateWins) {
  const TemporaryDirectory directory;
  directory.write("chat_template.jinja", "own");
  EXPECT_EQ(render(deepseek_v32(directory), kHello).value_or("error"), "own");
}

TEST(DeepSeekV32, TakesPartsAndRefusesWhatDoesNotFit) {
  const TemporaryDirectory directory;
  const ChatTemplate chat = deepseek_v32(directory);
  EXPECT_EQ(render(chat, R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},
                                                        {"type":"text","text":"b"}]}]})")
                .value_or("error"),
            "<｜begin▁of▁sentence｜><｜User｜>a\nb<｜Assistant｜></think>");
  for (const char* broken : {R"({"messages":[{"role":"narrator","content":"x"}]})",
                             R"({"messages":[{"role":"tool","content":"x"}]})",
                             R"({"messages":[{"role":"system","content":"x","tools":5}]})",
                             R"({"messages":[{"role":"user","content":"x"}],"tools":{"a":1}})"}) {
    EXPECT_FALSE(render(chat, broken)) << broken;
  }
}

}  // namespace
}  // namespace asap
