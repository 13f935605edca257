// Transport ring against a peer that writes and says what it likes, as docs/wire_format.md has it:
// an error of that channel, the same at every later call, and nothing that was not sent is handed
// out.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "leat/error.h"
#include "support/errors.h"
#include "support/scripted_device.h"
#include "transport/parts/immediate.h"
#include "transport/parts/sealed_word.h"
#include "transport/ring/ring.h"

namespace leat::detail {
namespace {

constexpr std::size_t kHostileRingBytes = 4096;
constexpr std::uint32_t kRingUnits = kHostileRingBytes / kPlaceUnitBytes;
constexpr std::size_t kLargestPiece = kHostileRingBytes / 4;
constexpr std::size_t kRingMostBytes = 1 << 20;
constexpr std::uint64_t kRingReceives = 32;

struct RingSetup {
  std::uint64_t region_address, region_bytes, credits_offset, context0_units, other_units,
      receive_count, max_message_bytes;
  std::uint32_t region_key, reserved;
};

class HostileToRing : public testing::Test {
 protected:
  HostileToRing() { start(kRingMostBytes); }

  void start(std::size_t max_message_bytes) {
    RingOptions options;
    options.ring_bytes = options.context_ring_bytes = kHostileRingBytes;
    options.max_message_bytes = max_message_bytes;
    options.depths.receive_requests = kRingReceives;
    transport_ = std::make_unique<RingTransport>(scripted_device(script_),
                                                 scripted_queue_pair(script_), options);
    const auto setup = transport_->setup();
    std::memcpy(&setup_, setup.data(), sizeof setup_);
    transport_->start(setup);  // its peer says the same
  }

  // The peer's writes into our region.
  template <typename Value>
  void write(std::size_t offset, const Value& value) {
    std::memcpy(reinterpret_cast<std::byte*>(setup_.region_address) + offset, &value, sizeof value);
  }
  void arrives(std::uint32_t place, std::size_t bytes, Context context = 0) {
    script_.arrivals.push_back({.kind = CompletionKind::kImmediate,
                                .immediate = encode({context, place}),
                                .bytes = bytes});
  }
  // At that unit of ring 0, where it must be the next.
  void announces(std::uint32_t unit, std::uint64_t total) {
    write(unit * kPlaceUnitBytes, total);
    arrives(kAnnouncePlace, sizeof total);
  }
  void gives_back(std::size_t word, std::uint32_t count) {
    write(setup_.credits_offset + word, sealed(count));
  }
  ReceiveResult receive(Context context = 0) {
    Delivery delivery;
    return transport_->try_receive(context, delivery);
  }
  // In the same words at every call.
  static void expect_dead(const std::function<void()>& call) {
    std::string words;
    for (int i = 0; i < 3; ++i) {
      try {
        call();
        FAIL() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kProtocol)) << error.what();
        if (i == 0) words = error.what();
        EXPECT_EQ(error.what(), words);
      }
    }
  }
  void expect_refused() {
    expect_dead([&] { receive(); });
    expect_dead([&] { receive(7); });
  }
  // Sends until there is no room; how many messages.
  unsigned fill_up(std::size_t bytes) {
    const std::vector<std::byte> message(bytes);
    unsigned count = 0;
    while (sent(transport_->try_send(message, 0))) ++count;
    return count;
  }

  Script script_;
  std::unique_ptr<RingTransport> transport_;
  RingSetup setup_{};
};

// The same where both sides share memory, so that messages come without a completion each.
class HostileToRingInMemory : public HostileToRing {
 protected:
  HostileToRingInMemory() {
    script_.shared = &arrivals_;
    start(kRingMostBytes);
  }

  static constexpr std::size_t kDepth = 2 * kRingReceives;
  struct Shared {
    alignas(kCacheLine) std::array<std::byte, Direction::bytes(kDepth)> bytes{};
  };

  void arrives(std::uint32_t place, std::size_t bytes, Context context = 0, char fill = 'x') {
    const std::vector<std::byte> message(bytes, static_cast<std::byte>(fill));
    ASSERT_TRUE(peer_.has_receive());
    peer_.publish(message.data(), bytes, encode({context, place}));
  }
  std::string text(Context context) {
    Delivery delivery;
    if (transport_->try_receive(context, delivery) != ReceiveResult::kMessage) return "nothing";
    return {reinterpret_cast<const char*>(delivery.begin()), delivery.bytes};
  }

  Shared to_peer_;
  Shared from_peer_;
  const Direction incoming_ = Direction::at(from_peer_.bytes.data(), kDepth);
  Arrivals arrivals_{Direction::at(to_peer_.bytes.data(), kDepth), incoming_, -1, false};
  ArrivalSender peer_{incoming_, -1, false};
};

TEST_F(HostileToRing, PlaceThatIsNotDue) {
  arrives(1, 100);
  expect_refused();
}

TEST_F(HostileToRing, PlaceInTheRingOfAnotherContext) {
  arrives(kRingUnits, 100);
  expect_refused();
}

TEST_F(HostileToRing, PlaceBeyondTheRings) {
  arrives(16 * kRingUnits, 100, 15);
  expect_refused();
}

TEST_F(HostileToRing, TheSamePlaceTwice) {
  arrives(0, 100);
  arrives(0, 100);
  expect_refused();
}

TEST_F(HostileToRing, WhatCameBeforeIsNotHandedOutAfterwards) {
  arrives(0, 100);
  arrives(2, 100);
  arrives(9, 100);
  expect_refused();
}

TEST_F(HostileToRing, LongerThanAPiece) {
  arrives(0, kLargestPiece + 1);
  expect_refused();
}

TEST_F(HostileToRing, AboveTheLimit) {
  for (const std::size_t most : {10, 1000}) {
    start(most);
    arrives(0, most + 1);
    expect_refused();
  }
}

TEST_F(HostileToRing, MoreThanTheRingHolds) {
  // Nothing is given back while its message is held.
  for (std::uint32_t i = 0; i <= 4; ++i) arrives(i % 4 * kRingUnits / 4, kLargestPiece);
  expect_refused();
}

TEST_F(HostileToRing, ARingThatIsFullOfMessagesThatAreHeld) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    arrives(i * kRingUnits / 4, kLargestPiece);
    ASSERT_EQ(receive(), ReceiveResult::kMessage);
  }
  arrives(0, kLargestPiece);
  expect_refused();
}

TEST_F(HostileToRing, AnnouncementOfAnOddLength) {
  arrives(kAnnouncePlace, 4);
  expect_refused();
}

TEST_F(HostileToRing, AnnouncedSizeThatGoesInPlace) {
  announces(0, kLargestPiece);
  expect_refused();
}

TEST_F(HostileToRing, AnnouncedSizeAboveTheLimit) {
  announces(0, kRingMostBytes + 1);
  expect_refused();
}

TEST_F(HostileToRing, AnnouncementWithinALargeMessage) {
  announces(0, 3 * kLargestPiece);
  announces(1, 3 * kLargestPiece);
  expect_refused();
}

TEST_F(HostileToRing, MoreBytesThanAnnounced) {
  announces(0, kLargestPiece + 1);
  arrives(1, 1000);
  arrives(17, 100);
  expect_refused();
}

TEST_F(HostileToRing, NothingToTakeBack) {
  announces(0, 0);
  expect_refused();
}

TEST_F(HostileToRing, TakenBackTwice) {
  announces(0, 3 * kLargestPiece);
  announces(1, 0);
  announces(2, 0);
  expect_refused();
}

// The pieces that came are dropped, and never handed out as a message.
TEST_F(HostileToRing, EndWithinALargeMessage) {
  announces(0, 3 * kLargestPiece);
  arrives(1, 64);
  arrives(kEndPlace, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receive(), ReceiveResult::kEnd);
}

TEST_F(HostileToRing, MessageBehindTheEnd) {
  arrives(kEndPlace, 0);
  arrives(0, 10);
  expect_refused();
}

TEST_F(HostileToRing, NumberOfAPlannedMessage) {
  arrives(kNumberBit | 3, 10);
  expect_refused();
}

TEST_F(HostileToRing, NoImmediateAtAll) {
  script_.arrivals.push_back({.kind = CompletionKind::kStray, .bytes = 10});
  expect_refused();
}

TEST_F(HostileToRing, SpaceGivenBackThatWasNeverTaken) {
  EXPECT_EQ(fill_up(kLargestPiece), 4U);
  gives_back(64, 2 * kRingUnits);
  expect_dead([&] { fill_up(kLargestPiece); });
}

TEST_F(HostileToRing, SpaceTakenAway) {
  EXPECT_EQ(fill_up(kLargestPiece), 4U);
  gives_back(64, UINT32_MAX);
  expect_dead([&] { fill_up(kLargestPiece); });
}

TEST_F(HostileToRing, MoreMessagesTakenThanSent) {
  EXPECT_EQ(fill_up(1), kRingReceives);  // as many as it has receives for
  gives_back(0, kRingReceives + 1);
  expect_dead([&] { fill_up(1); });
}

// A small message lies nowhere but in its entry, which the peer gets back.
TEST_F(HostileToRingInMemory, MessagesOfOtherContextsWaitWithTheirBytes) {
  arrives(3 * kRingUnits, 3, 3, 'a');
  arrives(3 * kRingUnits + 1, 48, 3, 'b');
  arrives(0, 5, 0, 'c');
  EXPECT_EQ(text(0), "ccccc");
  for (std::uint32_t i = 1; i <= kDepth; ++i) {  // all entries are used again
    arrives(i % kRingUnits, 7, 0, 'd');
    EXPECT_EQ(text(0), "ddddddd");
  }
  EXPECT_EQ(text(3), "aaa");
  EXPECT_EQ(text(3), std::string(48, 'b'));
  EXPECT_EQ(text(3), "nothing");
}

TEST_F(HostileToRingInMemory, PlaceThatIsNotDue) {
  arrives(1, 8);
  expect_refused();
}

TEST_F(HostileToRingInMemory, PlaceInTheRingOfAnotherContext) {
  arrives(kRingUnits, 8);
  expect_refused();
}

TEST_F(HostileToRingInMemory, PlaceBeyondTheRings) {
  arrives(16 * kRingUnits, 8, 15);
  expect_refused();
}

TEST_F(HostileToRingInMemory, LongerThanAPiece) {
  arrives(0, kLargestPiece + 1);
  expect_refused();
}

TEST_F(HostileToRingInMemory, MessageBehindTheEnd) {
  arrives(kEndPlace, 0);
  EXPECT_EQ(receive(), ReceiveResult::kEnd);
  arrives(0, 8);
  expect_refused();
}

TEST_F(HostileToRingInMemory, NumberOfAPlannedMessage) {
  arrives(kNumberBit, 8);
  expect_refused();
}

TEST_F(HostileToRing, SetupsThatContradictThemselves) {
  const auto expect_refused_setup = [&](const std::function<void(RingSetup&)>& change) {
    RingSetup blob = setup_;
    change(blob);
    std::vector<std::byte> bytes(sizeof blob);
    std::memcpy(bytes.data(), &blob, sizeof blob);
    expect_error(ErrorCode::kProtocol, [&] { transport_->start(bytes); });
  };
  expect_refused_setup([](RingSetup& blob) { blob.context0_units = 3 * kRingUnits; });
  expect_refused_setup([](RingSetup& blob) { blob.other_units = 1; });
  expect_refused_setup([](RingSetup& blob) { blob.context0_units = 1ULL << 40; });
  expect_refused_setup([](RingSetup& blob) { blob.credits_offset -= 64; });
  expect_refused_setup([](RingSetup& blob) { blob.credits_offset += 4; });
  expect_refused_setup([](RingSetup& blob) { blob.region_bytes -= 64; });
  expect_refused_setup([](RingSetup& blob) { blob.region_bytes = 100; });
  expect_refused_setup([](RingSetup& blob) { blob.region_address = UINT64_MAX - 64; });
  expect_refused_setup([](RingSetup& blob) { blob.receive_count = 3; });
  expect_refused_setup([](RingSetup& blob) { blob.max_message_bytes = 0; });
  const std::vector<std::byte> whole = transport_->setup();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    expect_error(ErrorCode::kProtocol, [&] { transport_->start(std::span(whole).first(bytes)); });
}

}  // namespace
}  // namespace leat::detail
