#include "base/quote.h"

#include <gtest/gtest.h>

namespace leat::detail {
namespace {

TEST(QuoteTest, OnlyPrintableAsciiOnOneLineIsLeft) {
  EXPECT_EQ(quoted("plain text"), "'plain text'");
  EXPECT_EQ(quoted(""), "''");
  EXPECT_EQ(quoted("a\nb\t\x7f"), "'a\\x0ab\\x09\\x7f'");
  EXPECT_EQ(printable(std::string_view("\0\xff\x1b[2J", 6)), "\\x00\\xff\\x1b[2J");
}

TEST(QuoteTest, LongTextIsCut) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef...");
  EXPECT_EQ(printable(std::string(1'000'000, 'x')).size(), kMaxQuotedBytes + 3);
}

}  // namespace
}  // namespace leat::detail
