#include "asap/model/utf8.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

TEST(Utf8, RepairsMaximalParts) {
  const struct {
    std::string bytes, repaired;
    size_t tail;
  } table[] = {
      {"plain", "plain", 0},
      {"\xE4\xB8\xAD", "中", 0},
      {"\xE4\xB8", "\uFFFD", 2},
      {"\xF0\x9F\x98", "\uFFFD", 3},
      {"\xF0\x9F\x98x", "\uFFFDx", 0},
      {"\xC0\x80", "\uFFFD\uFFFD", 0},                      // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD", 0},            // surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD", 0},  // beyond U+10FFFF
      {"\x80\xBF", "\uFFFD\uFFFD", 0},
      {"\xC3", "\uFFFD", 1},
      {"\xFF", "\uFFFD", 0},
  };
  for (const auto& row : table) {
    EXPECT_EQ(repair_utf8(row.bytes), row.repaired);
    EXPECT_EQ(utf8_incomplete_tail(row.bytes), row.tail) << row.repaired;
    EXPECT_EQ(is_utf8(row.bytes), row.bytes == row.repaired);
  }
}

TEST(Utf8, ComposesInCanonicalOrder) {
  EXPECT_EQ(normalized("A\u030A", NormalForm::nfc), "\u00C5");
  EXPECT_EQ(normalized("\u212B", NormalForm::nfc), "\u00C5");
  EXPECT_EQ(normalized("a\u0301\u0323", NormalForm::nfc),
            "\u1EA1\u0301");  // the mark below comes first
  EXPECT_EQ(normalized("\u1112\u1161\u11AB", NormalForm::nfc), "\uD55C");
  EXPECT_EQ(normalized("\uFB01", NormalForm::nfc), "\uFB01");  // compatibility characters stay
}

}  // namespace
}  // namespace asap
