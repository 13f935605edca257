#include "support/plain_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <vector>

namespace leat::detail {
namespace {

TEST(PlainTextSearch, FindsSixteenBytesAtEveryAlignmentAndNotFifteen) {
  const PlainText text(std::array<std::size_t, 2>{32, 41});
  for (std::size_t from = 0; from + PlainText::kRunBytes <= 41; ++from) {
    for (std::size_t to = 0; to < 9; ++to) {
      for (const std::size_t bytes : {PlainText::kRunBytes - 1, PlainText::kRunBytes}) {
        std::vector<std::byte> frame(to + bytes + 5, std::byte{0xa5});
        std::ranges::copy(text.message(1).subspan(from, bytes),
                          frame.begin() + static_cast<std::ptrdiff_t>(to));
        PlainTextSearch search(text);
        search.look_in(frame);
        EXPECT_EQ(search.found(0), 0U);
        EXPECT_EQ(search.found(1), bytes < PlainText::kRunBytes ? 0 : bytes)
            << "from " << from << " to " << to;
      }
    }
  }
}

TEST(PlainTextSearch, FindsPartsOfOneFrameThatLieInAnotherOrder) {
  const PlainText text(std::array<std::size_t, 2>{100, 100});
  std::vector<std::byte> frame;
  for (const std::size_t n : {1, 0}) {
    for (const std::size_t from : {50, 0})
      std::ranges::copy(text.message(n).subspan(from, 50), std::back_inserter(frame));
  }
  PlainTextSearch search(text);
  search.look_in(frame);
  EXPECT_EQ(search.found(0), 100U);
  EXPECT_EQ(search.found(1), 100U);
}

}  // namespace
}  // namespace leat::detail
