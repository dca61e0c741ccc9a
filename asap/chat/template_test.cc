// The template language against the reference implementation of Jinja, whose texts are in
// tests/golden/templates; and its bounds.
#include "asap/chat/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "asap/chat/json.h"
#include "asap/chat/test_support.h"

namespace asap::jinja {
namespace {

using testing::HasSubstr;

// A dict of both; the second wins.
Value merged(const Value& a, const Value& b) {
  DictBuilder out;
  for (const auto& [key, value] : a.dict().entries) out.set(key, value);
  for (const auto& [key, value] : b.dict().entries) out.set(key, value);
  return out.finish();
}

Result<std::string> render(std::string_view source, const Value& variables,
                           const RenderLimits& limits = {}) {
  ASAP_ASSIGN(const Template parsed, Template::parse(source));
  return parsed.render(variables, test::kNow, limits);
}

Value nothing() {
  return DictBuilder().finish();
}

std::string text_of(std::string_view source) {
  const auto text = render(source, nothing());
  EXPECT_TRUE(text) << source << ": " << text.error().message;
  return text.value_or("");
}

Error error_of(std::string_view source, const RenderLimits& limits = {}) {
  const auto text = render(source, nothing(), limits);
  EXPECT_FALSE(text) << source << " gives " << text->substr(0, 100);
  return text ? Error{} : text.error();
}

// ---- against the reference

TEST(Template, LanguageAgreesWithJinja) {
  test::use_utc();
  const Value file = test::golden("language.json");
  const Value& common = test::field(file, "variables");
  const std::vector<Value>& cases = test::field(file, "cases").sequence().items;
  ASSERT_GE(cases.size(), 400u);
  for (const Value& one : cases) {
    const std::string& source = test::field(one, "template").as_string();
    const Value* own = one.dict().find("variables");
    const auto text = render(source, own ? merged(common, *own) : common);
    if (const Value* expected = one.dict().find("expected")) {
      ASSERT_TRUE(text) << source << ": " << text.error().message;
      EXPECT_EQ(*text, expected->as_string()) << source;
      continue;
    }
    ASSERT_FALSE(text) << source << " gives " << *text;
    EXPECT_THAT(text.error().message, HasSubstr("line ")) << source;
    if (const Value* construct = one.dict().find("unsupported")) {
      EXPECT_EQ(text.error().code, Code::unsupported) << source << ": " << text.error().message;
      EXPECT_THAT(text.error().message, HasSubstr(construct->as_string())) << source;
    }
  }
}

class Family : public testing::TestWithParam<const char*> {};

TEST_P(Family, AgreesWithJinja) {
  test::use_utc();
  const auto parsed = Template::parse(test::golden_text(std::string(GetParam()) + ".jinja"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Value conversations = test::golden("conversations.json");
  const Value file = test::golden(std::string(GetParam()) + ".json");
  int texts = 0;
  for (const Value& one : test::field(file, "cases").sequence().items) {
    const std::string& name = test::field(one, "conversation").as_string();
    const Value variables =
        merged(test::field(conversations, "defaults"), test::conversation(conversations, name));
    const auto text = parsed->render(variables, test::kNow);
    if (const Value* expected = one.dict().find("expected")) {
      ASSERT_TRUE(text) << name << ": " << text.error().message;
      EXPECT_EQ(*text, expected->as_string()) << name;
      ++texts;
    } else {
      EXPECT_FALSE(text) << name << " gives " << *text;
    }
  }
  EXPECT_GE(texts, 12);
}

INSTANTIATE_TEST_SUITE_P(Families, Family,
                         testing::Values("deepseek_r1", "deepseek_v2", "deepseek_v3",
                                         "deepseek_v31", "glm4_moe", "gpt_oss", "kimi_k2",
                                         "minimax_m2", "mixtral", "olmoe", "qwen2", "qwen3"),
                         [](const auto& family) { return family.param; });

// ---- errors

TEST(Template, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(error_of("a\n\n{{ x.y }}").message, "line 3: 'x' is undefined");
  EXPECT_EQ(error_of("{% set x = {} %}\n{{ x.y.z }}").message,
            "line 2: 'dict object' has no attribute 'y'");
  EXPECT_EQ(error_of("{% if true %}\n{{ 1 +\n 'a' }}{% endif %}").message,
            "line 2: + is not possible between a int and a str");
  EXPECT_EQ(error_of("\n{% include 'x' %}").message,
            "line 2: the tag {% include %} is not supported");
  EXPECT_EQ(error_of("{% for x in [1] %}\n{{ x|wordcount }}\n{% endfor %}").message,
            "line 2: the filter \"wordcount\" is not supported");
  EXPECT_EQ(error_of("{{ raise_exception('roles must alternate') }}").message,
            "line 1: the template refuses: roles must alternate");
  EXPECT_EQ(error_of("{% macro m() %}\n{{ nobody.x }}{% endmacro %}\n\n{{ m() }}").message,
            "line 2: 'nobody' is undefined");
  EXPECT_EQ(error_of("{{ [1].append(2) }}").message,
            "line 1: 'append' of a list changes it, which templates may not");
  EXPECT_EQ(error_of("{{ 'a'|join(1, 2, 3) }}").message,
            "line 1: filter join takes at most 2 arguments; 3 are given");
  EXPECT_EQ(error_of("{% if x %}").message,
            "line 1: the end of the template found, {% endif %} expected");
  EXPECT_EQ(error_of("\xff").message, "the template is not UTF-8");
}

TEST(Template, AnUnsupportedConstructMattersOnlyWhereItRuns) {
  EXPECT_EQ(text_of("{% if false %}{{ 'a b'|wordcount }}{% endif %}ok"), "ok");
}

// ---- bounds

struct Bounded {
  RenderLimits limits;
  const char* message;
  std::vector<const char*> sources;
};

TEST(Template, BoundsWhatARenderingUses) {
  const RenderLimits short_output{.output_bytes = 1000};
  const RenderLimits few_bytes{.made_bytes = 100'000};
  const RenderLimits few_steps{.steps = 10'000};
  const Bounded cases[] = {
      {short_output,
       "exceeds 1000 bytes",
       {"{% for i in 'abcdefghij' %}{{ 'abcdefghij' * 11 }}{% endfor %}", "{{ 'a' * 1001 }}",
        "{{ [1] * 100000000000 }}",
        "{% set ns = namespace(x='ab') %}{% for i in [1] * 20 %}{% set ns.x = ns.x ~ ns.x %}"
        "{% endfor %}",
        "{{ ('a' * 900).replace('a', 'bb') }}", "{{ 'a'.center(100000) }}", "{{ '%9999s' % 1 }}",
        "{{ 'x'.zfill(99999999999) }}", "{{ ('a\n' * 400)|indent(9) }}",
        "{% set ns = namespace(x=[1]) %}{% for i in [1] * 30 %}{% set ns.x = [ns.x, ns.x] %}"
        "{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in [1] * 30 %}{% set ns.x = [ns.x, ns.x] %}"
        "{% endfor %}{{ ns.x|tojson }}"}},
      {few_bytes,
       "more than 100000 bytes of values",
       {"{% for i in range(900) %}{% set x = 'a' * 900 %}{% endfor %}",
        "{% for i in range(900) %}{% set x = namespace(a=1) %}{% endfor %}",
        "{% for i in range(900) %}{% macro m() %}{% endmacro %}{% endfor %}",
        "{% for i in range(900) %}{% set x = [i, i, i, i, i] %}{% endfor %}"}},
      {few_steps,
       "more than 10000 steps",
       {"{% for i in range(20) %}{% for j in range(30) %}{% for k in range(30) %}{% endfor %}"
        "{% endfor %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
        "{% endfor %}{{ ns.x == ns.x[:] }}"}},
      {{},
       "deeper than 100 levels",
       {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x] %}"
        "{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x]|map('list') %}"
        "{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x].count %}"
        "{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% for j in [ns.x] %}"
        "{% set ns.x = loop %}{% endfor %}{% endfor %}"}},
      {{}, "range of more than 100000", {"{{ range(100001) }}"}},
  };
  for (const Bounded& bounded : cases) {
    for (const char* source : bounded.sources) {
      EXPECT_THAT(error_of(source, bounded.limits).message, HasSubstr(bounded.message)) << source;
    }
  }
}

TEST(Template, TheDefaultBoundsEndAHostileTemplate) {
  for (const char* source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
           "{% endfor %}",
           "{% for i in range(100000) %}{% set x = 'a' * 60000000 %}{% endfor %}",
           "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
       }) {
    EXPECT_EQ(error_of(source).code, Code::invalid) << source;
  }
}

TEST(Template, BoundsWhatTheParserTakes) {
  const auto times = [](int n, std::string_view text) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  const std::string hostile[] = {
      "{{ " + times(100'000, "(") + " }}",     "{{ " + times(100'000, "[") + " }}",
      "{{ " + times(100'000, "-") + "1 }}",    "{{ " + times(100'000, "not ") + "1 }}",
      "{{ 1" + times(100'000, " + 1") + " }}", "{{ x" + times(100'000, ".x") + " }}",
      "{{ x" + times(100'000, "|e") + " }}",   "{{ 1" + times(100'000, " if 1 else 1") + " }}",
      "{{ f" + times(100'000, "(f") + " }}",   times(10'000, "{% if 1 %}"),
      "{% for " + times(100'000, "(") + "x",   std::string(kMaxTemplateBytes + 1, 'x'),
  };
  for (const std::string& source : hostile) {
    EXPECT_EQ(error_of(source).code, Code::invalid) << source.substr(0, 20);
  }
  // What people write is far from it.
  EXPECT_EQ(text_of("{{ " + times(50, "(") + "1" + times(50, ")") + " }}"), "1");
  EXPECT_EQ(text_of("{{ 1" + times(100, " + 1") + " }}"), "101");
  EXPECT_EQ(text_of("{{ 'a'" + times(5000, " ~ 'a'") + " }}").size(), 5001u);
  EXPECT_EQ(text_of(times(60, "{% if 1 %}") + "x" + times(60, "{% endif %}")), "x");
}

TEST(Template, TheDeepestNestingFitsAThreadsStack) {
  // Macros whose calls sit deep in expressions and blocks: both bounds at their ends.
  std::string source = "{% macro m(n) %}";
  for (int i = 0; i < 20; ++i) source += "{% if 1 %}{% for x in [1] %}{% set y %}";
  source += "{{ (((((((((m(n + 1) ~ '')))))))))|trim|trim|trim }}";
  for (int i = 0; i < 20; ++i) source += "{% endset %}{% endfor %}{% endif %}";
  source += "{% endmacro %}{{ m(0) }}";
  Error error;
  std::thread([&] { error = error_of(source); }).join();
  EXPECT_THAT(error.message, HasSubstr("deeper than"));
}

TEST(Template, RendersConcurrently) {
  const auto parsed = Template::parse(
      "{% set ns = namespace(n=0) %}{% for i in range(1000) %}{% set ns.n = ns.n + i %}{% endfor %}"
      "{{ ns.n }}");
  ASSERT_TRUE(parsed);
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::string& text : texts) {
    threads.emplace_back([&] { text = parsed->render(nothing(), 0).value_or("error"); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "499500");
}

// ---- JSON

TEST(Json, KeepsOrderAndNumbersExactly) {
  const std::string text =
      R"({"b": [1, -2, 1.0, 1e5, 123456789012345678901234567890, 18446744073709551615, 0.1], )"
      R"("a": {"z": null, "y": true}, "é": "\u0000\ud83e\udd86"})";
  const auto value = parse_json(text);
  ASSERT_TRUE(value) << value.error().message;
  const RenderLimits limits;
  Budget budget(limits);
  std::string out;
  ASSERT_TRUE(append_json(*value, {}, out, budget));
  EXPECT_EQ(out, R"({"b": [1, -2, 1.0, 100000.0, 123456789012345678901234567890, )"
                 R"(18446744073709551615, 0.1], "a": {"z": null, "y": true}, "é": "\u0000🦆"})");
}

TEST(Json, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[1,]", "nul", "{\"a\":1}}", "\"\xff\"", "\"\\ud800\""}) {
    const auto value = parse_json(text);
    ASSERT_FALSE(value) << text;
    EXPECT_THAT(value.error().message, HasSubstr("invalid JSON")) << text;
  }
  EXPECT_FALSE(parse_json(std::string(100'000, '[')));
  EXPECT_TRUE(parse_json(std::string(60, '[') + std::string(60, ']')));
}

TEST(Json, ALargeObjectIsReadInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += fmt::format("\"key{}\":{},", i, i);
  text += "\"key7\":\"last\"}";
  const auto value = parse_json(text);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->dict().entries.size(), 100'000u);
  EXPECT_EQ(value->dict().find("key7")->as_string(), "last");
  EXPECT_EQ(value->dict().find("key99999")->as_integer(), 99'999);
}

}  // namespace
}  // namespace asap::jinja
