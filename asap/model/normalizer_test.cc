#include "asap/model/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asap/model/utf8.h"

namespace asap {
namespace {

using nlohmann::json;

std::string normalized_by(const json& config, const std::string& text) {
  const Result<Normalizer> normalizer = Normalizer::parse(config);
  if (!normalizer) throw std::runtime_error(normalizer.error().message);
  return normalizer->apply(text);
}

TEST(Normalizer, Steps) {
  const auto replace = [](const char* kind, const char* what, const char* by) {
    return json{{"type", "Replace"}, {"pattern", {{kind, what}}}, {"content", by}};
  };
  const json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  const json prepend = {{"type", "Prepend"}, {"prepend", "▁"}};
  const struct {
    json config;
    const char *text, *expected;
  } table[] = {
      {nullptr, " a", " a"},
      {{{"type", "NFC"}}, "e\u0301 \uFB01 \u212B", "\u00E9 \uFB01 \u00C5"},
      {{{"type", "NFD"}}, "\u00E9 \uFB01", "e\u0301 \uFB01"},
      {{{"type", "NFKC"}}, "e\u0301 \uFB01 \u2460\u00A0", "\u00E9 fi 1 "},
      {{{"type", "NFKD"}}, "\u00E9 \uFB01 \u00BD", "e\u0301 fi 1\u20442"},
      {{{"type", "Lowercase"}}, "ÀB \u0130 ΣΑΣ", "àb i\u0307 σασ"},  // no final sigma
      {{{"type", "StripAccents"}}, "e\u0301\u00E9\u0903", "e\u00E9"},
      {strip, " \u3000a b\n", "a b"},
      {{{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a ", " a"},
      {strip, "  \n", ""},
      {prepend, "a", "▁a"},
      {prepend, "", ""},
      {replace("String", " ", "▁"), "a  b", "a▁▁b"},
      {replace("String", "aa", "b"), "aaaa a", "bb a"},
      {replace("Regex", "\\s+", "$1"), "a \n b", "a$1b"},
      {replace("Regex", "b*", "-"), "abc", "-a-c-"},
      {replace("Regex", "b*", "-"), "", ""},
      {{{"type", "Sequence"}, {"normalizers", {prepend, replace("String", " ", "▁")}}},
       " a b",
       "▁▁a▁b"},
      {{{"type", "Sequence"}, {"normalizers", {strip, prepend}}}, "  ", ""},
  };
  for (const auto& row : table) {
    EXPECT_EQ(normalized_by(row.config, row.text), row.expected) << row.config;
  }
}

TEST(Normalizer, NothingShrinksMoreThanItSays) {
  for (const char* type : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"}) {
    const json config = {{"type", type}};
    const Result<Normalizer> normalizer = Normalizer::parse(config);
    ASSERT_TRUE(normalizer) << normalizer.error().message;
    const size_t most = normalizer->most_bytes_per_byte();
    EXPECT_EQ(most, 4u);
    for (char32_t code = 0; code < 0x30000; ++code) {  // beyond, nothing changes
      if (code >= 0xD800 && code < 0xE000) continue;
      // Also beside what characters are composed with.
      for (const std::string_view after : {"", "\u0301", "\u0323\u0302", "\u1161\u11A8"}) {
        std::string text;
        append_utf8(code, &text);
        text += after;
        const std::string out = normalizer->apply(text);
        ASSERT_LE(text.size(), out.size() * most) << type << " " << static_cast<uint32_t>(code);
      }
    }
  }
}

}  // namespace
}  // namespace asap
