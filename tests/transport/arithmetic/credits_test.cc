#include "transport/parts/credits.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "transport/parts/ring_sender.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kUnits = 1U << 13;
constexpr std::uint64_t kReceives = 64;
constexpr Context kContext = 3;

// The sender's end, and the words that its receiver writes.
class CreditsTest : public testing::Test {
 protected:
  CreditsTest() {
    CreditedRegion peer;
    peer.receives = kReceives;
    credits_.start(reinterpret_cast<std::byte*>(&words_), peer);
  }

  // Takes all room that there is: units.
  std::uint64_t fill() {
    std::uint64_t units = 0;
    while (const auto place = credits_.find_place(sender_, kContext, 1, fail)) {
      sender_.take(*place);
      ++units;
    }
    return units;
  }

  static void fail(const char* why) { throw std::runtime_error(why); }

  CreditWords words_;
  SendCredits credits_;
  RingSender sender_{kUnits};
};

TEST_F(CreditsTest, WordsThatWereNotWrittenGiveNothing) {
  EXPECT_EQ(fill(), kUnits);
  EXPECT_EQ(fill(), 0U);
  EXPECT_EQ(credits_.receives_word(fail), 0U);
}

// Longer than a count in a word is wide.
TEST_F(CreditsTest, RoomComesBackForEver) {
  std::uint64_t used = fill();
  for (std::uint64_t back = 0; back < (1ULL << 33); back += kUnits / 2 * 1024) {
    // As if the laps between had been taken and given back in the same way.
    sender_ = RingSender{kUnits};
    sender_.take({0, back});
    ASSERT_TRUE(sender_.take_back(back));
    sender_.take({0, back + kUnits});
    words_.free_before[kContext] = sealed(static_cast<std::uint32_t>(back + kUnits / 2));
    used = fill();
    ASSERT_EQ(used, kUnits / 2) << back;
    EXPECT_EQ(sender_.returned(), back + kUnits / 2);
  }
}

// A word that is damaged into an older count must not be taken for silence: the receiver has said
// all, and says nothing more until something comes.
TEST_F(CreditsTest, DamagedWordIsAnError) {
  EXPECT_EQ(fill(), kUnits);
  for (unsigned bit = 0; bit < 64; ++bit) {
    words_.free_before[kContext] = sealed(kUnits) ^ 1ULL << bit;
    EXPECT_THROW(fill(), std::runtime_error) << bit;
    words_.receives = sealed(kReceives) ^ 1ULL << bit;
    EXPECT_THROW(credits_.receives_word(fail), std::runtime_error) << bit;
  }
  words_.free_before[kContext] = sealed(kUnits);
  EXPECT_EQ(fill(), kUnits);
}

TEST_F(CreditsTest, RoomThatWasNotTakenOrIsTakenAwayIsAnError) {
  EXPECT_EQ(fill(), kUnits);
  words_.free_before[kContext] = sealed(kUnits + 1);
  EXPECT_THROW(fill(), std::runtime_error);
  words_.free_before[kContext] = sealed(UINT32_MAX);
  EXPECT_THROW(fill(), std::runtime_error);
  words_.free_before[kContext] = sealed(kUnits);
  EXPECT_EQ(fill(), kUnits);
  words_.free_before[kContext] = sealed(kUnits - 1);
  EXPECT_THROW(fill(), std::runtime_error);
}

}  // namespace
}  // namespace leat::detail
