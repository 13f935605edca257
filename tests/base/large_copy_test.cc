#include "base/large_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace leat::detail {
namespace {

// More than a trial of both ways, so that each has been used.
constexpr int kCopies = 400;

TEST(LargeCopyTest, CopiesExactlyWhatItIsToldByBothWays) {
  std::mt19937 random(7);
  std::vector<std::byte> from(LargeCopy::kLeastBytes * 3);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  std::vector<std::byte> to(from.size());
  LargeCopy copy;
  for (int i = 0; i < kCopies; ++i) {
    const std::size_t source = random() % 200;
    const std::size_t target = random() % 200;
    const std::size_t bytes =
        i % 7 == 0 ? random() % 300 : LargeCopy::kLeastBytes + random() % LargeCopy::kLeastBytes;
    std::ranges::fill(to, std::byte{0});
    copy.copy(to.data() + target, from.data() + source, bytes);
    const auto begin = to.begin() + static_cast<std::ptrdiff_t>(target);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
    ASSERT_TRUE(std::equal(begin, end, from.begin() + static_cast<std::ptrdiff_t>(source)))
        << bytes << " bytes from " << source << " to " << target;
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    ASSERT_TRUE(std::all_of(to.begin(), begin, is_zero));
    ASSERT_TRUE(std::all_of(end, to.end(), is_zero));
  }
}

}  // namespace
}  // namespace leat::detail
