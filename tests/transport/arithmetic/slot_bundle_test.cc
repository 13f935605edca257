// Messages that share a slot: what a receiver makes of the bytes, right ones and any others.
#include "transport/batched/bundle.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace leat::detail {
namespace {

class Bundle : public testing::Test {
 protected:
  void add(std::size_t bytes) {
    const std::uint64_t size = sealed(static_cast<std::uint32_t>(bytes));
    std::memcpy(at(end_), &size, sizeof size);
    std::memset(at(end_ + sizeof size), static_cast<int>(bytes), bytes);
    end_ += Bundled::taken(bytes);
  }
  std::byte* at(std::size_t offset) { return reinterpret_cast<std::byte*>(words_.data()) + offset; }
  // Sizes of its messages; -1 behind them: it is damaged.
  std::vector<int> sizes(std::size_t from, std::size_t end) {
    std::vector<int> sizes;
    BundleReader reader(at(0), from, end);
    while (!reader.empty()) {
      std::span<const std::byte> message;
      if (!reader.next(message)) {
        sizes.push_back(-1);
        break;
      }
      for (const std::byte byte : message) EXPECT_EQ(byte, static_cast<std::byte>(message.size()));
      EXPECT_LE(message.data() + message.size(), at(0) + end);
      sizes.push_back(static_cast<int>(message.size()));
    }
    return sizes;
  }

  std::array<std::uint64_t, 64> words_{};
  std::size_t end_ = 0;
};

TEST_F(Bundle, IsReadInPartsAsItGrows) {
  add(0);
  add(1);
  const std::size_t first = end_;
  add(8);
  add(100);
  EXPECT_EQ(sizes(0, first), (std::vector<int>{0, 1}));
  EXPECT_EQ(sizes(first, end_), (std::vector<int>{8, 100}));
  EXPECT_EQ(sizes(0, end_), (std::vector<int>{0, 1, 8, 100}));
  EXPECT_EQ(sizes(end_, end_), std::vector<int>{});
}

TEST_F(Bundle, NoMessageGoesBeyondItsEnd) {
  add(8);
  add(30);
  EXPECT_EQ(sizes(0, end_ - 8), (std::vector<int>{8, -1}));
  EXPECT_EQ(sizes(0, 4), std::vector<int>{-1});
  for (const std::uint32_t size : {0x7fffffffU, 0xfffffff8U, 0xffffffffU}) {
    words_[0] = sealed(size);
    EXPECT_EQ(sizes(0, end_), std::vector<int>{-1}) << size;
  }
}

TEST_F(Bundle, AnyFlippedBitOfASizeIsSeen) {
  add(30);
  for (unsigned bit = 0; bit < 64; ++bit) {
    words_[0] ^= 1ULL << bit;
    EXPECT_EQ(sizes(0, end_), std::vector<int>{-1}) << bit;
    words_[0] ^= 1ULL << bit;
  }
}

TEST(Posted, IsOneWord) {
  const Posted posted{0xfffffffe, 1983, kMostBundleBytes};
  const Posted again = Posted::of(posted.word());
  EXPECT_EQ(again.units, posted.units);
  EXPECT_EQ(again.open_slot, posted.open_slot);
  EXPECT_EQ(again.open_bytes, posted.open_bytes);
  EXPECT_EQ(Posted::of(7).open_bytes, 0u) << "none is open";
}

}  // namespace
}  // namespace leat::detail
