// PlannedChannel: wrong calls, peers that break the rules, end or die.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/channel_side.h"
#include "support/planned_side.h"

namespace leat::detail {
namespace {

class PlannedErrors : public PlannedTest {};
LEAT_INSTANTIATE_PLANNED_SUITE(PlannedErrors);

TEST_P(PlannedErrors, TimesOutWhileThePeerDoesNotOpenOrSend) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  const auto hurry = [](Options& options) {
    choose(options);
    options.timeout = std::chrono::milliseconds(30);
  };
  run(
      [&](PlannedSide& side) {
        side.peer.barrier();
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, true, 0, 4));
        side.channel.flush();
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        const std::vector<std::byte> bytes(8);
        expect_error(ErrorCode::kTimeout, [&] { side.channel.send(0, 0, bytes); });
        expect_error(ErrorCode::kTimeout, [&] { (void)side.channel.reserve(0, 0); });
        expect_error(ErrorCode::kTimeout, [&] { (void)side.channel.receive(0, 0); });
        expect_error(ErrorCode::kTimeout, [&] { side.channel.close(0); });
        EXPECT_TRUE(side.channel.is_open(0));
        side.peer.barrier();
        std::span<const std::byte> received;
        patiently([&] { received = side.channel.receive(0, 0, 4); });
        expect_messages(received, array, 0, 0, true, 0, 4);
        patiently([&] { side.channel.close(0); });
      },
      {.first_options = choose, .second_options = hurry});
}

TEST_P(PlannedErrors, WrongCallsAreRefusedAndTheConnectionGoesOn) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      const auto refused = [](const std::function<void()>& call) {
        expect_error(ErrorCode::kInvalidArgument, call);
      };
      const std::vector<std::byte> bytes(16);
      PlannedChannel& channel = side.channel;
      refused([&] { channel.send(0, 0, bytes); });
      refused([&] { (void)channel.receive(0, 0); });
      refused([&] { (void)channel.try_receive(99, 0); });
      refused([&] { channel.close(0); });
      refused([&] { channel.open(0, {}); });
      refused([&] { channel.open(0, {.base_bytes = 8, .message_bytes = 8, .count = 4}); });
      refused([&] {
        channel.open(0, {.base_bytes = kPlannedRegionBytes, .message_bytes = 8, .count = 1});
      });
      channel.open(0, array);
      refused([&] { channel.open(0, array); });
      refused([&] { channel.open(1, array); });  // the same memory
      refused([&] { channel.send(0, 4, std::span(bytes).first(8)); });
      refused([&] { channel.send(0, 3, bytes); });
      refused([&] { channel.send(0, 0, std::span(bytes).first(9)); });
      refused([&] { channel.send(0, 0, {}); });
      refused([&] { (void)channel.reserve(0, 0, 5); });
      refused([&] { (void)channel.reserve(0, 0, 0); });
      refused([&] { channel.commit(); });
      refused([&] { (void)channel.receive(0, 0, 5); });
      refused([&] { (void)channel.receive(0, 4); });
      (void)channel.reserve(0, 0, 4);  // dropped by its close
      channel.send(0, 0, messages(array, 0, 0, first, 0, 4));
      expect_messages(channel.receive(0, 0, 4), array, 0, 0, !first, 0, 4);
      channel.close(0);
      refused([&] { channel.commit(); });
      refused([&] { (void)channel.receive(0, 0); });
      channel.channel().close();
      expect_error(ErrorCode::kClosed, [&] { channel.open(0, array); });
    };
  };
  run(body(true), body(false));
}

// What the peer does wrong is said on this side; nothing hangs, and the connection is dead.
TEST_P(PlannedErrors, AMessageThatComesTwiceEndsTheConnection) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        expect_error(ErrorCode::kProtocol, [&] { (void)side.channel.receive(0, 0, 4); });
        expect_error(ErrorCode::kProtocol, [&] { (void)side.channel.receive(0, 3); });
        expect_error(ErrorCode::kProtocol, [&] { side.channel.close(0); });
        side.peer.tell("seen");
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 2));
        side.channel.send(0, 1, messages(array, 0, 0, false, 1, 1));
        side.channel.flush();
        side.peer.hear("seen");
      });
}

TEST_P(PlannedErrors, MoreMessagesThanWereToComeEndTheConnection) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, {.base_bytes = 0, .message_bytes = 8, .count = 4, .incoming = 2});
        expect_error(ErrorCode::kProtocol, [&] { (void)side.channel.receive(0, 2, 2); });
        side.peer.tell("seen");
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 3));
        side.channel.flush();
        side.peer.hear("seen");
      });
}

TEST_P(PlannedErrors, SendingAfterThePeerHasClosedTheArrayIsAnError) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.peer.barrier();
        expect_error(ErrorCode::kProtocol,
                     [&] { side.channel.send(0, 0, std::vector<std::byte>(8)); });
      },
      [&](PlannedSide& side) {
        for (int i = 0; i < 2; ++i) {
          side.channel.open(0, {.base_bytes = 0, .message_bytes = 8, .count = 4, .incoming = 0});
          side.channel.close(0);
        }
        side.channel.channel().flush();
        side.peer.barrier();
      });
}

TEST_P(PlannedErrors, AnOrderlyEndWakesWhoeverWaitsForMore) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        expect_error(ErrorCode::kPeerDied, [&] { (void)side.channel.receive(0, 0, 4); });
        expect_messages(side.channel.receive(0, 0, 3), array, 0, 0, false, 0, 3);
        expect_error(ErrorCode::kPeerDied, [&] { (void)side.channel.try_receive(0, 3); });
        expect_error(ErrorCode::kPeerDied, [&] { side.channel.close(0); });
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 3));
        side.channel.channel().shutdown();  // takes along what is pending
        expect_error(ErrorCode::kClosed,
                     [&] { side.channel.send(0, 3, std::vector<std::byte>(8)); });
      });
}

TEST_P(PlannedErrors, DroppedChannelStillDeliversWhatIsPending) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.peer.tell("open");
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 0, false, 0, 4);
      },
      [&](PlannedSide& side) {
        side.peer.hear("open");
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 4));
        const PlannedChannel dropped = std::move(side.channel);
      });
}

// --- Peers that are killed. Waits are with sleeping and with spinning.

class PlannedDeath : public PlannedTest {
 protected:
  void survive(const std::function<void(PlannedChannel&)>& survivor,
               const std::function<void(PlannedChannel&)>& victim) const {
    for (const int spin_us : {0, 50, -1}) {
      const auto options = [&](Options& o) {
        choose(o);
        o.spin = std::chrono::microseconds(spin_us);
      };
      run(
          [&](PlannedSide& side) {
            side.peer.hear("now");
            side.peer.kill_other();
            expect_error(ErrorCode::kPeerDied, [&] { survivor(side.channel); });
          },
          [&](PlannedSide& side) {
            victim(side.channel);
            side.peer.tell("now");
            for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
          },
          {.first_options = options,
           .second_options = options,
           .second_ends = SecondEnds::kBySignal});
    }
  }

  const MessageArray array_{.base_bytes = 0, .message_bytes = 8, .count = 4};
};

TEST_P(PlannedDeath, WakesReceive) {
  survive(
      [&](PlannedChannel& channel) {
        channel.open(0, array_);
        (void)channel.receive(0, 1);
      },
      [&](PlannedChannel& channel) { channel.open(0, array_); });
}

TEST_P(PlannedDeath, WakesClose) {
  survive(
      [&](PlannedChannel& channel) {
        channel.open(0, array_);
        channel.close(0);
      },
      [](PlannedChannel&) {});
}

TEST_P(PlannedDeath, WakesASenderThatWaitsForTheArray) {
  survive(
      [&](PlannedChannel& channel) {
        channel.open(0, array_);
        channel.send(0, 0, std::vector<std::byte>(8));
      },
      [](PlannedChannel&) {});
}

TEST_P(PlannedDeath, WakesASenderThatWaitsForRoom) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 1, .count = 100'000};
  survive(
      [&](PlannedChannel& channel) {
        channel.open(0, array);
        for (std::uint64_t i = array.count; i-- > 0;) channel.send(0, i, std::vector<std::byte>(1));
        channel.channel().flush();
      },
      [&](PlannedChannel& channel) { channel.open(0, array); });
}

INSTANTIATE_TEST_SUITE_P(Channels, PlannedDeath,
                         testing::Combine(testing::ValuesIn(planned_kinds()),
                                          testing::Values(PeerMode::kProcesses)),
                         channel_test_name);

}  // namespace
}  // namespace leat::detail
