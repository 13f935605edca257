#include "transport/ring/places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace leat::detail {
namespace {

constexpr std::uint64_t kUnits = 64;

TEST(Ring, EmptyMessageTakesOneUnit) {
  static_assert(units_of(0) == 1);
  static_assert(units_of(1) == 1);
  static_assert(units_of(64) == 1);
  static_assert(units_of(65) == 2);
}

TEST(RingSender, RefusesWhenFullAndGoesOnWhenSpaceComesBack) {
  RingSender sender(kUnits);
  for (std::uint64_t i = 0; i < kUnits; ++i) {
    const auto place = sender.place(1);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->unit, i);
    sender.take(*place);
  }
  EXPECT_FALSE(sender.place(1));
  ASSERT_TRUE(sender.take_back(1));
  const auto place = sender.place(1);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->unit, 0U);
}

TEST(RingSender, SkipsTheEndOfALapThatIsTooShort) {
  RingSender sender(kUnits);
  for (int i = 0; i < 4; ++i) sender.take(*sender.place(15));
  ASSERT_TRUE(sender.take_back(60));
  const auto place = sender.place(15);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->unit, 0U);
  EXPECT_EQ(place->end, kUnits + 15);
}

TEST(RingSender, RejectsSpaceThatWasNeverUsed) {
  RingSender sender(kUnits);
  sender.take(*sender.place(3));
  EXPECT_FALSE(sender.take_back(4));
  EXPECT_TRUE(sender.take_back(3));
  EXPECT_FALSE(sender.take_back(2));  // going back
}

TEST(RingReceiver, RejectsAWrongPlace) {
  RingReceiver receiver(kUnits);
  EXPECT_FALSE(receiver.arrive(1, 10, false));
  EXPECT_TRUE(receiver.arrive(0, 10, false));
  EXPECT_FALSE(receiver.arrive(0, 10, false));  // replayed
  EXPECT_TRUE(receiver.arrive(1, 10, false));
}

TEST(RingReceiver, RejectsAMessageAboveItsShare) {
  RingReceiver receiver(kUnits);
  EXPECT_FALSE(receiver.arrive(0, kUnits / kPieceShare * kPlaceUnitBytes + 1, false));
  EXPECT_FALSE(receiver.arrive(0, SIZE_MAX - kPlaceUnitBytes, false));
  EXPECT_FALSE(receiver.arrive(0, SIZE_MAX, false));
  EXPECT_TRUE(receiver.arrive(0, kUnits / kPieceShare * kPlaceUnitBytes, false));
}

TEST(RingReceiver, RejectsMoreThanTheRingHolds) {
  RingReceiver receiver(kUnits);
  for (std::uint64_t i = 0; i < kUnits; ++i) ASSERT_TRUE(receiver.arrive(i, 1, false));
  EXPECT_FALSE(receiver.arrive(0, 1, false));
  std::uint64_t ticket = 0;
  receiver.hand_out(ticket);
  receiver.release(ticket);
  EXPECT_TRUE(receiver.arrive(0, 1, false));
}

TEST(RingReceiver, FreesOnlyUpToTheOldestMessageStillHeld) {
  RingReceiver receiver(kUnits);
  std::vector<std::uint64_t> tickets(3);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(receiver.arrive(i, 64, false));
  for (std::uint64_t& ticket : tickets) receiver.hand_out(ticket);
  receiver.release(tickets[1]);
  EXPECT_EQ(receiver.free_before(), 0U);
  receiver.release(tickets[0]);
  EXPECT_EQ(receiver.free_before(), 2U);
  receiver.release(tickets[2]);
  EXPECT_EQ(receiver.free_before(), 3U);
}

// Sender and receiver against a plain model: which units are in use by which message. Messages are
// released in random order, space comes back late and in batches.
TEST(Ring, NeverOverwritesAMessageInUseAndNeverStops) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const std::uint64_t units = 64 << (seed % 5);
    RingSender sender(units);
    RingReceiver receiver(units);
    std::vector<int> used(units, -1);
    struct Held {
      std::uint64_t ticket, unit, units;
    };
    std::deque<Held> held;
    std::uint64_t told = 0;
    int sent = 0;
    int stuck = 0;
    while (sent < 5000) {
      const std::size_t bytes = random() % (units / kPieceShare * kPlaceUnitBytes + 1);
      const std::uint64_t need = units_of(bytes);
      if (const auto place = sender.place(need)) {
        ASSERT_LE(place->unit + need, units);
        for (std::uint64_t u = place->unit; u < place->unit + need; ++u) {
          ASSERT_EQ(used[u], -1) << "unit " << u << " still holds message " << used[u];
          used[u] = sent;
        }
        sender.take(*place);
        ASSERT_TRUE(receiver.arrive(place->unit, bytes, false));
        std::uint64_t ticket = 0;
        const RingReceiver::Arrival arrival = receiver.hand_out(ticket);
        ASSERT_EQ(arrival.bytes, bytes);
        held.push_back({ticket, arrival.unit, need});
        ++sent;
        stuck = 0;
      } else {
        // With everything released and told as the transport does, any message fits.
        ASSERT_LT(++stuck, 10000) << "no room for " << need << " of " << units << " units";
      }
      if (!held.empty() && (random() % 2 == 0 || stuck > 0)) {
        const std::size_t which = random() % held.size();
        const Held one = held[which];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        for (std::uint64_t u = one.unit; u < one.unit + one.units; ++u) used[u] = -1;
        receiver.release(one.ticket);
      }
      if (receiver.free_before() - told >= units / kReturnShare) {
        told = receiver.free_before();
        ASSERT_TRUE(sender.take_back(told));
      }
    }
  }
}

}  // namespace
}  // namespace leat::detail
