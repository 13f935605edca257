// What channels promise about large messages of which pieces have left and the rest has not, on
// every transport: a message arrives whole or not at all, and nothing after it suffers.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/channel_side.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

constexpr auto kShortTimeout = std::chrono::milliseconds(300);
// More than any transport holds for a receiver that does not read.
constexpr std::size_t kUnfinishedBytes = std::size_t{16} << 20;

void time_out_soon(Options& options) { options.timeout = kShortTimeout; }

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> message(bytes);
  fill_pattern(message, seed);
  return message;
}

void try_until_sent(Channel& channel, std::span<const std::byte> message, unsigned context) {
  for (const Deadline deadline = hang_deadline(); !channel.try_send(message, context);)
    ASSERT_FALSE(passed(deadline));
}

class UnfinishedSend : public ChannelTest {
 protected:
  // The first side begins the message of seed 1 in context 2 and does not finish it, because nobody
  // reads. Then it does `next`, while the other side receives: messages of these seeds and sizes,
  // and the end.
  struct Arrival {
    std::size_t bytes;
    std::uint64_t seed;
  };
  void run_next(const std::function<void(Channel&, std::span<const std::byte> begun)>& next,
                const std::vector<Arrival>& arrivals) const {
    run(
        [&](ChannelSide& side) {
          const auto begun = pattern(kUnfinishedBytes, 1);
          for (int i = 0; i < 100; ++i) ASSERT_FALSE(side.channel.try_send(begun, 2));
          side.peer.tell("begun");
          next(side.channel, begun);
          side.channel.shutdown();
        },
        [&](ChannelSide& side) {
          side.peer.hear("begun");
          for (const Arrival& arrival : arrivals) {
            ASSERT_NO_FATAL_FAILURE(
                expect_message(side.channel.receive(2), arrival.bytes, arrival.seed));
          }
          EXPECT_FALSE(side.channel.receive(2));
        });
  }
};

// A message of an attested or sealed channel has its place in the order: it alone can be sent
// there.
class UnfinishedNumberedSend : public UnfinishedSend {};

TEST_P(UnfinishedSend, ThatTimedOutIsNotSplicedWithAnotherOfTheSameSize) {
  run(
      [](ChannelSide& side) {
        expect_error(ErrorCode::kTimeout,
                     [&] { send_pattern(side.channel, kUnfinishedBytes, 1, 2); });
        side.peer.tell("timed out");
        // On a slow machine this times out too; the same message is then another one again.
        try {
          send_pattern(side.channel, kUnfinishedBytes, 2, 2);
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), ErrorCode::kTimeout);
          ASSERT_NO_FATAL_FAILURE(try_until_sent(side.channel, pattern(kUnfinishedBytes, 2), 2));
        }
        patiently([&] { side.channel.shutdown(); });
      },
      [](ChannelSide& side) {
        side.peer.hear("timed out");
        expect_message(side.channel.receive(2), kUnfinishedBytes, 2);
        EXPECT_FALSE(side.channel.receive(2));
      },
      {.first_options = [](Options& options) { options.timeout = std::chrono::seconds(2); }});
}

TEST_P(UnfinishedSend, ThatTimedOutIsFollowedByMessagesOfAnySize) {
  run(
      [](ChannelSide& side) {
        for (int i = 0; i < 2; ++i)
          expect_error(ErrorCode::kTimeout,
                       [&] { send_pattern(side.channel, kUnfinishedBytes, 1, 2); });
        expect_error(ErrorCode::kTimeout,
                     [&] { send_pattern(side.channel, kUnfinishedBytes / 2, 2, 2); });
        side.peer.tell("timed out");
        patiently([&] { send_pattern(side.channel, 100, 4, 2); });
        patiently([&] { send_pattern(side.channel, 3000, 5, 2); });
        patiently([&] { send_pattern(side.channel, std::size_t{1} << 20, 6, 2); });
        patiently([&] { side.channel.shutdown(); });
      },
      [](ChannelSide& side) {
        side.peer.hear("timed out");
        expect_message(side.channel.receive(2), 100, 4);
        expect_message(side.channel.receive(2), 3000, 5);
        expect_message(side.channel.receive(2), std::size_t{1} << 20, 6);
        EXPECT_FALSE(side.channel.receive(2));
      },
      {.first_options = time_out_soon});
}

void goes_on_with_the_same_message(Channel& channel, std::span<const std::byte> begun) {
  const std::vector<std::byte> copy(begun.begin(), begun.end());
  ASSERT_NO_FATAL_FAILURE(try_until_sent(channel, copy, 2));
}

TEST_P(UnfinishedSend, GoesOnWithTheSameMessageWhereverItLies) {
  run_next(goes_on_with_the_same_message, {{kUnfinishedBytes, 1}});
}

TEST_P(UnfinishedNumberedSend, GoesOnWithTheSameMessageWhereverItLies) {
  run_next(goes_on_with_the_same_message, {{kUnfinishedBytes, 1}});
}

TEST_P(UnfinishedSend, IsTakenBackByATrySendOfAnotherMessage) {
  run_next(
      [](Channel& channel, std::span<const std::byte>) {
        ASSERT_NO_FATAL_FAILURE(try_until_sent(channel, pattern(kUnfinishedBytes, 2), 2));
        ASSERT_NO_FATAL_FAILURE(try_until_sent(channel, pattern(10, 3), 2));
      },
      {{kUnfinishedBytes, 2}, {10, 3}});
}

TEST_P(UnfinishedSend, IsTakenBackByASmallOne) {
  run_next(
      [](Channel& channel, std::span<const std::byte>) {
        ASSERT_NO_FATAL_FAILURE(try_until_sent(channel, pattern(10, 2), 2));
      },
      {{10, 2}});
}

// Also one of the same size and beginning.
TEST_P(UnfinishedSend, IsTakenBackByASend) {
  static constexpr std::size_t kDiffers = 1 << 20;  // from here on
  run(
      [](ChannelSide& side) {
        auto message = pattern(kUnfinishedBytes, 1);
        for (int i = 0; i < 100; ++i) ASSERT_FALSE(side.channel.try_send(message, 2));
        side.peer.tell("begun");
        fill_pattern(std::span(message).subspan(kDiffers), 2);
        side.channel.send(message, 2);
      },
      [](ChannelSide& side) {
        side.peer.hear("begun");
        const Message message = side.channel.receive(2);
        ASSERT_EQ(message.size(), kUnfinishedBytes);
        EXPECT_EQ(pattern_mismatch(message.bytes().subspan(kDiffers), 2),
                  kUnfinishedBytes - kDiffers);
      });
}

TEST_P(UnfinishedSend, IsTakenBackByAReserve) {
  run_next(
      [](Channel& channel, std::span<const std::byte>) {
        fill_pattern(channel.reserve(1000, 2), 2);
        channel.commit(1000);
      },
      {{1000, 2}});
}

TEST_P(UnfinishedSend, IsTakenBackWhenAbandoned) {
  run_next(
      [](Channel& channel, std::span<const std::byte>) {
        channel.abandon_send(2);
        channel.abandon_send(2);
        channel.abandon_send(3);
        expect_error(ErrorCode::kInvalidArgument, [&] { channel.abandon_send(kContexts); });
        ASSERT_NO_FATAL_FAILURE(try_until_sent(channel, pattern(kUnfinishedBytes, 2), 2));
      },
      {{kUnfinishedBytes, 2}});
}

TEST_P(UnfinishedNumberedSend, LetsNoOtherPass) {
  run_next(
      [](Channel& channel, std::span<const std::byte> begun) {
        const auto other = pattern(kUnfinishedBytes, 2);
        for (int i = 0; i < 2; ++i) {
          expect_error(ErrorCode::kInvalidArgument, [&] { channel.send(other, 2); });
          expect_error(ErrorCode::kInvalidArgument, [&] { (void)channel.try_send(other, 2); });
        }
        // Of the same size and beginning.
        std::vector<std::byte> message(begun.begin(), begun.end());
        message.back() ^= std::byte{1};
        expect_error(ErrorCode::kInvalidArgument, [&] { channel.send(message, 2); });
        send_pattern(channel, 10, 5, 3);
        channel.send(begun, 2);
      },
      {{kUnfinishedBytes, 1}});
}

TEST_P(UnfinishedSend, BeforeShutdownNeverCame) {
  run_next([](Channel&, std::span<const std::byte>) {}, {});
}

TEST_P(UnfinishedSend, BeforeCloseNeverCame) {
  run(
      [](ChannelSide& side) {
        side.channel.send("before", 2);
        const auto begun = pattern(kUnfinishedBytes, 1);
        for (int i = 0; i < 100; ++i) ASSERT_FALSE(side.channel.try_send(begun, 2));
        const Channel dropped = std::move(side.channel);
      },
      [](ChannelSide& side) {
        EXPECT_EQ(side.channel.receive(2).text(), "before");
        EXPECT_FALSE(side.channel.receive(2));
        EXPECT_FALSE(side.channel.receive(0));
      });
}

TEST_P(UnfinishedSend, ThatTimedOutBeforeCloseNeverCame) {
  run(
      [](ChannelSide& side) {
        expect_error(ErrorCode::kTimeout,
                     [&] { send_pattern(side.channel, kUnfinishedBytes, 1, 2); });
        { const Channel dropped = std::move(side.channel); }
        side.peer.tell("closed");
      },
      [](ChannelSide& side) {
        side.peer.hear("closed");
        EXPECT_FALSE(side.channel.receive(2));
      },
      {.first_options = time_out_soon});
}

// A sender that loses patience at any moment, in every way, while the other side reads.
TEST_P(UnfinishedSend, AnyMixArrivesWhole) {
  const std::size_t count = scaled(100);
  run(
      [&](ChannelSide& side) {
        std::mt19937_64 random(7);
        std::array<std::uint64_t, 3> sent{};  // by context
        for (std::size_t i = 0; i < count; ++i) {
          const auto context = static_cast<unsigned>(random() % sent.size());
          const std::size_t bytes =
              random() % (random() % 3 == 0 ? std::size_t{3} << 20 : std::size_t{3000}) + 16;
          // Its number and size; those that are not sent have a number that is none.
          std::vector<std::byte> message(bytes, std::byte{0xee});
          const auto number = [&](std::uint64_t its) {
            std::memcpy(message.data(), &its, sizeof its);
            std::memcpy(message.data() + sizeof its, &bytes, sizeof bytes);
            fill_pattern(std::span(message).subspan(16), its);
          };
          number(sent[context]);
          bool done = false;
          for (std::uint64_t tries = random() % 50 + 1; !done && tries != 0; --tries)
            done = side.channel.try_send(message, context);
          if (!done) {
            switch (random() % 3) {
              case 0:
                side.channel.abandon_send(context);
                break;
              case 1:
                side.channel.send(message, context);
                done = true;
                break;
              default:
                break;  // another message follows
            }
            if (!done && random() % 2 == 0) {
              side.channel.abandon_send(context);
              ASSERT_NO_FATAL_FAILURE(try_until_sent(side.channel, message, context));
              done = true;
            }
          }
          if (done) {
            ++sent[context];
          } else {
            side.channel.abandon_send(context);
          }
        }
        side.peer.tell_value(sent);
        side.channel.shutdown();
      },
      [](ChannelSide& side) {
        std::array<std::uint64_t, 3> received{};
        std::array<bool, 3> ended{};
        const Deadline deadline = hang_deadline();
        while (!(ended[0] && ended[1] && ended[2])) {
          ASSERT_FALSE(passed(deadline)) << "hangs";
          for (unsigned context = 0; context < received.size(); ++context) {
            if (ended[context]) continue;
            const auto message = side.channel.try_receive(context);
            if (!message) continue;
            if (!*message) {
              ended[context] = true;
              continue;
            }
            ASSERT_GE(message->size(), 16U);
            std::array<std::uint64_t, 2> head{};
            std::memcpy(head.data(), message->data(), sizeof head);
            ASSERT_EQ(head[0], received[context]) << "context " << context;
            ASSERT_EQ(head[1], message->size());
            ASSERT_EQ(pattern_mismatch(message->bytes().subspan(16), head[0]),
                      message->size() - 16);
            ++received[context];
          }
        }
        EXPECT_EQ(received, (side.peer.hear_value<std::array<std::uint64_t, 3>>()));
      });
}

std::vector<ChannelKind> kinds_of(bool numbered) {
  std::vector<ChannelKind> kinds = channel_kinds();
  std::erase_if(kinds,
                [&](const ChannelKind& kind) { return is_decorated(kind.transport) != numbered; });
  return kinds;
}

LEAT_INSTANTIATE_SUITE(Channels, UnfinishedSend, kinds_of(false));
LEAT_INSTANTIATE_UNBUNDLED_SUITE(UnfinishedSend);
LEAT_INSTANTIATE_SUITE(Channels, UnfinishedNumberedSend, kinds_of(true));
LEAT_INSTANTIATE_NESTED_SUITE(UnfinishedNumberedSend);

}  // namespace
}  // namespace leat::detail
